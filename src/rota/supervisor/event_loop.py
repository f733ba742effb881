"""Event loop of one thread: ready file descriptors and timers.

asyncio would need 8 MiB more and is half as fast.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
READ_WRITE = select.EPOLLIN | select.EPOLLOUT
_MAX_WAIT_SECONDS = 86_400.0
"""Maximum seconds of one wait: the kernel accepts at most 24 days, and a time limit may be years."""


class Timer:
    """Timer that can be cancelled. The heap drops it when it is due."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None

    def fire(self) -> None:
        action, self.action = self.action, None
        if action is not None:  # cancelled by an earlier action of the same iteration
            action()


class EventLoop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._actions: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = itertools.count()

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        self._epoll.register(fd, READ)
        self._actions[fd] = action

    def set_events(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor. Call it before the descriptor is closed. An event of the current
        iteration may still name its number; actions tolerate that."""
        self._epoll.unregister(fd)
        del self._actions[fd]

    def call_at(self, when: float, action: Callable[[], None]) -> Timer:
        """Call `action` when `time.monotonic()` reaches `when`."""
        timer = Timer(action)
        heapq.heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def poll_actions(self) -> list[Callable[[], None]]:
        """Wait for the first event and return the actions to run.

        Descriptors come before timers, so that an exit that is already pending is processed before a timeout is
        enforced.
        """
        ready = self._epoll.poll(self._poll_timeout())
        due = [self._actions[fd] for fd, _ in ready]
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.action is not None:
                due.append(timer.fire)
        return due

    def _poll_timeout(self) -> float:
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return min(max(0.0, self._timers[0][0] - time.monotonic()), _MAX_WAIT_SECONDS)
