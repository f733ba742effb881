"""Connections that a client keeps from one request to the next.

Whether the other side has closed one is known only so far: it is looked at before it is used, and may be closed while
the request is on its way. So only what may be sent again goes over a kept connection. What may not has a new one, and
leaves it behind for others.

Sockets are kept bare: registered with no event loop, and with no lock around them that a fork could leave locked. A
deque gives and takes one at a time, whatever threads do. What a parent has kept, its child closes for itself and never
uses: two that speak over one connection would read each other's answers.
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

from rota.client.problem import Broken

_MOST = 16
"""Connections that wait for use; what is more is closed. Of those in use there may be any number."""
_IDLE = 4.0
"""Seconds after which one is not used again: the scheduler closes it after five."""


class _Kept(NamedTuple):
    connection: socket.socket
    process: int
    since: float


class Pool:
    """Threads can share one, and so can tasks of several event loops."""

    def __init__(self) -> None:
        self._kept: deque[_Kept] = deque()
        self._is_closed = False
        finalize(self, _close_all, self._kept)

    def take(self) -> socket.socket | None:
        """One that is still good, if there is one: the last that was used."""
        while (kept := _last_of(self._kept)) is not None:
            is_young = time.monotonic() - kept.since < _IDLE
            if kept.process == os.getpid() and is_young and _is_quiet(kept.connection):
                return kept.connection
            kept.connection.close()
        return None

    def give(self, connection: socket.socket) -> None:
        """For the next request; its answer is read to the end."""
        if self._is_closed or len(self._kept) >= _MOST:
            connection.close()
        else:
            self._kept.append(_Kept(connection, os.getpid(), time.monotonic()))

    def lend(self, connection: socket.socket) -> Loan:
        """For one answer."""
        return Loan(connection, self)

    def drop(self) -> None:
        """None of them is good any more."""
        _close_all(self._kept)

    def close(self) -> None:
        """Nothing is kept from now on."""
        self._is_closed = True
        self.drop()


class Loan:
    """A connection while one answer comes over it."""

    def __init__(self, connection: socket.socket, pool: Pool) -> None:
        self._connection = connection
        self._pool = pool
        self._process = os.getpid()
        self._is_over = False

    def check(self) -> None:
        """Before it is read from: what a parent has begun to read is not for its child, who asks anew."""
        if os.getpid() != self._process:
            raise Broken("this answer is for another process, which has forked since; ask again")

    def broke(self) -> None:
        """Who closed it has closed the others too."""
        self._pool.drop()

    def end(self, *, is_good: bool) -> None:
        """It goes back if it is good for another request."""
        if self._is_over:
            return
        self._is_over = True
        if is_good and os.getpid() == self._process:
            self._pool.give(self._connection)
        else:
            self._connection.close()


def _last_of(kept: deque[_Kept]) -> _Kept | None:
    try:
        return kept.pop()
    except IndexError:  # another thread was quicker
        return None


def _close_all(kept: deque[_Kept]) -> None:
    while (each := _last_of(kept)) is not None:
        each.connection.close()


def _is_quiet(connection: socket.socket) -> bool:
    """Nobody has anything to say between two requests: if there is something to read, it is the end."""
    if isinstance(connection, ssl.SSLSocket) and connection.pending():
        return False
    look = select.poll()
    look.register(connection, select.POLLIN)
    return not look.poll(0)
