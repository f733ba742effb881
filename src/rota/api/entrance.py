"""Who connects, let in one by one while there are descriptors for it.

The scheduler needs some for itself: the store, the supervisor, logs. So a part of them is kept back, and who would have
one of those is told to come again. How many are in use is seen by the number of the new one, for the kernel gives the
lowest that is free:

    0 ······ room for connections ······ │ ·· kept back ·· │ as many as there may be
                 let in                  │   told, closed  │ nobody is let in for a second

asyncio's own server does not do: where there are no descriptors left it tries the whole backlog all the same, with a
traceback in the log for each, and again in a second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress

log = logging.getLogger("rota.api")

_AT_ONCE = 64
"""Let in before others have their turn."""
_PAUSE = 1.0
_SAID_AGAIN_AFTER = 60.0
"""Seconds: who comes and goes at the limit is not worth a line each time."""

Make = Callable[[], asyncio.Protocol]


class Entrance:
    """One listening socket, on the event loop; it closes with this."""

    def __init__(self, listening: socket.socket, make: Make, *, highest: int, word: bytes = b"") -> None:
        """`make` makes a protocol for a connection; `highest` is the last descriptor that one may have, and `word` is
        what all others are told."""
        self._listening = listening
        self._make = make
        self._highest = highest
        self._word = word
        self._loop = asyncio.get_running_loop()
        self._entering: set[asyncio.Task[object]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._said_at = float("-inf")
        listening.setblocking(False)
        self._open()

    def close(self) -> None:
        """Who is inside stays."""
        if self._resuming is not None:
            self._resuming.cancel()
        if self._listening.fileno() != -1:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    async def wait_closed(self) -> None:
        """It is closed at once."""

    def _open(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            if connection.fileno() > self._highest:
                self._turn_away(connection)
            else:
                self._let_in(connection)

    def _let_in(self, connection: socket.socket) -> None:
        task = self._loop.create_task(_entered(self._loop, self._make, connection))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    def _turn_away(self, connection: socket.socket) -> None:
        self._say("as many connections are open as there is room for; others are turned away until some are closed")
        with suppress(OSError), connection:
            connection.setblocking(False)
            if self._word:
                connection.send(self._word)

    def _rest(self, error: OSError) -> None:
        """Who comes meanwhile waits in the kernel's line."""
        self._say(f"nobody can be let in: {error.strerror}; tried again every second")
        self._loop.remove_reader(self._listening)
        self._resuming = self._loop.call_later(_PAUSE, self._open)

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said_at >= _SAID_AGAIN_AFTER:
            log.warning("%s; `ulimit -n` limits it", text)
        self._said_at = now


async def _entered(loop: asyncio.AbstractEventLoop, make: Make, connection: socket.socket) -> None:
    try:
        await loop.connect_accepted_socket(make, connection)
    except OSError:  # it is gone already
        connection.close()
