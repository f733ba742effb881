"""Webhook sender on the real store, with receivers that the test controls. The clock is the test's; nothing sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from rota.db.database import UnknownOutcomeError
from rota.db.session import Reader
from rota.engine.transaction import Transaction
from rota.errors import ServiceUnavailable, StorageFull, StoreError
from rota.webhooks import delivery as webhook_delivery
from rota.webhooks.delivery import WebhookSender
from rota.webhooks.http_post import PostResult
from rota.webhooks.model import MAX_CONCURRENT, MAX_PER_RECEIVER, DeliveryState, ReceiverHealth, WebhookPolicy
from tests.harness import Scheduler
from tests.webhooks.test_outbox import add, deliveries, run_one

T = TypeVar("T")

OK = PostResult(status=204)
NO = PostResult(status=500, error="answered 500")


class Receivers:
    """All receivers. Each answers as configured for its URL."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []
        self.answers: dict[str, list[PostResult]] = {}
        """Answers in turn; the last repeats. Without any, the receiver accepts every message."""
        self.hang: set[str] = set()
        self.in_progress: dict[str, int] = {}
        self.max_in_progress: dict[str, int] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, url: str, headers: Mapping[str, str], body: bytes, _policy: WebhookPolicy) -> PostResult:
        self.in_progress[url] = self.in_progress.get(url, 0) + 1
        self.max_in_progress[url] = max(self.max_in_progress.get(url, 0), self.in_progress[url])
        async with self._changed:
            self.requests.append((url, headers, body))
            self._changed.notify_all()
        try:
            if url in self.hang:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
            answers = self.answers.get(url) or [OK]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        finally:
            self.in_progress[url] -= 1

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)

    def urls(self) -> list[str]:
        return [url for url, _, _ in self.requests]


