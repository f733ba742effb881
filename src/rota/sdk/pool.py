"""Pool of connections that a client reuses.

A client cannot know for certain whether the scheduler has closed an idle connection: it checks before use, but the
connection may close while the request is in flight. So only repeatable requests use pooled connections. Other requests
open a new connection and leave it to the pool.

Sockets are pooled as they are: not registered with an event loop, and without a lock that a fork could leave locked.
The operations of a deque are atomic. A forked child closes the connections of its parent without using them: two
processes on one connection would read each other's responses.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections import deque
from typing import NamedTuple
from weakref import finalize

from rota.client.problem import ConnectionBroken

_MAX_IDLE_CONNECTIONS = 16
"""Maximum number of idle connections; others are closed. Connections in use are not limited."""
_IDLE_TIMEOUT = 4.0
"""Seconds after which an idle connection is not reused. The scheduler closes it after five."""


class _IdleConnection(NamedTuple):
    connection: socket.socket
    process_id: int
    idle_since: float


class ConnectionPool:
    """A pool that threads can share, and tasks of several event loops."""

    def __init__(self) -> None:
        self._idle: deque[_IdleConnection] = deque()
        self._is_closed = False
        finalize(self, _close_all, self._idle)

    def acquire(self) -> socket.socket | None:
        """Return the most recently used idle connection that is usable, or `None`."""
        while (idle := _pop_idle(self._idle)) is not None:
            is_fresh = time.monotonic() - idle.idle_since < _IDLE_TIMEOUT
            if idle.process_id == os.getpid() and is_fresh and _is_idle(idle.connection):
                return idle.connection
            idle.connection.close()
        return None

    def release(self, connection: socket.socket) -> None:
        """Keep the connection for the next request. Its last response has been read to the end."""
        if self._is_closed or len(self._idle) >= _MAX_IDLE_CONNECTIONS:
            connection.close()
        else:
            self._idle.append(_IdleConnection(connection, os.getpid(), time.monotonic()))

    def borrow(self, connection: socket.socket) -> BorrowedConnection:
        """Borrow the connection for one response."""
        return BorrowedConnection(connection, self)

    def close_idle(self) -> None:
        """Close all idle connections."""
        _close_all(self._idle)

    def close(self) -> None:
        """Close all idle connections, and do not keep any further ones."""
        self._is_closed = True
        self.close_idle()


class BorrowedConnection:
    """A connection that is in use for one response."""

    def __init__(self, connection: socket.socket, pool: ConnectionPool) -> None:
        self._connection = connection
        self._pool = pool
        self._process_id = os.getpid()
        self._is_finished = False

    def check_process(self) -> None:
        """Refuse to read a response in a child process that was forked after the request."""
        if os.getpid() != self._process_id:
            raise ConnectionBroken(
                "this response belongs to the parent process; send the request again in this process"
            )

    def mark_broken(self) -> None:
        """Close the idle connections too: a server that closed this one has closed them as well."""
        self._pool.close_idle()

    def finish(self, *, is_reusable: bool) -> None:
        """Return the connection to the pool if it is reusable, otherwise close it."""
        if self._is_finished:
            return
        self._is_finished = True
        if is_reusable and os.getpid() == self._process_id:
            self._pool.release(self._connection)
        else:
            self._connection.close()


def _pop_idle(idle: deque[_IdleConnection]) -> _IdleConnection | None:
    try:
        return idle.pop()
    except IndexError:  # another thread took the last one
        return None


def _close_all(idle: deque[_IdleConnection]) -> None:
    while (idle_connection := _pop_idle(idle)) is not None:
        idle_connection.connection.close()


def _is_idle(connection: socket.socket) -> bool:
    """Return whether the connection is open. Between two requests there is no data, so readable means closed."""
    if isinstance(connection, ssl.SSLSocket) and connection.pending():
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)
