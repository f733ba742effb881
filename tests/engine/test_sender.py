"""The sender on the real store, with receivers that the test plays. The clock is the test's, and nothing sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from engine.test_webhook import add, deliveries, run_one
from harness import Scheduler
from rota.core.place import MOST_AT_ONCE, MOST_OF_ONE, Standing
from rota.core.webhook import DeliveryState, HookPolicy
from rota.engine import sender as module
from rota.engine.sender import Sender
from rota.engine.work import Work
from rota.errors import StorageFull, StoreError, Unavailable
from rota.receiver.port import Answer
from rota.store.database import OutcomeUnknown
from rota.store.session import Reader

T = TypeVar("T")

OK = Answer(status=204)
NO = Answer(status=500, error="answered 500")


class Receivers:
    """All there are: each answers as its URL says."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Mapping[str, str], bytes]] = []
        self.answers: dict[str, list[Answer]] = {}
        """In turn; then, and without any, it takes everything."""
        self.hang: set[str] = set()
        self.under_way: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, _policy: HookPolicy) -> Answer:
        self.under_way[url] = self.under_way.get(url, 0) + 1
        self.most[url] = max(self.most.get(url, 0), self.under_way[url])
        async with self._changed:
            self.heard.append((url, headers, body))
            self._changed.notify_all()
        try:
            if url in self.hang:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            given = self.answers.get(url) or [OK]
            return given.pop(0) if len(given) > 1 else given[0]
        finally:
            self.under_way[url] -= 1

    async def until(self, is_enough: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(is_enough)

    def urls(self) -> list[str]:
        return [url for url, _, _ in self.heard]


class Desk:
    """A sender between the store and the receivers; `booked` is set at every turn it asks for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.post = Receivers()
        self.trouble: list[Exception] = []
        """Of the next bookings."""
        self.blindness: list[Exception] = []
        """Of the next looks."""
        self.turns = asyncio.Condition()
        self.looks = 0
        self.sender = Sender(
            clock=scheduler.clock, look=self.look, perform=self.perform, post=self.post,
            policy=lambda: scheduler.settings.webhooks,
        )  # fmt: skip
        scheduler.engine.outbox.tell = self.sender.wake

    async def look(self, view: Callable[[Reader], T], /) -> T:
        self.looks += 1
        if self.blindness:
            raise self.blindness.pop(0)
        with self.scheduler.reader.reading():
            return view(self.scheduler.reader)

    async def perform(self, act: Callable[[Work], T], /) -> T:
        if self.trouble:
            raise self.trouble.pop(0)
        done: T = self.scheduler.do(act)
        async with self.turns:
            self.turns.notify_all()
        return done

    async def until(self, state: DeliveryState, count: int) -> None:
        def is_so() -> bool:
            return len(deliveries(self.scheduler, state=state)) >= count

        async with asyncio.timeout(30), self.turns:
            await self.turns.wait_for(is_so)

    async def tried(self, delivery: int, times: int) -> None:
        def is_so() -> bool:
            return any(each.id == delivery and each.tries >= times for each in deliveries(self.scheduler))

        async with asyncio.timeout(30), self.turns:
            await self.turns.wait_for(is_so)


def play(scheduler: Scheduler, story: Callable[[Desk], Awaitable[Any]]) -> Desk:
    async def run() -> Desk:
        desk = Desk(scheduler)
        async with sending(desk):
            await story(desk)
        return desk

    return asyncio.run(run())


@asynccontextmanager
async def sending(desk: Desk) -> Any:
    desk.sender.start()
    try:
        yield
    finally:
        await desk.sender.close()


A, B = "http://127.0.0.1:1/a", "http://127.0.0.1:2/b"


def test_a_message_is_brought_signed_and_booked(scheduler: Scheduler) -> None:
    made = add(scheduler, A)

    async def story(desk: Desk) -> None:
        run_one(scheduler)  # the turn wakes it
        await desk.until(DeliveryState.DELIVERED, 1)

    desk = play(scheduler, story)
    ((url, headers, body),) = desk.post.heard
    (only,) = deliveries(scheduler)
    assert (url, headers["webhook-id"], only.tries) == (A, only.message, 1)
    assert scheduler.reader.payload(only.id).encode() == body
    assert headers["webhook-timestamp"] == str(int(scheduler.clock.now().timestamp()))
    assert headers["webhook-signature"].startswith("v1,")
    assert (
        Verifier(made.secret).sign(only.message, scheduler.clock.now(), body.decode()) == headers["webhook-signature"]
    )


def test_dec_009_a_message_that_fails_is_tried_at_its_times_with_one_id(scheduler: Scheduler) -> None:
    add(scheduler, A)
    run_one(scheduler)

    async def story(desk: Desk) -> None:
        desk.post.answers[A] = [NO, NO, OK]
        for tried, seconds in ((1, 5), (2, 10), (3, 0)):
            await desk.tried(1, tried)
            scheduler.clock.advance(seconds=seconds)
            desk.sender.wake()

    desk = play(scheduler, story)
    assert len({headers["webhook-id"] for _, headers, _ in desk.post.heard}) == 1
    assert len({headers["webhook-timestamp"] for _, headers, _ in desk.post.heard}) == 3
    assert [(each.state, each.tries) for each in deliveries(scheduler)] == [(DeliveryState.DELIVERED, 3)]


def test_who_hangs_holds_up_nobody(scheduler: Scheduler) -> None:
    add(scheduler, A)
    add(scheduler, B)
    for _ in range(20):
        run_one(scheduler)

    async def story(desk: Desk) -> None:
        desk.post.hang.add(A)
        await desk.until(DeliveryState.DELIVERED, 20)
        before = len(scheduler.started())
        for _ in range(200):  # dispatch does not know of it
            run_one(scheduler)
        assert len(scheduler.started()) == before + 200
        await desk.until(DeliveryState.DELIVERED, 220)

    desk = play(scheduler, story)
    assert desk.post.most == {A: MOST_OF_ONE[Standing.NEW], B: MOST_OF_ONE[Standing.TOOK]}
    assert desk.post.urls().count(A) == 1
    assert desk.looks < 400


def test_twenty_that_hang_starve_nobody(scheduler: Scheduler) -> None:
    """Neither before anything is known of them nor after they have failed; and who is new finds room too."""
    urls = [f"http://127.0.0.1:{port}/" for port in range(1, 22)]
    good, bad = urls[8], {*urls[:8], *urls[9:]}  # webhook-9 comes behind all the others
    for url in urls:
        add(scheduler, url)
    for _ in range(10):
        run_one(scheduler)

    async def story(desk: Desk) -> None:
        post = desk.post
        post.hang |= bad
        await desk.until(DeliveryState.DELIVERED, 10)
        assert [post.urls().count(url) for url in bad] == [1] * 20

    play(scheduler, story)

    async def later(desk: Desk) -> None:
        post = desk.post
        post.answers = {url: [NO] for url in bad}
        async with asyncio.timeout(30), desk.turns:
            await desk.turns.wait_for(lambda: all(each.tries for each in deliveries(scheduler)))
        post.hang |= bad
        scheduler.clock.advance(seconds=6)
        desk.sender.wake()
        most = MOST_AT_ONCE[Standing.FAILED]
        await post.until(lambda: sum(post.under_way[url] for url in bad) == most)
        for _ in range(10):
            run_one(scheduler)
        await desk.until(DeliveryState.DELIVERED, 20)
        add(scheduler, "http://127.0.0.1:99/")
        run_one(scheduler)
        await desk.until(DeliveryState.DELIVERED, 22)
        assert sorted(set(post.urls()) - bad) == [good, "http://127.0.0.1:99/"]
        assert sum(post.under_way[url] for url in bad) == most
        assert max(post.most[url] for url in bad) == MOST_OF_ONE[Standing.FAILED]

    play(scheduler, later)


def test_with_nothing_to_send_it_does_nothing(scheduler: Scheduler) -> None:
    async def story(desk: Desk) -> None:
        for _ in range(20):
            run_one(scheduler)
            await asyncio.sleep(0)

    assert play(scheduler, story).looks <= 1


def test_what_was_under_way_at_the_end_is_tried_again_at_the_next_start(scheduler: Scheduler) -> None:
    add(scheduler, A)
    run_one(scheduler)

    async def first(desk: Desk) -> None:
        desk.post.hang.add(A)
        await desk.post.until(lambda: desk.post.urls() == [A])

    one = play(scheduler, first)
    assert [(each.state, each.tries) for each in deliveries(scheduler)] == [(DeliveryState.PENDING, 0)]
    scheduler.crash()
    other = play(scheduler, lambda desk: desk.until(DeliveryState.DELIVERED, 1))
    assert one.post.heard[0][1]["webhook-id"] == other.post.heard[0][1]["webhook-id"]


TROUBLE = (StorageFull("the disk is full"), StoreError("the database is away"), KeyError("a defect"), ValueError("two"))


def test_what_cannot_be_booked_is_not_sent_over_and_over(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_TRY_AGAIN", 0.0)
    add(scheduler, A)

    async def story(desk: Desk) -> None:
        desk.trouble = [*TROUBLE]
        run_one(scheduler)
        await desk.until(DeliveryState.DELIVERED, 1)

    desk = play(scheduler, story)
    assert (desk.post.urls(), desk.trouble) == ([A], [])
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == [
        "messages cannot be booked, which is tried again: the disk is full"
    ]


def test_what_cannot_be_looked_up_is_looked_up_again(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: nobody else would start the sender again."""
    monkeypatch.setattr(module, "_TRY_AGAIN", 0.0)
    add(scheduler, A)

    async def story(desk: Desk) -> None:
        desk.blindness = [*TROUBLE[::-1]]
        run_one(scheduler)
        await desk.until(DeliveryState.DELIVERED, 1)
        desk.blindness = [StoreError("away again")]
        run_one(scheduler)
        await desk.until(DeliveryState.DELIVERED, 2)

    play(scheduler, story)
    said = [(each.message, each.exc_info is not None) for each in caplog.records if each.levelname == "ERROR"]
    assert said == [
        ("a defect: messages cannot be looked up, which is tried again: two", True),
        ("messages cannot be looked up, which is tried again: away again", False),
    ]


@pytest.mark.parametrize("error", [Unavailable("the scheduler is stopping"), OutcomeUnknown("stored or not")])
def test_when_the_scheduler_stops_nothing_more_is_sent(scheduler: Scheduler, error: Exception) -> None:
    """It could not be booked, so who receives would hear it again."""
    add(scheduler, A)
    for _ in range(20):
        run_one(scheduler)

    async def story(desk: Desk) -> None:
        desk.trouble = [error] * 20
        assert desk.sender._task is not None
        async with asyncio.timeout(30):
            await desk.sender._task

    desk = play(scheduler, story)
    heard = [headers["webhook-id"] for _, headers, _ in desk.post.heard]
    assert len(heard) == len(set(heard)) <= MOST_OF_ONE[Standing.NEW]
    assert desk.looks <= 2


def test_a_defect_of_one_is_a_failed_try(scheduler: Scheduler) -> None:
    add(scheduler, A)
    add(scheduler, B)
    run_one(scheduler)

    async def story(desk: Desk) -> None:
        answer = desk.post.__call__

        async def broken(url: str, *rest: Any) -> Answer:
            if url == A:
                raise RuntimeError("oh")
            return await answer(url, *rest)

        desk.sender._post = broken
        await desk.until(DeliveryState.DELIVERED, 1)
        await desk.tried(1, 1)

    play(scheduler, story)
    assert deliveries(scheduler)[0].reason == "a defect in Rota: RuntimeError('oh')"


def test_a_held_endpoint_is_asked_with_one_and_then_gets_the_rest(scheduler: Scheduler) -> None:
    scheduler.configure(webhooks=HookPolicy(retries=0))
    add(scheduler, A)
    for _ in range(16):
        run_one(scheduler)

    async def story(desk: Desk) -> None:
        desk.post.answers[A] = [NO]
        await desk.until(DeliveryState.FAILED, 10)
        async with asyncio.timeout(30), desk.turns:
            await desk.turns.wait_for(lambda: not desk.post.under_way[A])
        before = len(desk.post.heard)
        scheduler.clock.advance(minutes=10)
        desk.post.answers[A] = [OK]
        desk.post.most[A] = 0
        desk.sender.wake()
        await desk.post.until(lambda: len(desk.post.heard) > before)
        assert desk.post.most[A] == 1
        await desk.until(DeliveryState.DELIVERED, 16 - before)

    play(scheduler, story)
    assert deliveries(scheduler, state=DeliveryState.PENDING) == []
