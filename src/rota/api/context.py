"""What the handlers share: the way into the engine, readers, and who is told when a job changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from rota.api.feed import Feed
from rota.api.gather import Gathered
from rota.api.presence import Presence
from rota.api.sse import Streams
from rota.api.trace import current_trace
from rota.aside import Asides
from rota.clock import Clock
from rota.command.backpressure import Deferred, Delayed
from rota.command.submission import Surroundings
from rota.command.submit import Answer, Submitted, delays_of
from rota.config import Config
from rota.core.artifact import Outside
from rota.core.control import Holds
from rota.core.event import Event
from rota.core.pace import Outlook, batch_of
from rota.engine.act import unless_told
from rota.engine.gc import Collector
from rota.engine.known import Known
from rota.engine.loop import Loop
from rota.engine.meter import Meter
from rota.engine.once import Once, Told
from rota.engine.sender import Sender
from rota.engine.work import Request, Settings, Work
from rota.home import Home
from rota.ids import GroupId, JobId, SlotId
from rota.probe.port import Probe
from rota.receiver.http import HttpPost
from rota.store.port import Store
from rota.store.session import Reader
from rota.view.job import Sight, just_stored
from rota.wire.job import JobForm
from rota.wire.scheduler import AboutForm

T = TypeVar("T")
U = TypeVar("U")
Topic = JobId | tuple[Literal["slot"], SlotId] | tuple[Literal["group"], GroupId]
"""Who is listened to."""

_READERS = 2


class Hub:
    """Wakes who waits for a job or slot. `publish` comes from the engine's thread, all else is on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiters: dict[Topic | None, set[asyncio.Event]] = {}
        self.is_closed = False
        """The scheduler ends."""

    def publish(self, events: Sequence[Event]) -> None:
        """Only what somebody listens to crosses to the event loop. Who listens looks after he began to listen, so what
        is left out here he has seen."""
        if not self._waiters:
            return
        topics = {topic for event in events if (topic := _topic(event)) is not None and topic in self._waiters}
        if topics or None in self._waiters:
            self.loop.call_soon_threadsafe(self._notify, topics)

    def wake(self) -> None:
        """Let those who listen to everything look again."""
        self._notify(set())

    def close(self) -> None:
        """The scheduler ends: whoever waits is answered with what there is now."""
        self.is_closed = True
        self._notify({topic for topic in self._waiters if topic is not None})

    def _notify(self, topics: set[Topic]) -> None:
        for key in (None, *(topics & self._waiters.keys())):
            for waiter in self._waiters.get(key, ()):
                waiter.set()

    @contextmanager
    def listening(self, topic: Topic | None) -> Iterator[asyncio.Event]:
        """Set whenever the job or slot changes; none listens to everything."""
        waiter = asyncio.Event()
        self._waiters.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[topic].discard(waiter)
            if not self._waiters[topic]:
                del self._waiters[topic]

    async def until(
        self, topic: Topic | None, seconds: float, look: Callable[[], Awaitable[T]], is_enough: Callable[[T], bool],
        *, breath: float = 0.0,
    ) -> T:  # fmt: skip
        """What `look` sees as soon as it is enough, or when the time is over. `breath` are the seconds between two
        looks, however much happens."""
        deadline = self.loop.time() + seconds
        with self.listening(topic) as changed:
            while True:
                changed.clear()
                seen = await look()
                if is_enough(seen) or self.is_closed or not await wait_for(changed, deadline - self.loop.time()):
                    return seen
                await asyncio.sleep(breath)


def _topic(event: Event) -> Topic | None:
    if event.group is not None:
        return "group", event.group
    return event.job if event.slot is None else ("slot", event.slot)


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Whether it was set in time."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False


class Control(Protocol):
    """What the API asks of the process it lives in."""

    @property
    def config(self) -> Config: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def held_by(self) -> str | None:
        """Why nothing at all starts."""
        ...

    @property
    def obstacles(self) -> list[str]:
        """All that keeps anything at all from being started."""
        ...

    @property
    def outlook(self) -> Outlook:
        """When a job can start that nothing else holds."""
        ...

    @property
    def holds(self) -> Holds: ...

    @property
    def collector(self) -> Collector: ...

    def look_at_config(self) -> None:
        """Take up the configuration if somebody has edited the file since; what cannot be used is left, and said."""
        ...

    async def look_at_hold_file(self, *, wakes: bool = True) -> None:
        """The same of the hold file, where there is to be one; whether a change brings about a turn of its own."""
        ...

    def reload(self) -> None:
        """Take up the configuration as it is on disk; raises when it cannot be used."""
        ...

    def set_pool(self, name: str, size: int) -> None: ...
    def stop(self, grace: timedelta | None, *, kills: bool) -> None:
        """Begin to stop; whether what still runs after the grace period is ended."""
        ...

    def about(self) -> AboutForm:
        """What `status` says of the process itself."""
        ...


