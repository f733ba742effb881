"""Event feed: every listener gets the events of the table without a gap or repeat, from any start and at any speed."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from rota.client.sse import SseDecoder, SseMessage
from rota.db import events as db_events
from rota.db.session import Reader
from rota.errors import Conflict, StoreError, TooManyConnections
from rota.events import endpoints, feed
from rota.events.endpoints import EventsQuery, _read_page_or_wait, _stream
from rota.events.feed import EventFeed, EventListener
from rota.events.queries import read_events
from rota.http.sse import KEEPALIVE, EventStream, StreamLimit
from rota.ids import GroupId, JobId, format_job_id
from rota.jobs.retry import retry
from rota.kernel.events import Event, EventFilter
from rota.kernel.status import TERMINAL, Status
from tests.harness import Scheduler
from tests.retention.test_collector import ALL, collect, collector_of
from tests.sample import sample

T = TypeVar("T")

TIMEOUT = 20.0


class FeedHarness:
    """Scheduler whose events go through a feed. The test decides when events happen."""

    def __init__(self, scheduler: Scheduler, rng: random.Random, *, keepalive_interval: float = 60) -> None:
        self.scheduler = scheduler
        self.rng = rng
        self.read_count = 0
        self.read_error: Exception | None = None
        self.feed = EventFeed(asyncio.get_running_loop(), self.read, keepalive_interval=keepalive_interval)
        scheduler.engine._publish = self.publish

    def publish(self, events: Sequence[Event]) -> None:
        self.feed.publish(events, self.scheduler.session.events.last_seq)

    async def read(self, view: Callable[[Reader], T]) -> T:
        """Run a view. Other tasks can run before it, and before its result is used."""
        await self.run_other_tasks()
        self.read_count += 1
        if self.read_error is not None:
            raise self.read_error
        with self.scheduler.reader.read_transaction():
            result = view(self.scheduler.reader)
        await self.run_other_tasks()
        return result

    async def run_other_tasks(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await asyncio.sleep(0)

    def numbers_in_table(self, event_filter: EventFilter, since: int = 0) -> list[int]:
        numbers, position = [], since
        while True:
            page = read_events(self.scheduler.reader, event_filter, since=position, limit=1000)
            numbers += [entry.seq for entry in page.entries]
            if page.is_end:
                return numbers
            position = page.position


class StreamClient:
    """Client of an event stream that reads at its own speed."""

    def __init__(
        self, harness: FeedHarness, event_filter: EventFilter, since: int | None, *, max_delay_steps: int = 0
    ) -> None:
        self.messages: list[SseMessage] = []
        self.keepalive_count = 0
        self.event_filter = event_filter
        self._since = since
        self._harness = harness
        self._max_delay_steps = max_delay_steps
        context: Any = SimpleNamespace(feed=harness.feed, read=harness.read)
        self._stream = _stream(context, event_filter, since)
        self.task = asyncio.create_task(self._read_stream())

    async def _read_stream(self) -> None:
        decoder = SseDecoder()
        async with aclosing(self._stream) as stream:
            async for data in stream:
                self.keepalive_count += data == KEEPALIVE
                self.messages += decoder.feed(data)
                for _ in range(self._harness.rng.randrange(self._max_delay_steps + 1)):
                    await asyncio.sleep(0.0005)

    @property
    def numbers(self) -> list[int]:
        return [int(message.id or 0) for message in self.messages if message.event not in ("begin", "reset")]

    @property
    def start(self) -> int | None:
        """Number after which the client gets all events; None until the client knows it."""
        if self._since is not None:
            return self._since
        return int(self.messages[0].json()["since"]) if self.messages else None

    @property
    def is_live(self) -> bool:
        listeners = [
            listener
            for listener in self._harness.feed._keepalive_timer.live_listeners
            if listener.event_filter is self.event_filter
        ]
        return self.start is not None and bool(listeners)

    async def wait_for_all(self) -> None:
        """Wait until the client has received exactly the events in the table."""

        def is_complete() -> bool:
            return self.start is not None and self.numbers == self._harness.numbers_in_table(
                self.event_filter, self.start
            )

        await until(is_complete, f"{self.event_filter}: all events after {self.start}, not {self.numbers}")

    async def disconnect(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(predicate: Callable[[], object], description: str) -> None:
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    while not predicate():
        assert asyncio.get_running_loop().time() < deadline, f"timeout while waiting for: {description}"
        await asyncio.sleep(0.001)


def run_async(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(act())


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_MIN_READ_INTERVAL", 0.0)
    monkeypatch.setattr(feed, "_RETRY_DELAY", 0.0)


def _random_operation(scheduler: Scheduler, rng: random.Random) -> None:
    jobs = scheduler.reader.jobs.list_ids(list(Status), limit=1000, filters={})
    started = set(scheduler.started_jobs())
    running = [job for job in jobs if job in started and scheduler.status(job) not in TERMINAL]
    failed = [job for job in jobs if scheduler.status(job) is Status.FAILED]
    match rng.randrange(6):
        case 0 | 1:
            scheduler.submit(type=rng.choice(["story", "plan"]), retries=rng.choice([0, 2]))
        case 2 | 3 if running:
            scheduler.end_run(rng.choice(running), rng.choice([0, 1]))
        case 4 if failed:
            with suppress(Conflict):
                scheduler.run_request(lambda tx: retry(tx, format_job_id(failed[0]), actor="tester"))
        case _:
            scheduler.submit_group({}, {}, mode="parallel")
    scheduler.clock.advance(seconds=30)
    scheduler.run_turns()


def _random_filter(scheduler: Scheduler, rng: random.Random) -> EventFilter:
    chains = frozenset(scheduler.job(JobId(rng.randint(1, 3))).chain for _ in range(2))
    return rng.choice(
        [
            EventFilter(),
            EventFilter(kinds=frozenset({"job.failed", "job.retried", "group.submitted"})),
            EventFilter(chains=chains),
            EventFilter(chains=frozenset({JobId(1)}), kinds=frozenset({"job.submitted", "job.dispatched"})),
            EventFilter(type="story"),
            EventFilter(group=GroupId(1)),
        ]
    )


@pytest.mark.parametrize("seed", range(sample(4)))
def test_listeners_receive_every_event_exactly_once(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Clients connect and disconnect, and some are too slow. Each receives exactly its events of the table."""
    monkeypatch.setattr(feed, "MAX_PENDING_MESSAGES", 3)
    monkeypatch.setattr(feed, "BATCH_SIZE", 4)
    rng = random.Random(seed)
    scheduler.set_pools(**{"global": 3})
    scheduler.submit(retries=2)
    scheduler.submit_group({}, {}, mode="parallel")

    async def act() -> None:
        harness = FeedHarness(scheduler, rng)
        clients: list[StreamClient] = []
        for _ in range(60):
            if rng.random() < 0.3:
                since = rng.choice([None, 0, 2, scheduler.reader.events.head_seq()])
                event_filter, delay_steps = _random_filter(scheduler, rng), rng.choice([0, 0, 5, 30])
                clients.append(StreamClient(harness, event_filter, since, max_delay_steps=delay_steps))
            if clients and rng.random() < 0.05:
                await clients.pop(rng.randrange(len(clients))).disconnect()
            for _ in range(rng.randrange(3)):
                _random_operation(scheduler, rng)
            await harness.run_other_tasks()
        await asyncio.gather(*(client.wait_for_all() for client in clients))
        harness.feed.close()
        await asyncio.gather(*(client.task for client in clients))
        assert not harness.feed._subscribers.has_any

    run_async(act)


