"""HTTP server on the socket of the home."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import Scope

from rota.api.listener import Listener
from rota.api.protocol import HttpProtocol, make_too_many_connections_error, render_raw_response
from rota.errors import ServiceUnavailable
from rota.home import Home, short_socket_path

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
