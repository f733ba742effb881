"""One thread's events: file descriptors that become ready, and moments that come.

asyncio would do this too, for 8 MiB and half the speed.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
READ_WRITE = select.EPOLLIN | select.EPOLLOUT
_LONGEST_WAIT = 86_400.0
"""Seconds: the kernel waits for 24 days at most, and a limit may be of years."""


class Timer:
    """A moment that can be called off; the heap drops it when its time comes."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None

    def fire(self) -> None:
        action, self.action = self.action, None
        if action is not None:  # called off by something earlier in the same turn
            action()


class Loop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        self._epoll.register(fd, READ)
        self._actions[fd] = action

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Before the descriptor is closed. An event of this turn may still name its number: actions tolerate that."""
        self._epoll.unregister(fd)
        del self._actions[fd]

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        timer = Timer(action)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def turn(self) -> list[Callable[[], None]]:
        """Wait for whatever comes first; what to do about it, descriptors before timers.

        Descriptors come first so that an end that is already there is seen before a timeout is enforced.
        """
        ready = self._epoll.poll(self._patience())
        due = [self._actions[fd] for fd, _ in ready]
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                due.append(timer.fire)
        return due

    def _patience(self) -> float:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return min(max(0.0, self._timers[0][0] - time.monotonic()), _LONGEST_WAIT)
