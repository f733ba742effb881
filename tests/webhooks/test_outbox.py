"""Webhook outbox and deliveries on the real store, with receivers that the test controls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.control.schemas import WebhookSummary
from rota.db.decoding import to_micros
from rota.engine import outbox
from rota.engine.outbox import ensure_job_secret, record_attempt
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, StorageFull
from rota.executor.port import ExitReport, StartFailure
from rota.groups.queries import list_groups
from rota.ids import DeliveryId, JobId, WebhookId, format_job_id
from rota.jobs.edit import edit, parse_edit
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.events import Event
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.status import Status
from rota.retention import collector
from rota.retention.collector import RetentionResult
from rota.schema_types import encode
from rota.webhooks import commands, queries
from rota.webhooks.commands import RotationRequest, WebhookRequest
from rota.webhooks.delivery import DueMessages, find_due_messages
from rota.webhooks.model import (
    HOLD_DURATION,
    MAX_CONCURRENT,
    MAX_PER_RECEIVER,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    ReceiverHealth,
    Webhook,
    WebhookPolicy,
)
from tests.harness import Damage, Scheduler, SqlRunner
from tests.retention.test_collector import collector_of

URL = "http://127.0.0.1:9/hook"
ENDS = ("job.run.completed", "job.run.failed", "job.run.skipped", "job.run.cancelled", "job.blocked", "group.finished")
STATEMENTS = Path(outbox.__file__).parent.parent / "webhooks/webhooks.sql"


def add(scheduler: Scheduler, url: str = URL, **fields: Any) -> Webhook:
    request = msgspec.convert({"url": url, **fields}, WebhookRequest)
    webhook: Webhook = scheduler.run_request(lambda tx: commands.add_webhook(tx, request, actor="tester"))
    return webhook


def deliveries(scheduler: Scheduler, **filters: Any) -> list[Delivery]:
    """Return the deliveries, the oldest first."""
    request = {"job": None, "webhook": None, "state": None, "before_id": 2**62, "limit": 100_000, **filters}
    return scheduler.reader.webhooks.list_deliveries(**request)[::-1]


def payload(scheduler: Scheduler, delivery: Delivery) -> Any:
    return json.loads(scheduler.reader.webhooks.payload(delivery.id))


def sent_messages(scheduler: Scheduler, **filters: Any) -> list[tuple[str, str]]:
    """Return the kind and the job of each delivery."""
    return [(d.kind, "" if d.job is None else format_job_id(d.job)) for d in deliveries(scheduler, **filters)]


def record_answer(
    scheduler: Scheduler, *, delivery: int = 1, status: int | None = 204, error: str | None = None
) -> Delivery:
    """Record one attempt with the answer of the receiver."""
    attempt = DeliveryAttempt(at=scheduler.clock.now(), duration=timedelta(milliseconds=3), status=status, error=error)
    scheduler.run_request(lambda tx: record_attempt(tx, DeliveryId(delivery), attempt))
    record = scheduler.reader.webhooks.find_delivery(DeliveryId(delivery))
    assert record is not None
    return record


def record_refusal(scheduler: Scheduler, *, delivery: int = 1, status: int | None = 500) -> Delivery:
    return record_answer(scheduler, delivery=delivery, status=status, error=f"answered {status}")


def fail_delivery(scheduler: Scheduler, delivery: int) -> None:
    while record_refusal(scheduler, delivery=delivery).state is DeliveryState.PENDING:
        scheduler.clock.advance(seconds=30)


def read_webhook(scheduler: Scheduler, number: int = 1) -> Webhook:
    webhook = scheduler.reader.webhooks.find(WebhookId(number))
    assert webhook is not None
    return webhook


def due_messages(
    scheduler: Scheduler,
    in_flight: Mapping[str, frozenset[DeliveryId]] | None = None,
    known: Mapping[str, ReceiverHealth] | None = None,
) -> DueMessages:
    """Return the due messages. By default the first endpoint is known to be healthy."""
    known = {"webhook-1": ReceiverHealth.HEALTHY} if known is None else known
    return find_due_messages(scheduler.reader, now=scheduler.clock.now(), in_flight=in_flight or {}, health=known)


def delivery_numbers(due: DueMessages) -> list[int]:
    return [int(message.delivery.id) for message in due.messages]


def run_one(scheduler: Scheduler, code: int = 0, **fields: Any) -> JobId:
    job = scheduler.submit(**fields)
    scheduler.confirm_start(job)
    scheduler.end_run(job, code)
    return job


# The outbox.


def test_dec_009_message_is_stored_with_its_event_or_not_at_all(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LESSONS: an event was sent before its commit, and reported a change that was rolled back."""
    add(scheduler)
    job = scheduler.submit()
    scheduler.confirm_start(job)
    woken: list[tuple[str, int]] = []
    scheduler.engine.outbox.wake_sender = lambda: woken.append((scheduler.status(job), len(deliveries(scheduler))))
    with monkeypatch.context() as patched:
        patched.setattr(scheduler.session._db, "commit", _full)
        scheduler.end_run(job)
    assert (scheduler.status(job), deliveries(scheduler), woken) == ("RUNNING", [], [])
    scheduler.run_turns()
    assert sent_messages(scheduler) == [("job.run.completed", "job-1")]
    assert woken == [("COMPLETED", 1)]  # the sender finds it stored
    scheduler.crash()
    assert sent_messages(scheduler) == [("job.run.completed", "job-1")]


