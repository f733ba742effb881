"""Events passed on as they happen: whoever listens, however slowly and from wherever on, gets the table without gap or
repeat."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from engine.test_gc import ALL, collect, collector_of
from harness import Scheduler
from rota.api import event as event_module
from rota.api import feed as feed_module
from rota.api.event import EventsQuery, _page, _stream
from rota.api.feed import Feed, Listener
from rota.api.sse import BEAT, EventStream, Streams
from rota.client.message import Message, Messages
from rota.command.retry import retry
from rota.core.event import Event, Wanted
from rota.core.status import TERMINAL, Status
from rota.errors import Busy, Conflict, StoreError
from rota.ids import GroupId, JobId, show_job
from rota.store import event as event_store
from rota.store.session import Reader
from rota.view.event import piece
from sample import sample

T = TypeVar("T")

PATIENCE = 20.0


class Studio:
    """A scheduler whose events go through a feed; the test decides when anything happens."""

    def __init__(self, scheduler: Scheduler, chance: random.Random, *, beat_every: float = 60) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.looks = 0
        self.trouble: Exception | None = None
        self.feed = Feed(asyncio.get_running_loop(), self.look, beat_every=beat_every)
        scheduler.engine._publish = self.publish

    def publish(self, events: Sequence[Event]) -> None:
        self.feed.publish(events, self.scheduler.session.last_seq)

    async def look(self, view: Callable[[Reader], T]) -> T:
        """Other things happen before it, and between it and whoever asked."""
        await self.let_others()
        self.looks += 1
        if self.trouble is not None:
            raise self.trouble
        with self.scheduler.reader.reading():
            seen = view(self.scheduler.reader)
        await self.let_others()
        return seen

    async def let_others(self) -> None:
        for _ in range(self.chance.randrange(4)):
            await asyncio.sleep(0)

    def table(self, wanted: Wanted, since: int = 0) -> list[int]:
        found, position = [], since
        while True:
            each = piece(self.scheduler.reader, wanted, since=position, limit=1000)
            found += [entry.seq for entry in each.entries]
            if each.is_end:
                return found
            position = each.position


class Guest:
    """Somebody who listens, at his own pace."""

    def __init__(self, studio: Studio, wanted: Wanted, since: int | None, *, pace: int = 0) -> None:
        self.heard: list[Message] = []
        self.beats = 0
        self.wanted = wanted
        self._since = since
        self._studio = studio
        self._pace = pace
        context: Any = SimpleNamespace(feed=studio.feed, look=studio.look)
        self._stream = _stream(context, wanted, since)
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        messages = Messages()
        async with aclosing(self._stream) as stream:
            async for told in stream:
                self.beats += told == BEAT
                self.heard += messages.feed(told)
                for _ in range(self._studio.chance.randrange(self._pace + 1)):
                    await asyncio.sleep(0.0005)

    @property
    def numbers(self) -> list[int]:
        return [int(message.id or 0) for message in self.heard if message.event not in ("begin", "reset")]

    @property
    def begun(self) -> int | None:
        """The number after which he hears everything; none while he does not know."""
        if self._since is not None:
            return self._since
        return int(self.heard[0].json()["since"]) if self.heard else None

    @property
    def is_live(self) -> bool:
        listeners = [each for each in self._studio.feed._wheel.live if each.wanted is self.wanted]
        return self.begun is not None and bool(listeners)

    async def hears_all(self) -> None:
        """Until what he has heard is what the table has."""

        def is_so() -> bool:
            return self.begun is not None and self.numbers == self._studio.table(self.wanted, self.begun)

        await until(is_so, f"{self.wanted}, heard from {self.begun} on: {self.numbers}, and no more")

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(look: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while not look():
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come about"
        await asyncio.sleep(0.001)


def play(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(act())


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "_BREATH", 0.0)
    monkeypatch.setattr(feed_module, "_RETRY_AFTER", 0.0)


def _happen(scheduler: Scheduler, chance: random.Random) -> None:
    """Something, anything."""
    jobs = scheduler.reader.list_jobs(list(Status), limit=1000, only={})
    started = set(scheduler.started())
    running = [job for job in jobs if job in started and scheduler.status(job) not in TERMINAL]
    failed = [job for job in jobs if scheduler.status(job) is Status.FAILED]
    match chance.randrange(6):
        case 0 | 1:
            scheduler.submit(type=chance.choice(["story", "plan"]), retries=chance.choice([0, 2]))
        case 2 | 3 if running:
            scheduler.end(chance.choice(running), chance.choice([0, 1]))
        case 4 if failed:
            with suppress(Conflict):
                scheduler.do(lambda work: retry(work, show_job(failed[0]), actor="tester"))
        case _:
            scheduler.submit_group({}, {}, mode="parallel")
    scheduler.clock.advance(seconds=30)
    scheduler.turn()


def _anything(scheduler: Scheduler, chance: random.Random) -> Wanted:
    chains = frozenset(scheduler.job(JobId(chance.randint(1, 3))).chain for _ in range(2))
    return chance.choice(
        [
            Wanted(),
            Wanted(kinds=frozenset({"job.failed", "job.retried", "group.submitted"})),
            Wanted(chains=chains),
            Wanted(chains=frozenset({JobId(1)}), kinds=frozenset({"job.submitted", "job.dispatched"})),
            Wanted(type="story"),
            Wanted(group=GroupId(1)),
        ]
    )


@pytest.mark.parametrize("seed", range(sample(4)))
def test_nobody_misses_anything_nor_hears_it_twice(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Guests come and go, some too slow for what happens; each hears exactly what the table has of what he wants."""
    monkeypatch.setattr(feed_module, "MOST_WAITING", 3)
    monkeypatch.setattr(feed_module, "PIECE", 4)
    chance = random.Random(seed)
    scheduler.set_pools(**{"global": 3})
    scheduler.submit(retries=2)
    scheduler.submit_group({}, {}, mode="parallel")

    async def act() -> None:
        studio = Studio(scheduler, chance)
        guests: list[Guest] = []
        for _ in range(60):
            if chance.random() < 0.3:
                since = chance.choice([None, 0, 2, scheduler.reader.head()])
                guests.append(Guest(studio, _anything(scheduler, chance), since, pace=chance.choice([0, 0, 5, 30])))
            if guests and chance.random() < 0.05:
                await guests.pop(chance.randrange(len(guests))).leave()
            for _ in range(chance.randrange(3)):
                _happen(scheduler, chance)
            await studio.let_others()
        await asyncio.gather(*(guest.hears_all() for guest in guests))
        studio.feed.close()
        await asyncio.gather(*(guest.task for guest in guests))
        assert not studio.feed._audience.is_any

    play(act)


