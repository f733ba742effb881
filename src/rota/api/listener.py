"""Listener: accepts connections one by one, while there are descriptors for them.

The scheduler needs descriptors for the store, the supervisor and logs, so a part of them is reserved. A connection that
would use one of these is rejected. The number of its descriptor shows how many are in use, because the kernel assigns
the lowest free number:

    0 ······ room for connections ······ │ ······ reserved ······ │ maximum of the process
                accepted                 │        rejected        │ nothing is accepted for a second

asyncio's own server is not suitable: without free descriptors, it tries the whole backlog, logs a traceback for each
connection, and repeats this every second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress

from rota.api.limit import LimitNotice

log = logging.getLogger("rota.api")

_ACCEPT_BATCH = 64
"""Maximum connections to accept before other tasks run."""
_ACCEPT_RETRY_DELAY = 1.0

ProtocolFactory = Callable[[], asyncio.Protocol]


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