def test_retry_submitted_while_a_listener_joins_is_received(scheduler: Scheduler) -> None:
    """The filter selects the chain, and the retry is new to the feed whenever it is submitted."""
    for seed in range(sample(12)):
        job = scheduler.submit(retries=0)
        scheduler.end_run(job, 1)
        rng = random.Random(seed)

        async def act(job: JobId = job, rng: random.Random = rng) -> None:
            harness = FeedHarness(scheduler, rng)
            client = StreamClient(harness, EventFilter(chains=frozenset({job})), None)
            for _ in range(rng.randrange(12)):
                await asyncio.sleep(0)
            scheduler.run_request(lambda tx: retry(tx, format_job_id(job), actor="tester"))
            await harness.run_other_tasks()
            scheduler.end_run(scheduler.started_jobs()[-1], 1)
            await client.wait_for_all()
            harness.feed.close()
            await client.task

        run_async(act)


def test_event_published_during_catch_up_is_not_lost(scheduler: Scheduler) -> None:
    """The engine's thread publishes in the middle of a step of the task, after the listener has read the table."""

    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        scheduler.submit()
        listener = EventListener(EventFilter(), scheduler.reader.events.head_seq())
        interruptions = [scheduler.submit]

        class InterruptedDeque(deque[int]):
            def __len__(self) -> int:
                if interruptions:
                    interruptions.pop()()
                return super().__len__()

        async def read(view: Callable[[Reader], T]) -> T:
            result = await harness.read(view)
            if interruptions:
                await harness.feed._distribute()
            return result

        harness.feed._read = read
        harness.feed._pending_starts = InterruptedDeque()
        start, received = listener.position, list[int]()
        with harness.feed.subscribe(listener):
            while not listener.is_live:
                received += [entry.seq for entry in (await harness.feed.catch_up(listener)).entries]
        assert not interruptions
        assert received == harness.numbers_in_table(EventFilter(), start) != []
        harness.feed.close()

    run_async(act)