class SenderRig:
    """Sender between the store and the receivers. `turns` is notified at every turn that it requests."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.post = Receivers()
        self.turn_errors: list[Exception] = []
        """Errors of the next turns."""
        self.read_errors: list[Exception] = []
        """Errors of the next reads."""
        self.turns = asyncio.Condition()
        self.reads = 0
        self.sender = WebhookSender(
            clock=scheduler.clock,
            read_store=self.read,
            run_in_turn=self.run_in_turn,
            post=self.post,
            policy=lambda: scheduler.settings.webhooks,
        )
        scheduler.engine.outbox.wake_sender = self.sender.wake

    async def read(self, view: Callable[[Reader], T], /) -> T:
        self.reads += 1
        if self.read_errors:
            raise self.read_errors.pop(0)
        with self.scheduler.reader.read_transaction():
            return view(self.scheduler.reader)

    async def run_in_turn(self, operation: Callable[[Transaction], T], /) -> T:
        if self.turn_errors:
            raise self.turn_errors.pop(0)
        done: T = self.scheduler.run_request(operation)
        async with self.turns:
            self.turns.notify_all()
        return done

    async def until(self, state: DeliveryState, count: int) -> None:
        def condition() -> bool:
            return len(deliveries(self.scheduler, state=state)) >= count

        async with asyncio.timeout(30), self.turns:
            await self.turns.wait_for(condition)

    async def until_attempts(self, delivery: int, times: int) -> None:
        def condition() -> bool:
            return any(d.id == delivery and d.attempts >= times for d in deliveries(self.scheduler))

        async with asyncio.timeout(30), self.turns:
            await self.turns.wait_for(condition)


def run_scenario(scheduler: Scheduler, scenario: Callable[[SenderRig], Awaitable[Any]]) -> SenderRig:
    async def run() -> SenderRig:
        rig = SenderRig(scheduler)
        async with sending(rig):
            await scenario(rig)
        return rig

    return asyncio.run(run())


@asynccontextmanager
async def sending(rig: SenderRig) -> Any:
    rig.sender.start()
    try:
        yield
    finally:
        await rig.sender.close()


A, B = "http://127.0.0.1:1/a", "http://127.0.0.1:2/b"


def test_message_is_delivered_signed_and_recorded(scheduler: Scheduler) -> None:
    webhook = add(scheduler, A)

    async def scenario(rig: SenderRig) -> None:
        run_one(scheduler)  # the turn wakes the sender
        await rig.until(DeliveryState.DELIVERED, 1)

    rig = run_scenario(scheduler, scenario)
    ((url, headers, body),) = rig.post.requests
    (delivery,) = deliveries(scheduler)
    assert (url, headers["webhook-id"], delivery.attempts) == (A, delivery.message_id, 1)
    assert scheduler.reader.webhooks.payload(delivery.id).encode() == body
    assert headers["webhook-timestamp"] == str(int(scheduler.clock.now().timestamp()))
    assert headers["webhook-signature"].startswith("v1,")
    assert (
        Verifier(webhook.secret).sign(delivery.message_id, scheduler.clock.now(), body.decode())
        == headers["webhook-signature"]
    )


def test_dec_009_failed_message_is_retried_at_its_times_with_one_id(scheduler: Scheduler) -> None:
    add(scheduler, A)
    run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        rig.post.answers[A] = [NO, NO, OK]
        for attempts, seconds in ((1, 5), (2, 10), (3, 0)):
            await rig.until_attempts(1, attempts)
            scheduler.clock.advance(seconds=seconds)
            rig.sender.wake()

    rig = run_scenario(scheduler, scenario)
    assert len({headers["webhook-id"] for _, headers, _ in rig.post.requests}) == 1
    assert len({headers["webhook-timestamp"] for _, headers, _ in rig.post.requests}) == 3
    assert [(d.state, d.attempts) for d in deliveries(scheduler)] == [(DeliveryState.DELIVERED, 3)]


def test_hanging_receiver_delays_no_other(scheduler: Scheduler) -> None:
    add(scheduler, A)
    add(scheduler, B)
    for _ in range(20):
        run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        rig.post.hang.add(A)
        await rig.until(DeliveryState.DELIVERED, 20)
        before = len(scheduler.started_jobs())
        for _ in range(200):  # dispatch does not depend on the sender
            run_one(scheduler)
        assert len(scheduler.started_jobs()) == before + 200
        await rig.until(DeliveryState.DELIVERED, 220)

    rig = run_scenario(scheduler, scenario)
    assert rig.post.max_in_progress == {
        A: MAX_PER_RECEIVER[ReceiverHealth.NEW],
        B: MAX_PER_RECEIVER[ReceiverHealth.HEALTHY],
    }
    assert rig.post.urls().count(A) == 1
    assert rig.reads < 400


def test_twenty_hanging_receivers_starve_no_other(scheduler: Scheduler) -> None:
    """This holds before their health is known and after they failed; new receivers get capacity too."""
    urls = [f"http://127.0.0.1:{port}/" for port in range(1, 22)]
    good, bad = urls[8], {*urls[:8], *urls[9:]}  # webhook-9 sorts after all the others
    for url in urls:
        add(scheduler, url)
    for _ in range(10):
        run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        post = rig.post
        post.hang |= bad
        await rig.until(DeliveryState.DELIVERED, 10)
        assert [post.urls().count(url) for url in bad] == [1] * 20

    run_scenario(scheduler, scenario)

    async def later(rig: SenderRig) -> None:
        post = rig.post
        post.answers = {url: [NO] for url in bad}
        async with asyncio.timeout(30), rig.turns:
            await rig.turns.wait_for(lambda: all(d.attempts for d in deliveries(scheduler)))
        post.hang |= bad
        scheduler.clock.advance(seconds=6)
        rig.sender.wake()
        limit = MAX_CONCURRENT[ReceiverHealth.FAILING]
        await post.until(lambda: sum(post.in_progress[url] for url in bad) == limit)
        for _ in range(10):
            run_one(scheduler)
        await rig.until(DeliveryState.DELIVERED, 20)
        add(scheduler, "http://127.0.0.1:99/")
        run_one(scheduler)
        await rig.until(DeliveryState.DELIVERED, 22)
        assert sorted(set(post.urls()) - bad) == [good, "http://127.0.0.1:99/"]
        assert sum(post.in_progress[url] for url in bad) == limit
        assert max(post.max_in_progress[url] for url in bad) == MAX_PER_RECEIVER[ReceiverHealth.FAILING]

    run_scenario(scheduler, later)


def test_idle_sender_does_nothing(scheduler: Scheduler) -> None:
    async def scenario(rig: SenderRig) -> None:
        for _ in range(20):
            run_one(scheduler)
            await asyncio.sleep(0)

    assert run_scenario(scheduler, scenario).reads <= 1


def test_delivery_in_progress_at_shutdown_is_repeated_at_next_start(scheduler: Scheduler) -> None:
    add(scheduler, A)
    run_one(scheduler)

    async def first(rig: SenderRig) -> None:
        rig.post.hang.add(A)
        await rig.post.until(lambda: rig.post.urls() == [A])

    before = run_scenario(scheduler, first)
    assert [(d.state, d.attempts) for d in deliveries(scheduler)] == [(DeliveryState.PENDING, 0)]
    scheduler.crash()
    after = run_scenario(scheduler, lambda rig: rig.until(DeliveryState.DELIVERED, 1))
    assert before.post.requests[0][1]["webhook-id"] == after.post.requests[0][1]["webhook-id"]


ERRORS = (StorageFull("the disk is full"), StoreError("the database is away"), KeyError("a defect"), ValueError("two"))


def test_attempt_that_cannot_be_recorded_is_not_sent_again(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhook_delivery, "_RETRY_INTERVAL", 0.0)
    add(scheduler, A)

    async def scenario(rig: SenderRig) -> None:
        rig.turn_errors = [*ERRORS]
        run_one(scheduler)
        await rig.until(DeliveryState.DELIVERED, 1)

    rig = run_scenario(scheduler, scenario)
    assert (rig.post.urls(), rig.turn_errors) == ([A], [])
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "cannot record a delivery attempt, retrying: the disk is full"
    ]


def test_failed_read_of_due_messages_is_retried(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any error is retried: no other component restarts the sender."""
    monkeypatch.setattr(webhook_delivery, "_RETRY_INTERVAL", 0.0)
    add(scheduler, A)

    async def scenario(rig: SenderRig) -> None:
        rig.read_errors = [*ERRORS[::-1]]
        run_one(scheduler)
        await rig.until(DeliveryState.DELIVERED, 1)
        rig.read_errors = [StoreError("away again")]
        run_one(scheduler)
        await rig.until(DeliveryState.DELIVERED, 2)

    run_scenario(scheduler, scenario)
    logged = [(record.message, record.exc_info is not None) for record in caplog.records if record.levelname == "ERROR"]
    assert logged == [
        ("internal error: cannot read the due messages, retrying: two", True),
        ("cannot read the due messages, retrying: away again", False),
    ]


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("the scheduler is stopping"), UnknownOutcomeError("stored or not")]
)
def test_stopping_scheduler_sends_nothing_more(scheduler: Scheduler, error: Exception) -> None:
    """The attempt could not be recorded, so the receiver would get the message again."""
    add(scheduler, A)
    for _ in range(20):
        run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        rig.turn_errors = [error] * 20
        assert rig.sender._task is not None
        async with asyncio.timeout(30):
            await rig.sender._task

    rig = run_scenario(scheduler, scenario)
    received = [headers["webhook-id"] for _, headers, _ in rig.post.requests]
    assert len(received) == len(set(received)) <= MAX_PER_RECEIVER[ReceiverHealth.NEW]
    assert rig.reads <= 2


