"""Event feed: passes events on to listeners as they happen.

    engine's thread      announces committed events; only those that a listener may want cross over
    one task             reads them from the table, once for all listeners, and only while there are listeners
    each listener        has a few pending messages; a slow one has none, and reads the table itself

A listener starts behind: it reads the table from its position until it has read everything that the task has passed on
before. From then on it is live. If it has too many pending messages, it is behind again. No event is lost between the
two states, because the engine knows a listener before the listener reads the table: events that are committed after
this read are passed on, and events that were passed on before it are in the table.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rota.db.session import Reader
from rota.engine.calls import ReadStore
from rota.errors import RotaError
from rota.events.queries import EventSlice, read_events
from rota.events.schemas import render_event
from rota.http.sse import KEEPALIVE, KEEPALIVE_INTERVAL, format_message
from rota.ids import JobId
from rota.kernel.events import Event, EventEntry, EventFilter

log = logging.getLogger("rota.http")

_ANY_KIND = "*"
BATCH_SIZE = 500
"""Maximum number of events in one read."""
MAX_PENDING_MESSAGES = 256
"""Maximum number of pending messages of a listener."""
_MIN_READ_INTERVAL = 0.02
"""Minimum seconds between two reads of the task."""
_RETRY_DELAY = 1.0
"""Seconds before a failed read is repeated."""
_BUCKET_COUNT = 15
"""Number of buckets. The keep-alive interval is divided among them."""


class EventListener:
    """Position and pending messages of one listener."""

    def __init__(self, event_filter: EventFilter, since: int = 0) -> None:
        self.event_filter = event_filter
        self.position = since
        """Number up to which all matching events have been passed to the listener or read by it."""
        self.is_live = False
        self._delivered_position = since
        """Number up to which all matching events have been taken by `wait_for_messages`."""
        self._pending: list[bytes] = []
        self._is_keepalive_due = False
        self._has_news = asyncio.Event()

    def push(self, seq: int, data: bytes) -> None:
        if not self._pending:
            self._delivered_position = seq - 1
        elif len(self._pending) >= MAX_PENDING_MESSAGES:
            self.fall_behind(self._delivered_position)
            return
        self._pending.append(data)
        self.position = seq
        self._has_news.set()

    def fall_behind(self, position: int) -> None:
        """Drop the pending messages. The listener reads them, and the events after `position`, from the table."""
        self.is_live = False
        self.position = self._delivered_position if self._pending else max(self.position, position)
        self._pending = []
        self._has_news.set()

    def mark_read(self, position: int) -> None:
        self.position = position

    def request_keepalive(self) -> None:
        self._is_keepalive_due = True
        self._has_news.set()

    def end(self) -> None:
        self._has_news.set()

    async def wait_for_messages(self) -> bytes:
        """Return the next messages to send; empty if the listener is not live or has ended."""
        await self._has_news.wait()
        self._has_news.clear()
        messages, is_keepalive_due = self._pending, self._is_keepalive_due
        self._pending, self._is_keepalive_due = [], False
        return b"".join(messages) if messages else KEEPALIVE if is_keepalive_due else b""


class EventFeed:
    """Feed of events to listeners. The engine's thread calls `publish`; everything else runs on the event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, read: ReadStore, *, keepalive_interval: float = KEEPALIVE_INTERVAL
    ) -> None:
        self.is_closed = False
        """Whether the scheduler is stopping."""
        self._loop = loop
        self._read = read
        self._subscribers = Subscribers()
        self._keepalive_timer = KeepAliveTimer(loop, keepalive_interval)
        self._position = 0
        """Number up to which all events have been distributed."""
        self._published_position = 0
        """Number of the last published event. Only the engine sets it."""
        self._pending_starts: deque[int] = deque()
        """Numbers after which there are events to distribute."""
        self._is_wakeup_scheduled = False
        self._has_news = asyncio.Event()
        self._catch_up_lock = asyncio.Lock()
        """Lock that lets one listener at a time read the table."""
        self._task: asyncio.Task[None] | None = None

    def publish(self, events: Sequence[Event], max_seq: int) -> None:
        """Announce committed events, the last of which has the number `max_seq`. Events that no listener wants are
        skipped, because a later listener reads them from the table. Events that were never published are included."""
        start, previous = max_seq - len(events), self._published_position
        self._published_position = max_seq
        if not self._subscribers.has_any:
            return
        if 0 < previous < start or any(map(self._subscribers.may_match, events)):
            self._pending_starts.append(min(start, previous or start))
            if not self._is_wakeup_scheduled:
                self._is_wakeup_scheduled = True
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_wakeup_scheduled = False
        self._has_news.set()

    @contextmanager
    def subscribe(self, listener: EventListener) -> Iterator[None]:
        if self._task is None:
            self._task = self._loop.create_task(self._run())
        self._subscribers.add(listener)
        try:
            with self._keepalive_timer.register(listener):
                yield
        finally:
            self._subscribers.remove(listener)

    async def catch_up(self, listener: EventListener, *, complete_from: int = 0) -> EventSlice:
        """Read the next page for a listener from the table, and make it live if there is no more. If a job is new to
        the listener's chains, it may have had events that were not passed on, so there is another read."""
        event_filter, since = listener.event_filter, listener.position

        def read(reader: Reader) -> tuple[EventSlice, list[tuple[JobId, JobId]]]:
            page = read_events(reader, event_filter, since=since, limit=BATCH_SIZE, complete_from=complete_from)
            return page, reader.events.jobs_of_chains(event_filter.chains)

        async with self._catch_up_lock:
            started = time.monotonic()
            page, members = await self._read(read)
            are_new = [self._subscribers.track_job(job, chain) for job, chain in members]
            listener.mark_read(page.position)
            if page.is_end and page.position >= self._position and not any(are_new):
                listener.is_live = True
            elif not page.is_end:  # a hundred listeners with a day of history take at most half of the time
                await asyncio.sleep(time.monotonic() - started)
        return page

    async def _run(self) -> None:
        has_failed = False
        while not self.is_closed:
            await self._has_news.wait()
            self._has_news.clear()
            try:
                await self._distribute()
                has_failed = False
            except RotaError as error:
                if not has_failed:
                    log.warning("cannot read events, retrying: %s", error.message)
                has_failed = True
                self._has_news.set()
            except Exception:
                log.exception("internal error: cannot distribute events; each stream reads them itself")
                has_failed = True
                self._detach_live_listeners()
            await asyncio.sleep(_RETRY_DELAY if has_failed else _MIN_READ_INTERVAL)

    async def _distribute(self) -> None:
        if not self._keepalive_timer.has_live_listeners:
            self._skip_published()
            return
        starts = self._drain_starts()
        position = max(self._position, min(starts, default=0))
        has_more = bool(starts)
        try:
            while has_more:
                page = await self._read(
                    partial(read_events, event_filter=EventFilter(), since=position, limit=BATCH_SIZE)
                )
                has_more = self._distribute_page(page, position) or not page.is_end
                position = self._position = page.position
        except BaseException:
            self._pending_starts.appendleft(position)
            raise

    def _drain_starts(self) -> list[int]:
        return [self._pending_starts.popleft() for _ in range(len(self._pending_starts))]

    def _skip_published(self) -> None:
        """Skip all published events, because no listener is live. The engine sets the number before it appends a start,
        so the number is read after the starts are drained. In the other order, an event published in between would be
        lost."""
        self._drain_starts()
        self._position = max(self._position, self._published_position)

    def _detach_live_listeners(self) -> None:
        """Let every live listener read the table itself, because the events cannot be distributed. A stream that wants
        the faulty event fails; the others continue."""
        for listener in self._keepalive_timer.live_listeners:
            listener.fall_behind(self._position)
        self._skip_published()

    def _distribute_page(self, page: EventSlice, since: int) -> bool:
        """Pass a page of events on to the live listeners, and return whether it has jobs that are new to the chains."""
        if page.complete_from is not None:  # gc removed events before they were distributed: each listener reports it
            for listener in self._keepalive_timer.live_listeners:
                listener.fall_behind(since)
        are_new = [self._subscribers.track_job(entry.event.job, entry.chain) for entry in page.entries]
        for entry in page.entries:
            message = b""
            for listener in self._subscribers.find_matching(entry):
                if listener.is_live and entry.seq > listener.position:
                    message = message or event_message(entry)
                    listener.push(entry.seq, message)
        return any(are_new)

    def close(self) -> None:
        """End every stream, because the scheduler is stopping."""
        self.is_closed = True
        self._has_news.set()
        self._keepalive_timer.stop()