def test_unmatched_events_cause_no_read(scheduler: Scheduler) -> None:
    other = scheduler.submit()

    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        filters = (EventFilter(chains=frozenset({other})), EventFilter(kinds=frozenset({"breaker.opened"})))
        clients = [StreamClient(harness, event_filter, None) for event_filter in filters for _ in range(10)]
        await until(
            lambda: sum(1 for _ in harness.feed._keepalive_timer.live_listeners) == len(clients), "all clients live"
        )
        previous_count = harness.read_count
        for _ in range(20):
            scheduler.submit()
            await asyncio.sleep(0.001)
        assert harness.read_count == previous_count
        scheduler.end_run(other)
        await asyncio.gather(*(client.wait_for_all() for client in clients))
        assert harness.read_count - previous_count < 5, "one read for all clients, not one for each"
        assert [len(client.numbers) for client in clients] == [1] * 10 + [0] * 10
        harness.feed.close()
        await asyncio.gather(*(client.task for client in clients))

    run_async(act)


def test_slow_listener_keeps_no_messages_and_delays_no_other(scheduler: Scheduler) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        slow, quick = EventListener(EventFilter()), StreamClient(harness, EventFilter(), 0)
        with harness.feed.subscribe(slow):
            while not slow.is_live:
                slow.mark_read((await harness.feed.catch_up(slow)).position)
            start = slow.position
            for _ in range(feed.MAX_PENDING_MESSAGES):
                scheduler.submit()
                scheduler.pause()
                await asyncio.sleep(0)
            await quick.wait_for_all()
            assert slow not in harness.feed._keepalive_timer.live_listeners
            assert slow._pending == []
            page = await harness.feed.catch_up(slow)
            expected = harness.numbers_in_table(EventFilter(), start)[: feed.BATCH_SIZE]
            assert [entry.seq for entry in page.entries] == expected
        harness.feed.close()
        await quick.task

    run_async(act)


def test_events_removed_before_delivery_are_reported_by_a_reset(scheduler: Scheduler) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        client = StreamClient(harness, EventFilter(), None)
        await until(lambda: client.is_live, "a live client")
        scheduler.end_run(scheduler.submit())
        collect(collector_of(scheduler), ALL)
        await until(
            lambda: any(message.event == "gc.removed" for message in client.messages), "the event of the collection"
        )
        assert [message.event for message in client.messages] == ["begin", "reset", "gc.removed"]
        reset = client.messages[1].json()
        assert reset == {"since": client.start, "complete_from": scheduler.reader.events.first_seq()}
        scheduler.submit()
        await until(lambda: len(client.messages) > 4, "later events")
        assert [message.event for message in client.messages[3:]] == ["job.submitted", "job.dispatched"]
        harness.feed.close()
        await client.task

    run_async(act)