def _full() -> None:
    raise StorageFull("the disk is full")


def test_endpoint_that_could_not_be_stored_gets_no_message(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoints are cached in memory: a failed turn is undone there too."""
    with monkeypatch.context() as patched:
        patched.setattr(scheduler.session._db, "commit", _full)
        with pytest.raises(StorageFull):
            add(scheduler)
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.end_run(job)
    assert (scheduler.status(job), deliveries(scheduler)) == ("COMPLETED", [])


def test_events_undone_by_a_refusal_send_no_message(scheduler: Scheduler) -> None:
    add(scheduler, events=list(ENDS))
    first, other = scheduler.submit(locks=["a"]), scheduler.submit()

    def refused(tx: Transaction) -> None:
        tx.events.emit(Event(kind="job.cancelled", at=to_micros(tx.now), cause="cancel", job=other))
        raise Conflict("no")

    with pytest.raises(Conflict):
        scheduler.run_request(refused)
    assert deliveries(scheduler) == []
    scheduler.confirm_start(first)
    scheduler.end_run(first)
    assert sent_messages(scheduler) == [("job.run.completed", "job-1")]


def statements_of(scheduler: Scheduler, act: Any) -> list[str]:
    statements: list[str] = []
    database = scheduler.session._db

    def record(call: Any, name: str, /, *args: Any, **values: Any) -> Any:
        statements.append(name)
        return call(name, *args, **values)

    with pytest.MonkeyPatch.context() as patched:
        for verb in ("rows", "run", "run_many", "buffer"):
            patched.setattr(database, verb, partial(record, getattr(database, verb)))
        act()
    return statements


def test_job_without_receivers_costs_no_statement(scheduler: Scheduler) -> None:
    own = {line.split()[2].rstrip(":") for line in STATEMENTS.read_text().splitlines() if line.startswith("-- name")}
    job = scheduler.submit()

    def end() -> None:
        scheduler.confirm_start(job)
        scheduler.end_run(job)
        scheduler.submit()

    assert not own & set(statements_of(scheduler, end))


def test_many_ends_of_one_turn_take_few_statements(make_scheduler: Any) -> None:
    scheduler: Scheduler = make_scheduler(**{"global": -1})
    add(scheduler)
    environment = DefaultEnvironment(cwd="/", variables={})
    request = [Submission(command=["true"])] * 1_200
    jobs = scheduler.run_request(lambda tx: submit(tx, request, environment, actor="tester")).jobs
    at = scheduler.clock.now().timestamp()
    ends = [ExitReport(run=scheduler.find_run(job), at=at, code=0) for job in jobs]

    def end() -> None:
        scheduler.executor.inbox.extend(ends)
        scheduler.engine.turn()

    statements = statements_of(scheduler, end)
    assert len(deliveries(scheduler)) == 1_200
    assert statements.count("jobs") == 3
    assert sum(name in ("add_delivery", "next_delivery") for name in statements) <= 4


# Contents of messages.


def assert_equals_the_api(scheduler: Scheduler, delivery: Delivery) -> Any:
    """Check that the message equals the API response byte for byte."""
    assert delivery.job is not None
    message = msgspec.json.decode(scheduler.reader.webhooks.payload(delivery.id), type=dict[str, msgspec.Raw])
    data = msgspec.json.decode(message["data"], type=dict[str, msgspec.Raw])
    shown_job = scheduler.show_job(delivery.job)
    assert bytes(data["job"]) == encode(shown_job)
    assert bytes(data["run"]) == encode(shown_job.run)
    assert list(message) == ["type", "timestamp", "data"]
    return payload(scheduler, delivery)


def test_message_of_every_end_equals_the_api(scheduler: Scheduler) -> None:
    add(scheduler, events=list(ENDS))
    job = scheduler.submit(name="first", params={"ä": [1, None, "\x00"]}, locks=["k:shared"])
    (scheduler.home / "jobs" / str(job)).mkdir(parents=True)
    (scheduler.home / "jobs" / str(job) / "session").write_text("/tmp/session.jsonl\n")
    scheduler.confirm_start(job)
    scheduler.end_run(job)
    skipped = scheduler.submit(skip_if="true")
    scheduler.confirm_start(skipped)
    scheduler.receive(
        ExitReport(run=scheduler.find_run(skipped), at=scheduler.clock.moment.timestamp(), code=0, skip_reason="true")
    )
    running = scheduler.submit()
    cancelled = scheduler.submit()
    scheduler.cancel(cancelled)
    blocked = scheduler.submit(after=[running])
    unwanted = scheduler.submit(after=[f"{format_job_id(job)}:failed"])
    scheduler.confirm_start(running)
    scheduler.end_run(running, 1)
    assert sent_messages(scheduler) == [
        ("job.run.completed", "job-1"),
        ("job.run.skipped", "job-2"),
        ("job.run.cancelled", "job-4"),
        ("job.run.skipped", format_job_id(unwanted)),
        ("job.run.failed", "job-3"),
        ("job.blocked", format_job_id(blocked)),
    ]
    for delivery in deliveries(scheduler):
        message = assert_equals_the_api(scheduler, delivery)
        assert message["type"] == delivery.kind
    first = payload(scheduler, deliveries(scheduler)[0])
    assert first["data"]["job"]["session_path"] == "/tmp/session.jsonl"
    assert first["data"]["run"]["id"] == first["data"]["job"]["run"]["id"] == "run-1"
    assert first["timestamp"] == first["data"]["job"]["finished_at"]


def test_every_failed_run_of_a_chain_is_reported_and_the_last_is_final(scheduler: Scheduler) -> None:
    scheduler.configure(retry=RetryPolicies(default=RetryPolicy(max_retries=1, base=timedelta(seconds=1))))
    add(scheduler)
    run_one(scheduler, 1, retries=1)
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    scheduler.confirm_start(JobId(2))
    scheduler.end_run(JobId(2), 1)
    message = [assert_equals_the_api(scheduler, delivery)["data"]["job"] for delivery in deliveries(scheduler)]
    assert [(job["id"], job["attempt"], job["permanently_failed"]) for job in message] == [
        ("job-1", 1, False),
        ("job-2", 2, True),
    ]


def test_job_that_could_not_start_has_failed_without_a_run(scheduler: Scheduler) -> None:
    add(scheduler)
    job = scheduler.submit()
    for _ in range(3):
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
        scheduler.clock.advance(minutes=5)
        scheduler.run_turns()
    (filters,) = deliveries(scheduler)
    message = assert_equals_the_api(scheduler, filters)
    assert (message["type"], message["data"]["run"], filters.run) == ("job.run.failed", None, None)
    assert "circuit-broken" in message["data"]["job"]["reason"]


def test_cancelled_and_blocked_are_sent_only_on_request(scheduler: Scheduler) -> None:
    add(scheduler)
    running, waiting = scheduler.submit(), scheduler.submit()
    scheduler.cancel(waiting)
    scheduler.submit(after=[running])
    scheduler.confirm_start(running)
    scheduler.end_run(running, 1)
    assert sent_messages(scheduler) == [("job.run.failed", "job-1")]


def test_message_of_a_group_equals_the_api(scheduler: Scheduler) -> None:
    add(scheduler)
    group, (first, second) = scheduler.submit_group({}, {}, name="night", on_failure="stop")
    scheduler.end_run(first, 1)
    assert scheduler.status(second) is Status.CANCELLED
    (filters,) = [d for d in deliveries(scheduler) if d.kind == "group.finished"]
    assert (filters.job, filters.group) == (None, group)
    shown = msgspec.to_builtins(list_groups(scheduler.reader, limit=1, before_id=None, with_ended=True).groups[0])
    assert payload(scheduler, filters)["data"]["group"] == shown
    assert (shown["status"], shown["counts"]) == ("PARTIAL", {"FAILED": 1, "CANCELLED": 1})


def test_long_command_is_sent_unabridged(scheduler: Scheduler) -> None:
    add(scheduler)
    long = ["x" * 100_000] * 10
    scheduler.submit("echo", *long)
    scheduler.confirm_start(JobId(1))
    scheduler.end_run(JobId(1))
    assert payload(scheduler, deliveries(scheduler)[0])["data"]["job"]["command"] == ["echo", *long]


def test_message_that_cannot_be_rendered_undoes_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise ValueError("a damaged record")

    add(scheduler)
    monkeypatch.setattr(outbox, "render_job", broken)
    job = run_one(scheduler)
    assert (scheduler.status(job), deliveries(scheduler)) == ("COMPLETED", [])


def test_damaged_records_send_no_message_and_stop_no_other(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    add(scheduler)
    add(scheduler, "http://127.0.0.1:8/")
    first, other = scheduler.submit(webhooks=[URL]), scheduler.submit(webhooks=[URL])
    run_sql("UPDATE webhook SET events = 'nonsense' WHERE id = 1")
    run_sql(f"UPDATE spec SET webhook = 'nonsense' WHERE id = {first}")
    run_sql(f"""UPDATE spec SET webhook = '{{"urls": ["nonsense"]}}' WHERE id = {other}""")
    scheduler.crash()
    assert set(scheduler.drain()) == {first, other}
    assert [(d.webhook, d.job) for d in deliveries(scheduler)] == [(2, first), (2, other)]


# URLs of jobs.


def test_urls_of_a_job_get_messages_like_endpoints(scheduler: Scheduler) -> None:
    urls = ["http://127.0.0.1:7/a", "https://example.org/b?c"]
    run_one(scheduler, webhooks=[*urls, urls[0]])
    run_one(scheduler)
    add(scheduler)
    run_one(scheduler, webhooks=urls[:1], webhook_events=["job.run.failed"])
    assert [(d.url, d.webhook, format_job_id(d.job or JobId(0))) for d in deliveries(scheduler)] == [
        (urls[0], None, "job-1"),
        (urls[1], None, "job-1"),
        (URL, 1, "job-3"),
    ]
    assert {d.receiver for d in deliveries(scheduler)[:2]} == {"http://127.0.0.1:7", "https://example.org:443"}
    assert len({d.message_id for d in deliveries(scheduler)}) == 3


def test_urls_of_a_job_survive_retry_rewind_edit_and_restart(scheduler: Scheduler) -> None:
    job = scheduler.submit(webhooks=[URL], retries=1, webhook_events=["job.run.failed", "job.run.completed"])
    follower = scheduler.submit(after=[job], webhooks=[URL])
    scheduler.run_request(lambda tx: edit(tx, follower, parse_edit(b'{"name": "other"}'), actor="tester"))
    scheduler.crash()
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    scheduler.clock.advance(minutes=5)
    scheduler.run_turns()
    scheduler.confirm_start(JobId(3))
    scheduler.end_run(JobId(3))
    scheduler.confirm_start(follower)
    scheduler.end_run(follower)
    scheduler.rewind(follower)
    scheduler.confirm_start(follower)
    scheduler.end_run(follower, 1)
    assert sent_messages(scheduler) == [
        ("job.run.failed", "job-1"),
        ("job.run.completed", "job-3"),
        ("job.run.completed", "job-2"),
        ("job.run.failed", "job-2"),
    ]
    assert len({d.run for d in deliveries(scheduler)} - {None}) == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"webhooks": ["ftp://example.org"]}, "begin with http"),
        ({"webhooks": ["http://169.254.169.254/"]}, "is refused"),
        ({"webhooks": [f"http://127.0.0.1:{n}/" for n in range(1, 12)]}, "at most 10 webhooks"),
        (
            {"webhooks": [URL], "webhook_events": ["job.finished"]},
            "unknown event kind 'job.finished'; known kinds: job.run",
        ),
        ({"webhooks": [URL], "webhook_events": ["group.finished"]}, "unknown event kind 'group.finished'"),
        ({"webhook_events": ["job.run.failed"]}, "needs at least one URL in `webhooks`"),
    ],
)
def test_unusable_url_refuses_the_job(scheduler: Scheduler, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        scheduler.submit(**fields)
    assert scheduler.reader.jobs.count_by_status() == {}


def test_allowed_network_is_accepted(scheduler: Scheduler) -> None:
    from rota.webhooks.model import parse_network

    scheduler.configure(webhooks=WebhookPolicy(allow=(parse_network("169.254.1.0/24"),)))
    scheduler.submit(webhooks=["http://169.254.1.7/"])
    add(scheduler, "http://169.254.1.8/")
    with pytest.raises(InvalidInput, match="is refused"):
        add(scheduler, "http://169.254.2.8/")


# Attempts.


def test_dec_009_three_retries_then_only_manual_redelivery(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """Risk named in seed 002: webhooks that are retried forever."""
    add(scheduler)
    run_one(scheduler)
    waits = []
    for _ in range(3):
        refused = record_refusal(scheduler)
        assert refused.next_at is not None
        waits.append(refused.next_at - scheduler.clock.now())
        assert delivery_numbers(due_messages(scheduler)) == []
        scheduler.clock.moment = refused.next_at
        assert delivery_numbers(due_messages(scheduler)) == [1]
        scheduler.crash()  # attempts and times are stored and survive the crash
    assert waits == [timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=20)]
    last = record_refusal(scheduler)
    assert (last.state, last.attempts, last.reason, last.next_at) == (DeliveryState.FAILED, 4, "answered 500", None)
    scheduler.clock.advance(days=1)
    assert due_messages(scheduler) == DueMessages(messages=[], next_at=None)
    assert run_sql("SELECT number, status, error FROM delivery_attempt ORDER BY number") == [
        (n, 500, "answered 500") for n in (1, 2, 3, 4)
    ]
    assert record_refusal(scheduler).attempts == 5  # an attempt in progress is recorded, and changes nothing
    assert [event.kind for event in scheduler.events].count("webhook.delivery_failed") == 1


def test_redelivery_sends_the_same_message_with_all_attempts(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    before = deliveries(scheduler)[0].message_id
    with pytest.raises(Conflict, match="is pending already"):
        request_redelivery(scheduler)
    fail_delivery(scheduler, 1)
    request_redelivery(scheduler)
    due = due_messages(scheduler).messages[0]
    assert (due.delivery.message_id, due.delivery.state) == (before, DeliveryState.PENDING)
    for _ in range(3):
        assert record_refusal(scheduler).state is DeliveryState.PENDING
    assert record_answer(scheduler).state is DeliveryState.DELIVERED
    request_redelivery(scheduler)  # a delivered message can be sent again too
    assert delivery_numbers(due_messages(scheduler)) == [1]


def test_delivery_of_unknown_state_is_pending(scheduler: Scheduler, damage: Damage) -> None:
    add(scheduler)
    scheduler.end_run(scheduler.submit())
    damage("UPDATE delivery SET state = 'odd'")
    (delivery,) = deliveries(scheduler)
    assert (delivery.state, delivery.reason) == (DeliveryState.PENDING, "its state 'odd' is unknown")
    record_answer(scheduler)
    assert deliveries(scheduler)[0].state is DeliveryState.DELIVERED


def test_endpoint_with_unreadable_events_hides_no_other(scheduler: Scheduler, damage: Damage) -> None:
    bad, good = add(scheduler), add(scheduler, f"{URL}/2")
    damage(f"UPDATE webhook SET events = '{{bad' WHERE id = {bad.id}")
    scheduler.crash()
    scheduler.end_run(scheduler.submit())
    assert [d.webhook for d in deliveries(scheduler)] == [good.id]
    shown = queries.list_webhooks(scheduler.reader, scheduler.clock.now()).webhooks
    assert [webhook.unreadable is None for webhook in shown] == [False, True]
    scheduler.run_request(lambda tx: commands.remove_webhook(tx, bad.id, actor="tester"))
    assert [webhook.id for webhook in scheduler.reader.webhooks.list_all()] == [good.id]


def request_redelivery(scheduler: Scheduler, delivery: int = 1) -> None:
    scheduler.run_request(lambda tx: commands.redeliver(tx, DeliveryId(delivery), actor="tester"))


def test_redelivery_of_pending_message_is_refused_with_its_time(scheduler: Scheduler) -> None:
    hold_endpoint(scheduler, 1)
    until = "delivery-11 is pending already; webhook-1 is held for 9m59s, and `rota webhook enable"
    scheduler.clock.advance(milliseconds=1500)
    with pytest.raises(Conflict, match=until):
        request_redelivery(scheduler, 11)
    scheduler.run_request(lambda tx: commands.enable_webhook(tx, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="is pending already; it is due or in progress"):
        request_redelivery(scheduler, 11)
    record_refusal(scheduler, delivery=11)
    scheduler.clock.advance(milliseconds=1500)
    with pytest.raises(Conflict, match="is pending already; its next attempt is in 4s"):
        request_redelivery(scheduler, 11)


def test_redelivery_without_usable_endpoint_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such delivery: delivery-1"):
        request_redelivery(scheduler)
    add(scheduler)
    run_one(scheduler)
    record_answer(scheduler)
    scheduler.run_request(lambda tx: commands.disable_webhook(tx, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="webhook-1 is disabled; `rota webhook enable webhook-1` first"):
        request_redelivery(scheduler)
    scheduler.run_request(lambda tx: commands.remove_webhook(tx, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="webhook-1 was removed"):
        request_redelivery(scheduler)


def test_receiver_that_answers_gone_is_disabled(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    run_one(scheduler)
    assert record_answer(scheduler, status=410, error="answered 410").state is DeliveryState.FAILED
    assert [(d.state, d.reason) for d in deliveries(scheduler)] == [
        (DeliveryState.FAILED, "answered 410"),
        (DeliveryState.FAILED, "it answered 410 Gone"),
    ]
    assert read_webhook(scheduler).disabled_reason == "it answered 410 Gone"
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 2  # no new message for it
    assert queries.summarize_webhooks(scheduler.reader) == WebhookSummary(held=[], disabled=["webhook-1"], pending=0)
    scheduler.run_request(lambda tx: commands.enable_webhook(tx, WebhookId(1), actor="tester"))
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 3
    kinds = [event.kind for event in scheduler.events if event.kind.startswith("webhook.")]
    assert kinds == ["webhook.created", "webhook.delivery_failed", "webhook.disabled", "webhook.enabled"]


def test_job_url_that_answers_gone_fails_immediately(scheduler: Scheduler) -> None:
    run_one(scheduler, webhooks=[URL])
    assert record_answer(scheduler, status=410, error="answered 410").state is DeliveryState.FAILED


def test_number_of_removed_webhook_is_not_reused(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    scheduler.run_request(lambda tx: commands.remove_webhook(tx, WebhookId(1), actor="tester"))
    assert [(d.state, d.reason) for d in deliveries(scheduler)] == [(DeliveryState.FAILED, "the endpoint was removed")]
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 1
    assert add(scheduler).id == 2
    with pytest.raises(NotFound, match="no such webhook: webhook-1"):
        scheduler.run_request(lambda tx: commands.enable_webhook(tx, WebhookId(1), actor="tester"))


# Failing endpoints.


def hold_endpoint(scheduler: Scheduler, more: int = 3) -> None:
    """Fail ten deliveries, so that the endpoint is held, and leave this many pending."""
    add(scheduler)
    for _ in range(10 + more):
        run_one(scheduler)
    for n in range(1, 11):
        fail_delivery(scheduler, n)


def test_endpoint_with_ten_failed_deliveries_is_held_and_gets_one_trial(scheduler: Scheduler) -> None:
    hold_endpoint(scheduler)
    until = read_webhook(scheduler).held_until
    assert until == scheduler.clock.now() + HOLD_DURATION
    run_one(scheduler)
    assert due_messages(scheduler) == DueMessages(messages=[], next_at=until)
    assert queries.summarize_webhooks(scheduler.reader) == WebhookSummary(held=["webhook-1"], disabled=[], pending=4)
    scheduler.crash()
    scheduler.clock.moment = until
    assert delivery_numbers(due_messages(scheduler)) == [11]
    assert delivery_numbers(due_messages(scheduler, {"webhook-1": frozenset({DeliveryId(11)})})) == []
    record_answer(scheduler, delivery=11)
    assert read_webhook(scheduler).held_until is None
    assert delivery_numbers(due_messages(scheduler)) == [12, 13, 14]
    kinds = [event.kind for event in scheduler.events if event.kind in ("webhook.held", "webhook.released")]
    assert kinds == ["webhook.held", "webhook.released"]


def test_failed_trial_holds_the_endpoint_again(scheduler: Scheduler) -> None:
    hold_endpoint(scheduler)
    scheduler.clock.advance(minutes=10)
    assert delivery_numbers(due_messages(scheduler)) == [11]
    record_refusal(scheduler, delivery=11)
    assert due_messages(scheduler) == DueMessages(messages=[], next_at=scheduler.clock.now() + HOLD_DURATION)


def test_messages_of_a_repeatedly_held_endpoint_fail(scheduler: Scheduler) -> None:
    """The trial is the message with the most attempts: with another each time, none would reach its end."""
    hold_endpoint(scheduler)
    trials = []
    for _ in range(8):
        scheduler.clock.advance(minutes=10)
        run_one(scheduler)
        (trial,) = delivery_numbers(due_messages(scheduler))
        trials.append(trial)
        record_refusal(scheduler, delivery=trial)
    assert trials == [11] * 4 + [12] * 4
    assert [d.id for d in deliveries(scheduler, state=DeliveryState.FAILED)] == [*range(1, 13)]


def test_attempted_messages_are_sent_before_new_ones(scheduler: Scheduler) -> None:
    """This holds however many wait behind them. A message that is not due delays no other."""
    add(scheduler)
    for _ in range(12):
        run_one(scheduler)
    for n in (5, 6, 7):
        record_refusal(scheduler, delivery=n)
    assert delivery_numbers(due_messages(scheduler)) == [1, 2, 3, 4]
    scheduler.clock.advance(seconds=5)
    record_refusal(scheduler, delivery=6)
    assert delivery_numbers(due_messages(scheduler)) == [5, 7, 1, 2]
    scheduler.clock.advance(seconds=10)
    assert delivery_numbers(due_messages(scheduler)) == [6, 5, 7, 1]
    assert delivery_numbers(due_messages(scheduler, {"webhook-1": frozenset({DeliveryId(6), DeliveryId(7)})})) == [5, 1]
    for n in (6, 6):
        record_refusal(scheduler, delivery=n)
    request_redelivery(scheduler, 6)  # a manual redelivery starts over
    assert delivery_numbers(due_messages(scheduler)) == [5, 7, 1, 2]


def test_success_resets_the_failure_count(scheduler: Scheduler) -> None:
    add(scheduler)
    for n in range(1, 15):
        run_one(scheduler)
        if n == 8:
            record_answer(scheduler, delivery=8)
        else:
            fail_delivery(scheduler, n)
    assert (read_webhook(scheduler).held_until, read_webhook(scheduler).failures) == (None, 6)


def test_enable_releases_a_held_endpoint(scheduler: Scheduler) -> None:
    hold_endpoint(scheduler)
    scheduler.run_request(lambda tx: commands.enable_webhook(tx, WebhookId(1), actor="tester"))
    assert delivery_numbers(due_messages(scheduler)) == [11, 12, 13]


# Delivery slots.


def deliveries_by_receiver(due: DueMessages) -> dict[str, frozenset[DeliveryId]]:
    served = [(message.delivery.receiver, message.delivery.id) for message in due.messages]
    return {name: frozenset(number for receiver, number in served if receiver == name) for name, _ in served}


@pytest.mark.parametrize("candidate", ReceiverHealth)
def test_receivers_share_slots_and_all_together_have_a_limit(scheduler: Scheduler, candidate: ReceiverHealth) -> None:
    receivers = [f"webhook-{n}" for n in range(1, 100)]
    for port in range(1, 100):
        add(scheduler, f"http://127.0.0.1:{port}/")
    for _ in range(6):
        run_one(scheduler)
    for number in range(1, 100):  # one message of each was attempted before
        record_refusal(scheduler, delivery=number)
    scheduler.clock.advance(seconds=5)
    known = dict.fromkeys(receivers, candidate)
    first = due_messages(scheduler, known=known)
    assert len(first.messages) == MAX_CONCURRENT[candidate]
    in_flight = deliveries_by_receiver(first)
    # For a failing receiver: the attempted message, and one that was not attempted.
    limit = 2 if candidate is ReceiverHealth.FAILING else MAX_PER_RECEIVER[candidate]
    assert {len(numbers) for numbers in in_flight.values()} == {limit}
    assert [*in_flight] == receivers[: len(in_flight)]
    assert due_messages(scheduler, in_flight, known).messages == []
    hanging = dict(list(in_flight.items())[:10])
    known = dict.fromkeys([*receivers[len(in_flight) :], *in_flight], candidate)
    after = due_messages(scheduler, hanging, known)
    assert not deliveries_by_receiver(after).keys() & hanging.keys()
    assert after.messages[0].delivery.receiver == receivers[len(in_flight)]  # they take turns


def test_new_and_failing_receivers_leave_slots_for_healthy_ones(scheduler: Scheduler) -> None:
    for port in range(1, 101):
        add(scheduler, f"http://127.0.0.1:{port}/")
    for _ in range(6):
        run_one(scheduler)
    failed, took = [f"webhook-{n}" for n in range(1, 71)], [f"webhook-{n}" for n in range(71, 99)]
    known = {**dict.fromkeys(failed, ReceiverHealth.FAILING), **dict.fromkeys(took, ReceiverHealth.HEALTHY)}
    hanging = {name: frozenset({DeliveryId(10_000)}) for name in failed[: MAX_CONCURRENT[ReceiverHealth.FAILING]]}
    sent = deliveries_by_receiver(due_messages(scheduler, hanging, known))
    assert {name: len(sent[name]) for name in sent if name not in took} == {"webhook-99": 1, "webhook-100": 1}
    assert [len(sent[name]) for name in took[:15]] == [4] * 15
    assert sum(map(len, [*hanging.values(), *sent.values()])) == MAX_CONCURRENT[ReceiverHealth.HEALTHY]


def test_backlog_of_hanging_receiver_fails_on_time_and_it_is_held(scheduler: Scheduler) -> None:
    add(scheduler)
    for _ in range(60):
        run_one(scheduler)
    started, attempts, ends = scheduler.clock.now(), dict[int, list[float]](), dict[DeliveryId, float]()
    known: dict[str, ReceiverHealth] = {}

    def elapsed() -> float:
        return (scheduler.clock.now() - started).total_seconds()

    while read_webhook(scheduler).held_until is None:
        due = due_messages(scheduler, {"webhook-1": frozenset(ends)}, known)
        for number in delivery_numbers(due):
            attempts.setdefault(number, []).append(elapsed())
            ends[DeliveryId(number)] = elapsed() + 30
        assert len(ends) <= MAX_PER_RECEIVER[ReceiverHealth.FAILING]
        due_in = [] if due.next_at is None else [(due.next_at - started).total_seconds()]
        scheduler.clock.advance(seconds=min([*ends.values(), *due_in]) - elapsed())
        for number in [n for n, end in ends.items() if end <= elapsed()]:
            del ends[number]
            known["webhook-1"] = ReceiverHealth.FAILING
            record_refusal(scheduler, delivery=number, status=None)
    assert attempts[1] == [0, 35, 75, 125]
    assert len(deliveries(scheduler, state=DeliveryState.FAILED)) == 10
    assert elapsed() < 10 * 60
    assert max(times[0] for times in attempts.values()) > elapsed() - 60  # new messages are sent throughout


def test_large_backlog_of_one_receiver_is_not_scanned(scheduler: Scheduler) -> None:
    """A hanging or held receiver costs the others nothing: a read takes a few rows of each receiver."""
    add(scheduler, "http://127.0.0.1:1/")
    scheduler.submit(webhooks=["http://127.0.0.1:2/"])
    for job in scheduler.drain():
        del job
    scheduler.run_request(lambda tx: add_messages(tx, 3_000))
    rows: list[int] = []
    real = scheduler.reader._db.rows

    def count(name: str, /, **values: Any) -> Any:
        result = real(name, **values)
        rows.append(len(result))
        return result

    scheduler.reader._db.rows = count  # type: ignore[method-assign]
    in_flight = {"webhook-1": frozenset(DeliveryId(n) for n in range(1, 5))}
    due = due_messages(scheduler, in_flight)
    assert [message.delivery.receiver for message in due.messages] == ["http://127.0.0.1:2"]
    assert sum(rows) < 20


def add_messages(tx: Transaction, count: int) -> None:
    from rota.webhooks.repository import OutgoingMessage

    message = OutgoingMessage(
        message="m",
        webhook=WebhookId(1),
        receiver="webhook-1",
        url=URL,
        kind="job.run.completed",
        job=None,
        run=None,
        group=None,
        payload="{}",
    )
    tx.webhooks.add_deliveries([message] * count, tx.now)


# Secrets.


def test_secret_is_generated_and_rotated(scheduler: Scheduler) -> None:
    webhook = add(scheduler)
    run_one(scheduler)
    assert due_messages(scheduler).messages[0].secrets == (webhook.secret,)
    new = scheduler.run_request(lambda tx: commands.rotate_secret(tx, WebhookId(1), RotationRequest(), actor="tester"))
    assert new.secret != webhook.secret
    assert due_messages(scheduler).messages[0].secrets == (new.secret, webhook.secret)
    scheduler.clock.advance(hours=24)
    assert due_messages(scheduler).messages[0].secrets == (new.secret,)
    last = scheduler.run_request(
        lambda tx: commands.rotate_secret(tx, WebhookId(1), RotationRequest(keep_old_for="0s"), actor="tester")
    )
    assert due_messages(scheduler).messages[0].secrets == (last.secret,)
    with pytest.raises(Conflict, match="has this secret already"):
        scheduler.run_request(
            lambda tx: commands.rotate_secret(tx, WebhookId(1), RotationRequest(secret=last.secret), actor="tester")
        )


def test_messages_of_jobs_are_signed_with_the_secret_of_the_home(scheduler: Scheduler) -> None:
    run_one(scheduler, webhooks=[URL])
    secret = scheduler.run_request(ensure_job_secret)
    assert due_messages(scheduler).messages[0].secrets == (secret,)
    scheduler.crash()
    assert scheduler.run_request(ensure_job_secret) == secret


def test_lists_and_events_contain_no_secret(scheduler: Scheduler) -> None:
    webhook = add(scheduler)
    new = scheduler.run_request(lambda tx: commands.rotate_secret(tx, WebhookId(1), RotationRequest(), actor="tester"))
    run_one(scheduler, webhooks=[URL])
    own = scheduler.run_request(ensure_job_secret)
    shown = encode([queries.list_webhooks(scheduler.reader, scheduler.clock.now()), scheduler.events])
    shown += encode([queries.show_delivery(scheduler.reader, d.id) for d in deliveries(scheduler)])
    for secret in (webhook.secret, new.secret, own):
        assert secret.encode() not in shown


# Queries and retention.


def test_deliveries_are_filtered_by_job_endpoint_and_state(scheduler: Scheduler) -> None:
    add(scheduler)
    first, other = run_one(scheduler, webhooks=[URL]), run_one(scheduler)
    record_answer(scheduler)
    numbers = [d.id for d in deliveries(scheduler, job=first)]
    assert numbers == [1, 2]
    assert [d.id for d in deliveries(scheduler, job=first, webhook=WebhookId(1))] == [1]
    assert [d.id for d in deliveries(scheduler, webhook=WebhookId(1))] == [1, 3]
    assert [d.id for d in deliveries(scheduler, state=DeliveryState.PENDING)] == [2, 3]
    assert [d.id for d in deliveries(scheduler, job=other, state=DeliveryState.DELIVERED)] == []
    assert [d.id for d in deliveries(scheduler, before_id=3, limit=1)] == [2]


def test_old_deliveries_are_removed_and_pending_ones_kept(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    add(scheduler)
    for _ in range(3):
        run_one(scheduler)
    record_answer(scheduler, delivery=1)
    record_answer(scheduler, delivery=3)
    scheduler.clock.advance(days=6)
    record_refusal(scheduler, delivery=2)  # it is still retried
    scheduler.clock.advance(days=2)
    run_one(scheduler)
    record_answer(scheduler, delivery=4)
    dry, real = collect(scheduler, is_dry=True), collect(scheduler)
    assert (dry.rows.jobs, dry.rows.deliveries, dry.abandoned) == (3, 2, 0)
    assert (real.rows.jobs, real.rows.deliveries, real.abandoned) == (3, 2, 0)
    assert [d.id for d in deliveries(scheduler)] == [2, 4]
    assert run_sql("SELECT delivery FROM delivery_attempt ORDER BY delivery") == [(2,), (4,)]
    assert record_answer(scheduler, delivery=2).state is DeliveryState.DELIVERED  # its job is already removed
    scheduler.clock.advance(days=8)
    collect(scheduler)
    run_one(scheduler)
    assert [d.id for d in deliveries(scheduler)] == [5]  # no number is used again


def collect(scheduler: Scheduler, days: int = 7, *, is_dry: bool = False) -> RetentionResult:
    return collector_of(scheduler).collect(timedelta(days=days), cause="gc", is_dry_run=is_dry)


def test_messages_that_are_never_accepted_are_abandoned_and_removed(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a dead endpoint would accumulate messages forever."""
    monkeypatch.setattr(collector, "ROW_BATCH_SIZE", 2)
    hold_endpoint(scheduler, 5)
    scheduler.clock.advance(days=5)
    request_redelivery(scheduler, 1)
    run_one(scheduler)
    scheduler.clock.advance(days=2, seconds=1)
    dry, before = collect(scheduler, is_dry=True), deliveries(scheduler)
    assert (dry.abandoned, len(before)) == (5, 16)
    result = collect(scheduler)
    assert (result.abandoned, result.rows.deliveries) == (5, dry.rows.deliveries)
    abandoned = [d for d in deliveries(scheduler) if 11 <= d.id <= 15]
    reason = "not accepted for 7d, and too old to be sent"
    assert [(d.state, d.reason) for d in abandoned] == [(DeliveryState.FAILED, reason)] * 5
    assert [d.id for d in deliveries(scheduler, state=DeliveryState.PENDING)] == [1, 16], "sent again, or new"
    events = [event.data for event in scheduler.events if event.kind == "webhook.abandoned"]
    assert events == [{"reason": reason, "failed": count} for count in (2, 2, 1)], "a bounded part in each turn"
    assert record_answer(scheduler, delivery=11).state is DeliveryState.FAILED  # it was in progress
    request_redelivery(scheduler, 12)
    assert collect(scheduler).abandoned == 0
    scheduler.clock.advance(days=7, seconds=1)
    collect(scheduler)
    assert not {11, 13, 14, 15} & {d.id for d in deliveries(scheduler)}


def test_message_is_not_abandoned_within_a_day(scheduler: Scheduler) -> None:
    """`rota gc --days 0` removes all ended records."""
    add(scheduler)
    run_one(scheduler)
    scheduler.clock.advance(hours=24)
    assert collect(scheduler, 0).abandoned == 0
    scheduler.clock.advance(seconds=1)
    assert collect(scheduler, 0).abandoned == 1
    assert deliveries(scheduler)[0].reason == "not accepted for 1d, and too old to be sent"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "nonsense"}, "begin with http"),
        ({"url": "http://[fe80::1]/"}, "is refused"),
        ({"events": ["job.run.exploded"]}, "unknown event kind 'job.run.exploded'; known kinds: job.run.completed"),
        ({"secret": "hunter2"}, "not a usable secret"),
    ],
)
def test_unusable_endpoint_is_refused(scheduler: Scheduler, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        add(scheduler, **fields)
    assert scheduler.reader.webhooks.list_all() == []
    assert not any(event.kind.startswith("webhook.") for event in scheduler.events)


def test_repeated_event_kinds_are_stored_once(scheduler: Scheduler) -> None:
    twice: Sequence[str] = ["job.run.failed", "job.run.failed"]
    assert add(scheduler, events=twice).events == ("job.run.failed",)


def test_query_of_url_is_shown_only_with_the_secret(scheduler: Scheduler) -> None:
    url = f"{URL}?token=hunter2"
    added = add(scheduler, url)
    run_one(scheduler)
    reader, now = scheduler.reader, scheduler.clock.now()
    assert queries.show_webhook(reader, added, now, reveal=True).url == url
    shown = [
        queries.show_webhook(reader, added, now),
        queries.list_webhooks(reader, now),
        queries.list_deliveries(
            reader, job=None, webhook=None, state=None, before_id=queries.MAX_DELIVERY_ID, limit=10
        ),
        queries.show_delivery(reader, DeliveryId(1)),
    ]
    for response in shown:
        assert f"{URL}?***".encode() in encode(response)
        assert b"hunter2" not in encode(response)