def test_a_retry_that_comes_while_a_guest_arrives_is_heard(scheduler: Scheduler) -> None:
    """Its chain is wanted, and the job is new to everybody at whatever moment it comes."""
    for seed in range(sample(12)):
        job = scheduler.submit(retries=0)
        scheduler.end(job, 1)
        chance = random.Random(seed)

        async def act(job: JobId = job, chance: random.Random = chance) -> None:
            studio = Studio(scheduler, chance)
            guest = Guest(studio, Wanted(chains=frozenset({job})), None)
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            scheduler.do(lambda work: retry(work, show_job(job), actor="tester"))
            await studio.let_others()
            scheduler.end(scheduler.started()[-1], 1)
            await guest.hears_all()
            studio.feed.close()
            await guest.task

        play(act)


def test_what_is_published_while_nobody_is_live_is_read_by_who_is_about_to_be(scheduler: Scheduler) -> None:
    """The engine's thread publishes in the middle of the task's step, and the guest has looked at the table before."""

    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        scheduler.submit()
        listener = Listener(Wanted(), scheduler.reader.head())
        comes = [scheduler.submit]

        class Interrupted(deque[int]):
            def __len__(self) -> int:
                if comes:
                    comes.pop()()
                return super().__len__()

        async def look(view: Callable[[Reader], T]) -> T:
            seen = await studio.look(view)
            if comes:
                await studio.feed._pass_on()
            return seen

        studio.feed._look = look
        studio.feed._starts = Interrupted()
        begun, heard = listener.position, list[int]()
        with studio.feed.listening(listener):
            while not listener.is_live:
                heard += [entry.seq for entry in (await studio.feed.catch_up(listener)).entries]
        assert not comes
        assert heard == studio.table(Wanted(), begun) != []
        studio.feed.close()

    play(act)


def test_who_wants_other_things_costs_no_look(scheduler: Scheduler) -> None:
    other = scheduler.submit()

    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        wants = (Wanted(chains=frozenset({other})), Wanted(kinds=frozenset({"breaker.opened"})))
        guests = [Guest(studio, wanted, None) for wanted in wants for _ in range(10)]
        await until(lambda: sum(1 for _ in studio.feed._wheel.live) == len(guests), "all of them live")
        before = studio.looks
        for _ in range(20):
            scheduler.submit()
            await asyncio.sleep(0.001)
        assert studio.looks == before
        scheduler.end(other)
        await asyncio.gather(*(guest.hears_all() for guest in guests))
        assert studio.looks - before < 5, "one look for all of them, not one each"
        assert [len(guest.numbers) for guest in guests] == [1] * 10 + [0] * 10
        studio.feed.close()
        await asyncio.gather(*(guest.task for guest in guests))

    play(act)


def test_who_does_not_take_keeps_nothing_and_holds_up_nobody(scheduler: Scheduler) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        slow, quick = Listener(Wanted()), Guest(studio, Wanted(), 0)
        with studio.feed.listening(slow):
            while not slow.is_live:
                slow.has_read((await studio.feed.catch_up(slow)).position)
            begun = slow.position
            for _ in range(feed_module.MOST_WAITING):
                scheduler.submit()
                scheduler.pause()
                await asyncio.sleep(0)
            await quick.hears_all()
            assert slow not in studio.feed._wheel.live
            assert slow._waiting == []
            found = await studio.feed.catch_up(slow)
            assert [entry.seq for entry in found.entries] == studio.table(Wanted(), begun)[: feed_module.PIECE]
        studio.feed.close()
        await quick.task

    play(act)