def test_failed_read_is_retried_and_logged_once(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        client = StreamClient(harness, EventFilter(), 0)
        await until(lambda: client.is_live, "a live client")
        harness.read_error = StoreError("away")
        scheduler.submit()
        await until(lambda: "away" in caplog.text, "a log message")
        harness.read_error = None
        await client.wait_for_all()
        assert caplog.text.count("away") == 1, "consecutive failures are logged once"
        harness.feed.close()
        await client.task

    run_async(act)


def test_failed_distribution_ends_no_stream(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        clients = [StreamClient(harness, EventFilter(), 0), StreamClient(harness, EventFilter(type="story"), None)]
        await until(lambda: all(client.is_live for client in clients), "a live client")
        with monkeypatch.context() as broken:
            broken.setattr(feed, "event_message", lambda _entry: 1 / 0)
            scheduler.submit(type="story")
            await until(lambda: "ZeroDivisionError" in caplog.text, "a log message")
        await asyncio.gather(*(client.wait_for_all() for client in clients))
        await until(lambda: all(client.is_live for client in clients), "live clients again")
        scheduler.submit(type="story")
        await asyncio.gather(*(client.wait_for_all() for client in clients))
        assert caplog.text.count("cannot distribute events") == 1
        harness.feed.close()
        await asyncio.gather(*(client.task for client in clients))

    run_async(act)


def test_unpublished_event_is_delivered_with_the_next_published_one(scheduler: Scheduler) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        job = scheduler.submit()
        client = StreamClient(harness, EventFilter(chains=frozenset({job})), None)
        await until(lambda: client.is_live, "a live client")
        scheduler.engine._publish = lambda _events: None
        scheduler.end_run(job)
        scheduler.engine._publish = harness.publish
        scheduler.submit()
        await client.wait_for_all()
        assert client.numbers
        harness.feed.close()
        await client.task

    run_async(act)


def test_keepalives_are_sent_while_idle_and_end_with_the_last_listener(scheduler: Scheduler) -> None:
    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0), keepalive_interval=0.03)
        clients = [StreamClient(harness, EventFilter(), None) for _ in range(40)]
        await until(lambda: all(client.keepalive_count >= 3 for client in clients), "three keep-alives for each client")
        assert all(client.numbers == [] for client in clients)
        for client in clients:
            await client.disconnect()
        await until(lambda: harness.feed._keepalive_timer._timer is None, "no timer without a listener")

    run_async(act)


def test_stream_beyond_the_limit_is_refused() -> None:
    async def empty_stream() -> Any:
        yield b""

    streams = StreamLimit(max_streams=2)
    EventStream(empty_stream(), streams)
    with streams.track(), streams.track(), pytest.raises(TooManyConnections, match="2 streams are open"):
        EventStream(empty_stream(), streams)
    EventStream(empty_stream(), streams)


def test_page_with_few_matches_ends_after_a_bounded_number_of_reads(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db_events, "_MAX_SEQ_SPAN", 2)
    monkeypatch.setattr(endpoints, "_MAX_READS_PER_PAGE", 3)
    for _ in range(10):
        scheduler.submit()
    scheduler.submit_group({})
    event_filter = EventFilter(kinds=frozenset({"group.submitted"}))

    async def act() -> None:
        harness = FeedHarness(scheduler, random.Random(0))
        context: Any = SimpleNamespace(feed=harness.feed, read=harness.read)
        first = await _read_page_or_wait(context, event_filter, 0, EventsQuery(wait=60.0))
        assert (first.events, first.next, first.position) == ([], 6, 6), "no wait while there is more to read"
        numbers, since = list[int](), first.next
        while since is not None:
            page = await _read_page_or_wait(context, event_filter, since, EventsQuery())
            numbers += [event.seq for event in page.events]
            since = page.next
        assert numbers == harness.numbers_in_table(event_filter) != []

    run_async(act)