class Context:
    def __init__(
        self, *, home: Home, store: Store, clock: Clock, engine: Loop, hub: Hub, control: Control, actor: str,
        around: Surroundings, probe: Probe, known: Known, meter: Meter, most_streams: int,
    ) -> None:  # fmt: skip
        self.home = home
        self.clock = clock
        self.hub = hub
        self.control = control
        self.actor = actor
        self._around = around
        self.probe = probe
        self.known = known
        self.meter = meter
        self.feed = Feed(hub.loop, self.look)
        self.streams = Streams(most_streams)
        self.presence = Presence(self.perform, lambda: control.config.direct)
        self.sender = Sender(
            clock=clock,
            look=self.look,
            perform=self.perform,
            post=HttpPost(),
            policy=lambda: control.settings.webhooks,
        )
        self.asides = Asides()
        """Who looks outside, where a file system may not answer."""
        self.schedules_changed = asyncio.Event()
        """Set when a schedule may be due at another time than before."""
        self._jobs = home.jobs
        self._store = store
        self._engine = engine
        self._threads = ThreadPoolExecutor(_READERS, thread_name_prefix="rota-reader")
        self._local = threading.local()
        self._readers: list[Reader] = []
        self._settled: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._is_waking = False
        self._outbox: Gathered[Request[Any]] = Gathered(hub.loop, engine.submit)

    @property
    def around(self) -> Surroundings:
        """What a job gets that does not bring its own; asked while a request is answered, its trace is among it."""
        trace = current_trace()
        return msgspec.structs.replace(self._around, trace=trace) if trace else self._around

    def sight(self) -> Sight:
        settings = self.control.settings
        return Sight(
            limits=settings.limits,
            batch_size=batch_of(settings.batch_size, settings.heartbeat),
            breaker=settings.breaker,
            now=self.clock.now(),
            jobs=self._jobs,
            held_by=self.control.held_by,
            outlook=self.control.outlook,
            holds=self.control.holds,
            outside=Outside(seen=self.known.seen, places=settings.places),
            queue=settings.queue,
        )

    async def perform(self, act: Callable[[Work], T]) -> T:
        """Do it in the engine's next transaction; answered after its commit."""
        done: T = await self._asked(act, None)
        return done

    async def perform_and_see(self, act: Callable[[Work], T], see: Callable[[Work, Sequence[T]], Sequence[U]]) -> U:
        """The same, answered with what `see` makes of the result."""
        seen: U = await self._asked(act, see)
        return seen

    async def rehearse(self, act: Callable[[Work], T], see: Callable[[Work, Sequence[T]], Sequence[U]]) -> U:
        """What would come of it, and nothing does."""
        seen: U = await self._asked(act, see, is_rehearsal=True)
        return seen

    async def perform_once(
        self, once: Once, act: Callable[[Work], T], see: Callable[[Work, Sequence[T]], Sequence[U]]
    ) -> U | Told:
        """The same, for a request that has a key: what it was told, if it came before."""
        return await self._asked(partial(unless_told, once=once, act=act), see, once=once)  # type: ignore[no-any-return]

    async def _asked(
        self, act: Callable[[Work], T], see: Callable[[Work, Sequence[T]], Sequence[Any]] | None, *,
        is_rehearsal: bool = False, once: Once | None = None,
    ) -> Any:  # fmt: skip
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def done(result: Any) -> None:
            self._settled.append((answer, result))
            if not self._is_waking:  # one call for all that a turn has done
                self._is_waking = True
                loop.call_soon_threadsafe(self._settle)

        self._outbox.add(Request(act, done, see, is_rehearsal=is_rehearsal, once=once))
        return await answer

    def _settle(self) -> None:
        self._is_waking = False
        while self._settled:
            answer, result = self._settled.popleft()
            if answer.done():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)

    def see_submitted(self, work: Work, told: Sequence[Answer]) -> list[tuple[Answer, JobForm | None, Delayed | None]]:
        """Each with the form of its job, or of the one that has its key, and with what it is to be warned of."""
        new = {job.id: job for one in told if isinstance(one, Submitted) for job in one.new}
        named = [one.jobs[0] for one in told if not isinstance(one, Deferred)]
        shown = just_stored(work, named, new, self.sight()) if named else {}
        return [
            (one, None if isinstance(one, Deferred) else shown[one.jobs[0]], delayed)
            for one, delayed in self.see_batch(work, told)
        ]

    def see_batch(self, work: Work, told: Sequence[Answer]) -> list[tuple[Answer, Delayed | None]]:
        return list(zip(told, delays_of(work, told), strict=True))

    async def look(self, view: Callable[[Reader], T]) -> T:
        """Run a view on a reader of its thread, at one moment of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._look, view)

    def _look(self, view: Callable[[Reader], T]) -> T:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._store.reader()
            self._readers.append(reader)
        with reader.reading():
            return view(reader)

    def close(self) -> None:
        self._threads.shutdown()
        for reader in self._readers:
            reader.close()