class Subscribers:
    """Index of the listeners by topic, so that a thousand listeners to other events cost one lookup.

    A listener is indexed under the narrowest part of its filter: the chains of its jobs, or else its group, or else its
    kinds. The whole filter is applied to the listeners that are found there.
    """

    def __init__(self) -> None:
        self._by_topic: dict[Hashable, set[EventListener]] = {}
        self._chain_of_job: dict[JobId, JobId] = {}
        """Chains of the jobs that have listeners."""
        self._jobs_of_chain: dict[JobId, set[JobId]] = {}
        """Known jobs of these chains."""
        self._group_subscriber_count = 0
        """Number of listeners to a group. An event of a job does not have the group of the job."""

    def add(self, listener: EventListener) -> None:
        for topic in _topics_of(listener.event_filter):
            self._by_topic.setdefault(topic, set()).add(listener)
        self._group_subscriber_count += _is_group_filter(listener.event_filter)

    def remove(self, listener: EventListener) -> None:
        for topic in _topics_of(listener.event_filter):
            listeners = self._by_topic[topic]
            listeners.discard(listener)
            if not listeners:
                del self._by_topic[topic]
                if isinstance(topic, int):
                    self._forget_chain(JobId(topic))
        self._group_subscriber_count -= _is_group_filter(listener.event_filter)

    def track_job(self, job: JobId | None, chain: JobId | None) -> bool:
        """Record the chain of a job, and return whether the job is new to a chain with listeners."""
        if job is None or chain is None or job in self._chain_of_job or chain not in self._by_topic:
            return False
        self._chain_of_job[job] = chain
        self._jobs_of_chain.setdefault(chain, set()).add(job)
        return True

    @property
    def has_any(self) -> bool:
        """Whether there are listeners. Thread-safe."""
        return bool(self._by_topic)

    def may_match(self, event: Event) -> bool:
        """Return whether a listener may want the event. Thread-safe."""
        return (
            bool(self._group_subscriber_count)
            or _ANY_KIND in self._by_topic
            or event.kind in self._by_topic
            or event.job in self._chain_of_job
        )

    def find_matching(self, entry: EventEntry) -> Iterator[EventListener]:
        event = entry.event
        for topic in (_ANY_KIND, event.kind, entry.chain, ("group", event.group)):
            for listener in self._by_topic.get(topic, ()):
                if listener.event_filter.matches(entry):
                    yield listener

    def _forget_chain(self, chain: JobId) -> None:
        for job in self._jobs_of_chain.pop(chain, ()):
            del self._chain_of_job[job]


