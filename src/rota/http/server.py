"""HTTP server on the socket of the home.

The scheduler needs descriptors for the store, the supervisor and logs, so a part of them is reserved. The listener
accepts connections one by one, and rejects a connection that would use a reserved descriptor. The number of its
descriptor shows how many are in use, because the kernel assigns the lowest free number:

    0 ······ room for connections ······ │ ······ reserved ······ │ maximum of the process
                accepted                 │        rejected        │ nothing is accepted for a second

asyncio's own server is not suitable: without free descriptors, it tries the whole backlog, logs a traceback for each
connection, and repeats this every second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast

import uvicorn
from starlette.types import Scope

from rota.errors import ServiceUnavailable
from rota.home import Home, short_socket_path
from rota.http.limits import LimitNotice
from rota.http.protocol import HttpProtocol, make_too_many_connections_error, render_raw_response

log = logging.getLogger("rota.http")

_ACCEPT_BATCH = 64
"""Maximum connections to accept before other tasks run."""
_ACCEPT_RETRY_DELAY = 1.0
ProtocolFactory = Callable[[], asyncio.Protocol]
_SHUTDOWN_TIMEOUT = 1
"""Seconds to complete responses when the scheduler stops. A log that is followed breaks off then."""


class HttpServer(uvicorn.Server):
    """Server of uvicorn with differences: the daemon handles signals, `end` requests the end, which is not polled ten
    times a second, and connections come from a `Listener`."""

    def __init__(self, config: uvicorn.Config, *, max_descriptor: int) -> None:
        """Create a server. `max_descriptor` is the highest descriptor that a connection may have."""
        super().__init__(config)
        self.max_descriptor = max_descriptor
        self._end_requested = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._end_requested.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = self._make_listeners(sockets or ())
        self.started = True

    def replace_listener(self, listening_socket: socket.socket) -> None:
        """Accept connections on this socket and no other. Existing connections are kept."""
        replaced, self.servers = self.servers, self._make_listeners([listening_socket])
        for listener in replaced:
            listener.close()

    def _make_listeners(self, sockets: Sequence[socket.socket]) -> list[asyncio.Server]:
        rejection = render_raw_response(make_too_many_connections_error())
        listeners = [
            Listener(listening, self._make_protocol, max_descriptor=self.max_descriptor, rejection=rejection)
            for listening in sockets
        ]
        return cast("list[asyncio.Server]", listeners)

    def _make_protocol(self) -> asyncio.Protocol:
        return HttpProtocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        await self._end_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down. A response that is not complete in time breaks off as if its client had disconnected. To cancel it
        would look like a defect of the application."""
        disconnect_timer = asyncio.get_running_loop().call_later(_SHUTDOWN_TIMEOUT, self.disconnect_clients)
        await super().shutdown(sockets)
        disconnect_timer.cancel()

    def disconnect_clients(self, except_scope: Scope | None = None) -> None:
        """Disconnect all clients except the one of this request."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpProtocol) and (except_scope is None or connection.scope is not except_scope):
                connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_config(app: Any, protocol: type[HttpProtocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT + 1,
    )


class SocketFile:
    """File of the home's socket. Any process of its owner may remove the file while the scheduler runs."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._inode: int | None = None

    def bind(self) -> socket.socket:
        """Return a listening socket. Only the holder of the home's lock calls this, so an existing file does not belong
        to a running scheduler."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # On Linux, this is the mode of the file. A umask would affect all threads.
            os.fchmod(listening.fileno(), 0o600)
            self._home.socket.unlink(missing_ok=True)
            with short_socket_path(self._home.root, self._home.socket.name) as address:
                listening.bind(address)
            self._inode = self._home.socket.stat().st_ino
            listening.listen(1024)
        except OSError as error:
            listening.close()
            raise ServiceUnavailable(f"cannot listen on {self._home.socket}: {error.strerror}") from error
        return listening

    @property
    def is_reachable(self) -> bool:
        """Whether the file is the socket that was bound last."""
        try:
            return self._home.socket.stat().st_ino == self._inode
        except OSError:
            return False

    def remove(self) -> None:
        if self.is_reachable:
            self._home.socket.unlink(missing_ok=True)


class Listener:
    """Listening socket on the event loop. The listener owns and closes it."""

    def __init__(
        self,
        listening_socket: socket.socket,
        protocol_factory: ProtocolFactory,
        *,
        max_descriptor: int,
        rejection: bytes = b"",
    ) -> None:
        """Create a listener. `protocol_factory` makes the protocol of a connection, `max_descriptor` is the highest
        descriptor that a connection may have, and `rejection` is sent to all others."""
        self._socket = listening_socket
        self._protocol_factory = protocol_factory
        self._max_descriptor = max_descriptor
        self._rejection = rejection
        self._loop = asyncio.get_running_loop()
        self._accept_tasks: set[asyncio.Task[object]] = set()
        self._resume_timer: asyncio.TimerHandle | None = None
        self._notice = LimitNotice(log)
        listening_socket.setblocking(False)
        self._start_accepting()

    def close(self) -> None:
        """Close the socket. Existing connections are kept."""
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        if self._socket.fileno() != -1:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    async def wait_closed(self) -> None:
        """Return immediately, because `close` has closed the socket."""

    def _start_accepting(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause_accepting(error)
                return
            if connection.fileno() > self._max_descriptor:
                self._reject(connection)
            else:
                self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        task = self._loop.create_task(_connect_protocol(self._loop, self._protocol_factory, connection))
        self._accept_tasks.add(task)
        task.add_done_callback(self._accept_tasks.discard)

    def _reject(self, connection: socket.socket) -> None:
        self._notice.log(
            "no descriptors are left for connections; more are rejected until some close; `ulimit -n` sets the limit"
        )
        with suppress(OSError), connection:
            connection.setblocking(False)
            if self._rejection:
                connection.send(self._rejection)

    def _pause_accepting(self, error: OSError) -> None:
        """Stop accepting for a moment. New connections wait in the kernel's backlog."""
        self._notice.log(
            f"cannot accept connections, retrying every second: {error.strerror}; `ulimit -n` sets the limit"
        )
        self._loop.remove_reader(self._socket)
        self._resume_timer = self._loop.call_later(_ACCEPT_RETRY_DELAY, self._start_accepting)


async def _connect_protocol(
    loop: asyncio.AbstractEventLoop, protocol_factory: ProtocolFactory, connection: socket.socket
) -> None:
    try:
        await loop.connect_accepted_socket(protocol_factory, connection)
    except OSError:  # the client has disconnected
        connection.close()