def test_internal_error_of_one_delivery_is_a_failed_attempt(scheduler: Scheduler) -> None:
    add(scheduler, A)
    add(scheduler, B)
    run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        response = rig.post.__call__

        async def broken(url: str, *rest: Any) -> PostResult:
            if url == A:
                raise RuntimeError("oh")
            return await response(url, *rest)

        rig.sender._post = broken
        await rig.until(DeliveryState.DELIVERED, 1)
        await rig.until_attempts(1, 1)

    run_scenario(scheduler, scenario)
    assert deliveries(scheduler)[0].reason == "internal error: RuntimeError('oh')"


def test_held_endpoint_gets_one_trial_and_then_the_rest(scheduler: Scheduler) -> None:
    scheduler.configure(webhooks=WebhookPolicy(retries=0))
    add(scheduler, A)
    for _ in range(16):
        run_one(scheduler)

    async def scenario(rig: SenderRig) -> None:
        rig.post.answers[A] = [NO]
        await rig.until(DeliveryState.FAILED, 10)
        async with asyncio.timeout(30), rig.turns:
            await rig.turns.wait_for(lambda: not rig.post.in_progress[A])
        before = len(rig.post.requests)
        scheduler.clock.advance(minutes=10)
        rig.post.answers[A] = [OK]
        rig.post.max_in_progress[A] = 0
        rig.sender.wake()
        await rig.post.until(lambda: len(rig.post.requests) > before)
        assert rig.post.max_in_progress[A] == 1
        await rig.until(DeliveryState.DELIVERED, 16 - before)

    run_scenario(scheduler, scenario)
    assert deliveries(scheduler, state=DeliveryState.PENDING) == []