def _is_group_filter(event_filter: EventFilter) -> bool:
    return event_filter.group is not None and not event_filter.chains


def _topics_of(event_filter: EventFilter) -> Collection[Hashable]:
    if event_filter.chains:
        return event_filter.chains
    if event_filter.group is not None:
        return (("group", event_filter.group),)
    return event_filter.kinds or (_ANY_KIND,)


class KeepAliveTimer:
    """Timer of the keep-alives. Each listener is in one bucket, and one bucket is served at a time, so that a thousand
    listeners do not wake up together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float) -> None:
        self._loop = loop
        self._bucket_interval = period / _BUCKET_COUNT
        self._buckets: list[set[EventListener]] = [set() for _ in range(_BUCKET_COUNT)]
        self._timer: asyncio.TimerHandle | None = None

    @property
    def live_listeners(self) -> Iterator[EventListener]:
        return (listener for bucket in self._buckets for listener in bucket if listener.is_live)

    @property
    def has_live_listeners(self) -> bool:
        return any(True for _ in self.live_listeners)

    @contextmanager
    def register(self, listener: EventListener) -> Iterator[None]:
        bucket = min(self._buckets, key=len)
        bucket.add(listener)
        if self._timer is None:
            self._timer = self._loop.call_later(self._bucket_interval, self._tick)
        try:
            yield
        finally:
            bucket.discard(listener)

    def _tick(self) -> None:
        first, *others = self._buckets
        self._buckets = [*others, first]
        for listener in first:
            listener.request_keepalive()
        self._timer = self._loop.call_later(self._bucket_interval, self._tick) if any(self._buckets) else None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for bucket in self._buckets:
            for listener in bucket:
                listener.end()


def event_message(entry: EventEntry) -> bytes:
    return format_message(render_event(entry), event=entry.event.kind, event_id=entry.seq)