def test_what_was_collected_before_it_could_be_told_is_said_to_be_missing(scheduler: Scheduler) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        guest = Guest(studio, Wanted(), None)
        await until(lambda: guest.is_live, "live")
        scheduler.end(scheduler.submit())
        collect(collector_of(scheduler), ALL)
        await until(lambda: any(message.event == "gc.removed" for message in guest.heard), "the collection")
        assert [message.event for message in guest.heard] == ["begin", "reset", "gc.removed"]
        reset = guest.heard[1].json()
        assert reset == {"since": guest.begun, "complete_from": scheduler.reader.events_from()}
        scheduler.submit()
        await until(lambda: len(guest.heard) > 4, "what comes after it")
        assert [message.event for message in guest.heard[3:]] == ["job.submitted", "job.dispatched"]
        studio.feed.close()
        await guest.task

    play(act)


def test_a_store_that_cannot_be_read_is_asked_again(scheduler: Scheduler, caplog: pytest.LogCaptureFixture) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        guest = Guest(studio, Wanted(), 0)
        await until(lambda: guest.is_live, "live")
        studio.trouble = StoreError("away")
        scheduler.submit()
        await until(lambda: "away" in caplog.text, "a word in the log")
        studio.trouble = None
        await guest.hears_all()
        assert caplog.text.count("away") == 1, "said once, however often it is tried"
        studio.feed.close()
        await guest.task

    play(act)


def test_what_cannot_be_passed_on_ends_nothing(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        guests = [Guest(studio, Wanted(), 0), Guest(studio, Wanted(type="story"), None)]
        await until(lambda: all(guest.is_live for guest in guests), "live")
        with monkeypatch.context() as broken:
            broken.setattr(feed_module, "event_message", lambda _entry: 1 / 0)
            scheduler.submit(type="story")
            await until(lambda: "ZeroDivisionError" in caplog.text, "a word in the log")
        await asyncio.gather(*(guest.hears_all() for guest in guests))
        await until(lambda: all(guest.is_live for guest in guests), "live again")
        scheduler.submit(type="story")
        await asyncio.gather(*(guest.hears_all() for guest in guests))
        assert caplog.text.count("cannot be passed on") == 1
        studio.feed.close()
        await asyncio.gather(*(guest.task for guest in guests))

    play(act)


def test_what_was_never_published_is_told_with_what_is(scheduler: Scheduler) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        job = scheduler.submit()
        guest = Guest(studio, Wanted(chains=frozenset({job})), None)
        await until(lambda: guest.is_live, "live")
        scheduler.engine._publish = lambda _events: None
        scheduler.end(job)
        scheduler.engine._publish = studio.publish
        scheduler.submit()
        await guest.hears_all()
        assert guest.numbers
        studio.feed.close()
        await guest.task

    play(act)


def test_heartbeats_come_in_silence_and_end_with_the_last_guest(scheduler: Scheduler) -> None:
    async def act() -> None:
        studio = Studio(scheduler, random.Random(0), beat_every=0.03)
        guests = [Guest(studio, Wanted(), None) for _ in range(40)]
        await until(lambda: all(guest.beats >= 3 for guest in guests), "three heartbeats each")
        assert all(guest.numbers == [] for guest in guests)
        for guest in guests:
            await guest.leave()
        await until(lambda: studio.feed._wheel._timer is None, "no timer without a listener")

    play(act)


def test_so_many_streams_and_no_more() -> None:
    async def nothing() -> Any:
        yield b""

    streams = Streams(most=2)
    EventStream(nothing(), streams)
    with streams.another(), streams.another(), pytest.raises(Busy, match="2 streams are open"):
        EventStream(nothing(), streams)
    EventStream(nothing(), streams)


def test_a_page_that_finds_little_goes_through_so_much_and_says_where_to_go_on(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_store, "_SPAN", 2)
    monkeypatch.setattr(event_module, "_MOST_READS", 3)
    for _ in range(10):
        scheduler.submit()
    scheduler.submit_group({})
    wanted = Wanted(kinds=frozenset({"group.submitted"}))

    async def act() -> None:
        studio = Studio(scheduler, random.Random(0))
        context: Any = SimpleNamespace(feed=studio.feed, look=studio.look)
        first = await _page(context, wanted, 0, EventsQuery(wait=60.0))
        assert (first.events, first.next, first.position) == ([], 6, 6), "it is not waited while there is more to read"
        found, since = list[int](), first.next
        while since is not None:
            page = await _page(context, wanted, since, EventsQuery())
            found += [event.seq for event in page.events]
            since = page.next
        assert found == studio.table(wanted) != []

    play(act)
