"""Hub: wakes tasks on the event loop when a job, reservation or group changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from rota.ids import GroupId, JobId, ReservationId
from rota.kernel.events import Event

T = TypeVar("T")
Topic = JobId | tuple[Literal["reservation"], ReservationId] | tuple[Literal["group"], GroupId]
"""Subject of a subscription: a job, a reservation or a group."""


class Hub:
    """Wakes tasks that wait for a change of a job, reservation or group. The engine's thread calls `publish`;
    everything else runs on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiters: dict[Topic | None, set[asyncio.Event]] = {}
        self.is_closed = False
        """Whether the scheduler is stopping."""

    def publish(self, events: Sequence[Event]) -> None:
        """Wake the subscribers of these events. Only topics with a subscriber cross to the event loop: a subscriber
        reads the store after it has subscribed, so it sees a change that was not announced to it."""
        if not self._waiters:
            return
        topics = {topic for event in events if (topic := _topic(event)) is not None and topic in self._waiters}
        if topics or None in self._waiters:
            self.loop.call_soon_threadsafe(self._notify, topics)

    def wake(self) -> None:
        """Wake the tasks that are subscribed to everything."""
        self._notify(set())

    def close(self) -> None:
        """Wake all subscribers because the scheduler is stopping. Waiting requests are answered with the current
        state."""
        self.is_closed = True
        self._notify({topic for topic in self._waiters if topic is not None})

    def _notify(self, topics: set[Topic]) -> None:
        for key in (None, *(topics & self._waiters.keys())):
            for waiter in self._waiters.get(key, ()):
                waiter.set()

    @contextmanager
    def subscribe(self, topic: Topic | None) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the topic changes. None subscribes to everything."""
        waiter = asyncio.Event()
        self._waiters.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[topic].discard(waiter)
            if not self._waiters[topic]:
                del self._waiters[topic]

    async def wait_until(
        self,
        topic: Topic | None,
        seconds: float,
        read: Callable[[], Awaitable[T]],
        is_done: Callable[[T], bool],
        *,
        min_interval: float = 0.0,
    ) -> T:
        """Return the first result of `read` that is done, or the last result after `seconds`. Two reads are at least
        `min_interval` seconds apart."""
        deadline = self.loop.time() + seconds
        with self.subscribe(topic) as changed:
            while True:
                changed.clear()
                result = await read()
                if is_done(result) or self.is_closed or not await wait_for(changed, deadline - self.loop.time()):
                    return result
                await asyncio.sleep(min_interval)


def _topic(event: Event) -> Topic | None:
    if event.group is not None:
        return "group", event.group
    return event.job if event.reservation is None else ("reservation", event.reservation)


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set within `seconds`."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False
