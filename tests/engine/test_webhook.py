"""The outbox, and what becomes of a message: on the real store, with receivers that the test plays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.test_gc import collector_of
from harness import Raw, Scheduler
from rota.command import webhook as command
from rota.command.edit import edit, parse
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.command.webhook import RotationWanted, WebhookWanted
from rota.core.event import Event
from rota.core.place import MOST_AT_ONCE, MOST_OF_ONE, Standing
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.status import Status
from rota.core.webhook import HOLD, Delivery, DeliveryState, HookPolicy, Try, Webhook
from rota.engine import gc
from rota.engine import webhook as outbox
from rota.engine.gc import Collection
from rota.engine.sender import Due, due
from rota.engine.webhook import book_try
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound, StorageFull
from rota.executor.port import Exited, FailedToStart
from rota.ids import DeliveryId, JobId, WebhookId, show_job
from rota.store.moment import to_stored
from rota.view import webhook as view
from rota.view.group import groups
from rota.wire import encode
from rota.wire.scheduler import WebhookSummaryForm

URL = "http://127.0.0.1:9/hook"
ENDS = ("job.run.completed", "job.run.failed", "job.run.skipped", "job.run.cancelled", "job.blocked", "group.finished")
STATEMENTS = Path(outbox.__file__).parent.parent / "store/sql/webhook.sql"


def add(scheduler: Scheduler, url: str = URL, **fields: Any) -> Webhook:
    wanted = msgspec.convert({"url": url, **fields}, WebhookWanted)
    made: Webhook = scheduler.do(lambda work: command.add(work, wanted, actor="tester"))
    return made


def deliveries(scheduler: Scheduler, **only: Any) -> list[Delivery]:
    """The oldest first."""
    asked = {"job": None, "webhook": None, "state": None, "below": 2**62, "limit": 100_000, **only}
    return scheduler.reader.deliveries(**asked)[::-1]


def payload(scheduler: Scheduler, delivery: Delivery) -> Any:
    return json.loads(scheduler.reader.payload(delivery.id))


def told(scheduler: Scheduler, **only: Any) -> list[tuple[str, str]]:
    """What of which job."""
    return [(each.kind, "" if each.job is None else show_job(each.job)) for each in deliveries(scheduler, **only)]


def take(scheduler: Scheduler, *, delivery: int = 1, status: int | None = 204, error: str | None = None) -> Delivery:
    """The receiver's word to one try."""
    done = Try(at=scheduler.clock.now(), duration=timedelta(milliseconds=3), status=status, error=error)
    scheduler.do(lambda work: book_try(work, DeliveryId(delivery), done))
    found = scheduler.reader.delivery(DeliveryId(delivery))
    assert found is not None
    return found


def refuse(scheduler: Scheduler, *, delivery: int = 1, status: int | None = 500) -> Delivery:
    return take(scheduler, delivery=delivery, status=status, error=f"answered {status}")


def fail_whole(scheduler: Scheduler, delivery: int) -> None:
    while refuse(scheduler, delivery=delivery).state is DeliveryState.PENDING:
        scheduler.clock.advance(seconds=30)


def endpoint(scheduler: Scheduler, number: int = 1) -> Webhook:
    found = scheduler.reader.webhook(WebhookId(number))
    assert found is not None
    return found


def to_send(
    scheduler: Scheduler,
    flying: Mapping[str, frozenset[DeliveryId]] | None = None,
    known: Mapping[str, Standing] | None = None,
) -> Due:
    """Unless said otherwise the endpoint is known to take what it is sent."""
    known = {"webhook-1": Standing.TOOK} if known is None else known
    return due(scheduler.reader, now=scheduler.clock.now(), flying=flying or {}, known=known)


def ids(found: Due) -> list[int]:
    return [int(letter.delivery.id) for letter in found.letters]


def run_one(scheduler: Scheduler, code: int = 0, **fields: Any) -> JobId:
    job = scheduler.submit(**fields)
    scheduler.start(job)
    scheduler.end(job, code)
    return job


# The outbox.


def test_dec_009_a_message_is_stored_with_what_it_tells_of_or_not_at_all(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LESSONS: an event was sent before its commit, and told of what was undone."""
    add(scheduler)
    job = scheduler.submit()
    scheduler.start(job)
    seen: list[tuple[str, int]] = []
    scheduler.engine.outbox.tell = lambda: seen.append((scheduler.status(job), len(deliveries(scheduler))))
    with monkeypatch.context() as patched:
        patched.setattr(scheduler.session._db, "commit", _full)
        scheduler.end(job)
    assert (scheduler.status(job), deliveries(scheduler), seen) == ("RUNNING", [], [])
    scheduler.turn()
    assert told(scheduler) == [("job.run.completed", "job-1")]
    assert seen == [("COMPLETED", 1)]  # who is woken finds it stored
    scheduler.crash()
    assert told(scheduler) == [("job.run.completed", "job-1")]


def _full() -> None:
    raise StorageFull("the disk is full")


def test_an_endpoint_that_could_not_be_stored_is_told_nothing(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told is kept in memory: a turn that is undone is undone there too."""
    with monkeypatch.context() as patched:
        patched.setattr(scheduler.session._db, "commit", _full)
        with pytest.raises(StorageFull):
            add(scheduler)
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.end(job)
    assert (scheduler.status(job), deliveries(scheduler)) == ("COMPLETED", [])


def test_what_a_refusal_undoes_is_told_to_nobody(scheduler: Scheduler) -> None:
    add(scheduler, events=list(ENDS))
    one, other = scheduler.submit(locks=["a"]), scheduler.submit()

    def refused(work: Work) -> None:
        work.session.emit(Event(kind="job.cancelled", at=to_stored(work.now), cause="cancel", job=other))
        raise Conflict("no")

    with pytest.raises(Conflict):
        scheduler.do(refused)
    assert deliveries(scheduler) == []
    scheduler.start(one)
    scheduler.end(one)
    assert told(scheduler) == [("job.run.completed", "job-1")]


def statements_of(scheduler: Scheduler, act: Any) -> list[str]:
    counted: list[str] = []
    database = scheduler.session._db

    class Counting:
        def __getattr__(self, name: str) -> Any:
            call = getattr(database, name)

            def counting(*args: Any, **values: Any) -> Any:
                counted.extend(args[:1])
                return call(*args, **values)

            return counting

    scheduler.session._db = Counting()
    try:
        act()
    finally:
        scheduler.session._db = database
    return counted


def test_a_job_that_nobody_is_told_of_costs_no_statement(scheduler: Scheduler) -> None:
    own = {line.split()[2].rstrip(":") for line in STATEMENTS.read_text().splitlines() if line.startswith("-- name")}
    job = scheduler.submit()

    def end() -> None:
        scheduler.start(job)
        scheduler.end(job)
        scheduler.submit()

    assert not own & set(statements_of(scheduler, end))


def test_many_ends_of_one_turn_are_told_in_a_few_statements(make_scheduler: Any) -> None:
    scheduler: Scheduler = make_scheduler(**{"global": -1})
    add(scheduler)
    around = Surroundings(cwd="/", variables={})
    wanted = [Submission(command=["true"])] * 1_200
    jobs = scheduler.do(lambda work: submit(work, wanted, around, actor="tester")).jobs
    at = scheduler.clock.now().timestamp()
    ends = [Exited(run=scheduler.run_of(job), at=at, code=0) for job in jobs]

    def end() -> None:
        scheduler.executor.inbox.extend(ends)
        scheduler.engine.turn()

    counted = statements_of(scheduler, end)
    assert len(deliveries(scheduler)) == 1_200
    assert counted.count("jobs") == 3
    assert sum(name in ("add_delivery", "next_delivery") for name in counted) <= 4


# What is told.


def assert_equals_the_api(scheduler: Scheduler, delivery: Delivery) -> Any:
    """Byte for byte."""
    assert delivery.job is not None
    said = msgspec.json.decode(scheduler.reader.payload(delivery.id), type=dict[str, msgspec.Raw])
    data = msgspec.json.decode(said["data"], type=dict[str, msgspec.Raw])
    form = scheduler.show(delivery.job)
    assert bytes(data["job"]) == encode(form)
    assert bytes(data["run"]) == encode(form.run)
    assert list(said) == ["type", "timestamp", "data"]
    return payload(scheduler, delivery)


def test_every_end_is_told_as_the_api_shows_it(scheduler: Scheduler) -> None:
    add(scheduler, events=list(ENDS))
    job = scheduler.submit(name="first", params={"ä": [1, None, "\x00"]}, locks=["k:shared"])
    (scheduler.home / "jobs" / str(job)).mkdir(parents=True)
    (scheduler.home / "jobs" / str(job) / "session").write_text("/tmp/session.jsonl\n")
    scheduler.start(job)
    scheduler.end(job)
    skipped = scheduler.submit(skip_if="true")
    scheduler.start(skipped)
    scheduler.say(Exited(run=scheduler.run_of(skipped), at=scheduler.clock.moment.timestamp(), code=0, skipped="true"))
    running = scheduler.submit()
    cancelled = scheduler.submit()
    scheduler.cancel(cancelled)
    blocked = scheduler.submit(after=[running])
    unwanted = scheduler.submit(after=[f"{show_job(job)}:failed"])
    scheduler.start(running)
    scheduler.end(running, 1)
    assert told(scheduler) == [
        ("job.run.completed", "job-1"), ("job.run.skipped", "job-2"), ("job.run.cancelled", "job-4"),
        ("job.run.skipped", show_job(unwanted)), ("job.run.failed", "job-3"), ("job.blocked", show_job(blocked)),
    ]  # fmt: skip
    for each in deliveries(scheduler):
        said = assert_equals_the_api(scheduler, each)
        assert said["type"] == each.kind
    first = payload(scheduler, deliveries(scheduler)[0])
    assert first["data"]["job"]["session_path"] == "/tmp/session.jsonl"
    assert first["data"]["run"]["id"] == first["data"]["job"]["run"]["id"] == "run-1"
    assert first["timestamp"] == first["data"]["job"]["finished_at"]


def test_every_failed_run_of_a_chain_is_told_and_the_last_is_final(scheduler: Scheduler) -> None:
    scheduler.configure(retry=RetryPolicies(default=RetryPolicy(max_retries=1, base=timedelta(seconds=1))))
    add(scheduler)
    run_one(scheduler, 1, retries=1)
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    scheduler.start(JobId(2))
    scheduler.end(JobId(2), 1)
    said = [assert_equals_the_api(scheduler, each)["data"]["job"] for each in deliveries(scheduler)]
    assert [(each["id"], each["attempt"], each["permanently_failed"]) for each in said] == [
        ("job-1", 1, False), ("job-2", 2, True),
    ]  # fmt: skip


def test_a_job_that_could_not_be_started_has_failed_without_a_run(scheduler: Scheduler) -> None:
    add(scheduler)
    job = scheduler.submit()
    for _ in range(3):
        scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
        scheduler.clock.advance(minutes=5)
        scheduler.turn()
    (only,) = deliveries(scheduler)
    said = assert_equals_the_api(scheduler, only)
    assert (said["type"], said["data"]["run"], only.run) == ("job.run.failed", None, None)
    assert "circuit-broken" in said["data"]["job"]["reason"]


def test_cancelled_and_blocked_are_told_only_to_who_asks(scheduler: Scheduler) -> None:
    add(scheduler)
    running, waiting = scheduler.submit(), scheduler.submit()
    scheduler.cancel(waiting)
    scheduler.submit(after=[running])
    scheduler.start(running)
    scheduler.end(running, 1)
    assert told(scheduler) == [("job.run.failed", "job-1")]


def test_the_end_of_a_group_is_told_as_the_api_says_it(scheduler: Scheduler) -> None:
    add(scheduler)
    group, (first, second) = scheduler.submit_group({}, {}, name="night", on_failure="stop")
    scheduler.end(first, 1)
    assert scheduler.status(second) is Status.CANCELLED
    (only,) = [each for each in deliveries(scheduler) if each.kind == "group.finished"]
    assert (only.job, only.group) == (None, group)
    shown = msgspec.to_builtins(groups(scheduler.reader, limit=1, below=None, with_ended=True).groups[0])
    assert payload(scheduler, only)["data"]["group"] == shown
    assert (shown["status"], shown["counts"]) == ("PARTIAL", {"FAILED": 1, "CANCELLED": 1})


def test_a_long_command_is_told_whole(scheduler: Scheduler) -> None:
    add(scheduler)
    long = ["x" * 100_000] * 10
    scheduler.submit("echo", *long)
    scheduler.start(JobId(1))
    scheduler.end(JobId(1))
    assert payload(scheduler, deliveries(scheduler)[0])["data"]["job"]["command"] == ["echo", *long]


def test_what_cannot_be_told_undoes_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise ValueError("a damaged record")

    add(scheduler)
    monkeypatch.setattr(outbox, "job_form", broken)
    job = run_one(scheduler)
    assert (scheduler.status(job), deliveries(scheduler)) == ("COMPLETED", [])


def test_damaged_records_tell_nobody_and_stop_nobody(scheduler: Scheduler, raw: Raw) -> None:
    add(scheduler)
    add(scheduler, "http://127.0.0.1:8/")
    one, other = scheduler.submit(webhooks=[URL]), scheduler.submit(webhooks=[URL])
    raw("UPDATE webhook SET events = 'nonsense' WHERE id = 1")
    raw(f"UPDATE spec SET webhook = 'nonsense' WHERE id = {one}")
    raw(f"""UPDATE spec SET webhook = '{{"urls": ["nonsense"]}}' WHERE id = {other}""")
    scheduler.crash()
    assert set(scheduler.drain()) == {one, other}
    assert [(each.webhook, each.job) for each in deliveries(scheduler)] == [(2, one), (2, other)]


# The URLs of jobs.


def test_a_job_tells_its_own_urls_beside_the_endpoints(scheduler: Scheduler) -> None:
    mine = ["http://127.0.0.1:7/a", "https://example.org/b?c"]
    run_one(scheduler, webhooks=[*mine, mine[0]])
    run_one(scheduler)
    add(scheduler)
    run_one(scheduler, webhooks=mine[:1], webhook_events=["job.run.failed"])
    assert [(each.url, each.webhook, show_job(each.job or JobId(0))) for each in deliveries(scheduler)] == [
        (mine[0], None, "job-1"), (mine[1], None, "job-1"), (URL, 1, "job-3"),
    ]  # fmt: skip
    assert {each.receiver for each in deliveries(scheduler)[:2]} == {"http://127.0.0.1:7", "https://example.org:443"}
    assert len({each.message for each in deliveries(scheduler)}) == 3


def test_its_urls_stay_with_a_job_through_retry_rewind_edit_and_restart(scheduler: Scheduler) -> None:
    job = scheduler.submit(webhooks=[URL], retries=1, webhook_events=["job.run.failed", "job.run.completed"])
    holds = scheduler.submit(after=[job], webhooks=[URL])
    scheduler.do(lambda work: edit(work, holds, parse(b'{"name": "other"}'), actor="tester"))
    scheduler.crash()
    scheduler.start(job)
    scheduler.end(job, 1)
    scheduler.clock.advance(minutes=5)
    scheduler.turn()
    scheduler.start(JobId(3))
    scheduler.end(JobId(3))
    scheduler.start(holds)
    scheduler.end(holds)
    scheduler.rewind(holds)
    scheduler.start(holds)
    scheduler.end(holds, 1)
    assert told(scheduler) == [
        ("job.run.failed", "job-1"), ("job.run.completed", "job-3"), ("job.run.completed", "job-2"),
        ("job.run.failed", "job-2"),
    ]  # fmt: skip
    assert len({each.run for each in deliveries(scheduler)} - {None}) == 4


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"webhooks": ["ftp://example.org"]}, "begins with http"),
        ({"webhooks": ["http://169.254.169.254/"]}, "is refused"),
        ({"webhooks": [f"http://127.0.0.1:{n}/" for n in range(1, 12)]}, "10 webhooks at most"),
        (
            {"webhooks": [URL], "webhook_events": ["job.finished"]},
            "nobody is told of 'job.finished'; there are job.run",
        ),
        ({"webhooks": [URL], "webhook_events": ["group.finished"]}, "nobody is told of 'group.finished'"),
        ({"webhook_events": ["job.run.failed"]}, "name one, in `webhooks`"),
    ],
)
def test_a_url_that_cannot_be_used_refuses_the_job(scheduler: Scheduler, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        scheduler.submit(**fields)
    assert scheduler.reader.counts() == {}


def test_an_allowed_network_is_let_through(scheduler: Scheduler) -> None:
    from rota.core.address import read_network

    scheduler.configure(webhooks=HookPolicy(allow=(read_network("169.254.1.0/24"),)))
    scheduler.submit(webhooks=["http://169.254.1.7/"])
    add(scheduler, "http://169.254.1.8/")
    with pytest.raises(InvalidInput, match="is refused"):
        add(scheduler, "http://169.254.2.8/")


# Tries.


def test_dec_009_one_try_and_three_more_then_only_by_hand(scheduler: Scheduler, raw: Raw) -> None:
    """LESSONS-like risk of seed 002: webhooks that try for ever."""
    add(scheduler)
    run_one(scheduler)
    waits = []
    for _ in range(3):
        found = refuse(scheduler)
        assert found.next_at is not None
        waits.append(found.next_at - scheduler.clock.now())
        assert ids(to_send(scheduler)) == []
        scheduler.clock.moment = found.next_at
        assert ids(to_send(scheduler)) == [1]
        scheduler.crash()  # tries and times are stored: it goes on where it was
    assert waits == [timedelta(seconds=5), timedelta(seconds=10), timedelta(seconds=20)]
    last = refuse(scheduler)
    assert (last.state, last.tries, last.reason, last.next_at) == (DeliveryState.FAILED, 4, "answered 500", None)
    scheduler.clock.advance(days=1)
    assert to_send(scheduler) == Due(letters=[], next_at=None)
    assert raw("SELECT number, status, error FROM delivery_try ORDER BY number") == [
        (n, 500, "answered 500") for n in (1, 2, 3, 4)
    ]
    assert refuse(scheduler).tries == 5  # one that was under way is in the log, and changes nothing
    assert [each.kind for each in scheduler.events].count("webhook.delivery_failed") == 1


def test_sent_again_it_is_the_same_message_with_all_its_tries(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    before = deliveries(scheduler)[0].message
    with pytest.raises(Conflict, match="still to be sent"):
        redeliver(scheduler)
    fail_whole(scheduler, 1)
    redeliver(scheduler)
    found = to_send(scheduler).letters[0]
    assert (found.delivery.message, found.delivery.state) == (before, DeliveryState.PENDING)
    for _ in range(3):
        assert refuse(scheduler).state is DeliveryState.PENDING
    assert take(scheduler).state is DeliveryState.DELIVERED
    redeliver(scheduler)  # what was delivered can be sent again too
    assert ids(to_send(scheduler)) == [1]


def redeliver(scheduler: Scheduler, delivery: int = 1) -> None:
    scheduler.do(lambda work: command.redeliver(work, DeliveryId(delivery), actor="tester"))


def test_who_sends_again_what_is_still_to_be_sent_is_told_when_it_is(scheduler: Scheduler) -> None:
    held(scheduler, 1)
    until = "delivery-11 is still to be sent, by itself; webhook-1 is held for 9m59s more, and `rota webhook enable"
    scheduler.clock.advance(milliseconds=1500)
    with pytest.raises(Conflict, match=until):
        redeliver(scheduler, 11)
    scheduler.do(lambda work: command.enable(work, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="by itself; it is due, or under way"):
        redeliver(scheduler, 11)
    refuse(scheduler, delivery=11)
    scheduler.clock.advance(milliseconds=1500)
    with pytest.raises(Conflict, match="by itself; its next try is in 4s"):
        redeliver(scheduler, 11)


def test_what_cannot_be_sent_again(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such delivery: delivery-1"):
        redeliver(scheduler)
    add(scheduler)
    run_one(scheduler)
    take(scheduler)
    scheduler.do(lambda work: command.disable(work, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="webhook-1 is disabled; `rota webhook enable webhook-1` first"):
        redeliver(scheduler)
    scheduler.do(lambda work: command.remove(work, WebhookId(1), actor="tester"))
    with pytest.raises(Conflict, match="webhook-1 was removed"):
        redeliver(scheduler)


def test_a_receiver_that_is_gone_is_disabled(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    run_one(scheduler)
    assert take(scheduler, status=410, error="answered 410").state is DeliveryState.FAILED
    assert [(each.state, each.reason) for each in deliveries(scheduler)] == [
        (DeliveryState.FAILED, "answered 410"), (DeliveryState.FAILED, "it answered 410 Gone"),
    ]  # fmt: skip
    assert endpoint(scheduler).disabled_reason == "it answered 410 Gone"
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 2  # nothing new for it
    assert view.summary(scheduler.reader) == WebhookSummaryForm(held=[], disabled=["webhook-1"], pending=0)
    scheduler.do(lambda work: command.enable(work, WebhookId(1), actor="tester"))
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 3
    kinds = [each.kind for each in scheduler.events if each.kind.startswith("webhook.")]
    assert kinds == ["webhook.created", "webhook.delivery_failed", "webhook.disabled", "webhook.enabled"]


def test_a_job_url_that_is_gone_fails_at_once(scheduler: Scheduler) -> None:
    run_one(scheduler, webhooks=[URL])
    assert take(scheduler, status=410, error="answered 410").state is DeliveryState.FAILED


def test_removed_is_gone_and_its_number_is_not_used_again(scheduler: Scheduler) -> None:
    add(scheduler)
    run_one(scheduler)
    scheduler.do(lambda work: command.remove(work, WebhookId(1), actor="tester"))
    assert [(each.state, each.reason) for each in deliveries(scheduler)] == [
        (DeliveryState.FAILED, "the endpoint was removed")
    ]
    run_one(scheduler)
    assert len(deliveries(scheduler)) == 1
    assert add(scheduler).id == 2
    with pytest.raises(NotFound, match="no such webhook: webhook-1"):
        scheduler.do(lambda work: command.enable(work, WebhookId(1), actor="tester"))


# An endpoint that takes nothing.


def held(scheduler: Scheduler, more: int = 3) -> None:
    """Ten deliveries failed, and so many are left."""
    add(scheduler)
    for _ in range(10 + more):
        run_one(scheduler)
    for n in range(1, 11):
        fail_whole(scheduler, n)


def test_an_endpoint_whose_last_ten_failed_is_held_and_then_tried_with_one(scheduler: Scheduler) -> None:
    held(scheduler)
    until = endpoint(scheduler).held_until
    assert until == scheduler.clock.now() + HOLD
    run_one(scheduler)
    assert to_send(scheduler) == Due(letters=[], next_at=until)
    assert view.summary(scheduler.reader) == WebhookSummaryForm(held=["webhook-1"], disabled=[], pending=4)
    scheduler.crash()
    scheduler.clock.moment = until
    assert ids(to_send(scheduler)) == [11]
    assert ids(to_send(scheduler, {"webhook-1": frozenset({DeliveryId(11)})})) == []
    take(scheduler, delivery=11)
    assert endpoint(scheduler).held_until is None
    assert ids(to_send(scheduler)) == [12, 13, 14]
    kinds = [each.kind for each in scheduler.events if each.kind in ("webhook.held", "webhook.freed")]
    assert kinds == ["webhook.held", "webhook.freed"]


def test_a_failure_of_the_one_holds_it_again(scheduler: Scheduler) -> None:
    held(scheduler)
    scheduler.clock.advance(minutes=10)
    assert ids(to_send(scheduler)) == [11]
    refuse(scheduler, delivery=11)
    assert to_send(scheduler) == Due(letters=[], next_at=scheduler.clock.now() + HOLD)


def test_what_an_endpoint_that_is_held_again_and_again_does_not_take_fails(scheduler: Scheduler) -> None:
    """It is asked with what was tried most: with another each time, none would come to its end."""
    held(scheduler)
    asked_with = []
    for _ in range(8):
        scheduler.clock.advance(minutes=10)
        run_one(scheduler)
        (asked,) = ids(to_send(scheduler))
        asked_with.append(asked)
        refuse(scheduler, delivery=asked)
    assert asked_with == [11] * 4 + [12] * 4
    assert [each.id for each in deliveries(scheduler, state=DeliveryState.FAILED)] == [*range(1, 13)]


def test_what_was_tried_before_goes_before_what_was_not(scheduler: Scheduler) -> None:
    """However many wait behind it. What is not due yet holds up nobody."""
    add(scheduler)
    for _ in range(12):
        run_one(scheduler)
    for n in (5, 6, 7):
        refuse(scheduler, delivery=n)
    assert ids(to_send(scheduler)) == [1, 2, 3, 4]
    scheduler.clock.advance(seconds=5)
    refuse(scheduler, delivery=6)
    assert ids(to_send(scheduler)) == [5, 7, 1, 2]
    scheduler.clock.advance(seconds=10)
    assert ids(to_send(scheduler)) == [6, 5, 7, 1]
    assert ids(to_send(scheduler, {"webhook-1": frozenset({DeliveryId(6), DeliveryId(7)})})) == [5, 1]
    for n in (6, 6):
        refuse(scheduler, delivery=n)
    redeliver(scheduler, 6)  # by hand it begins anew
    assert ids(to_send(scheduler)) == [5, 7, 1, 2]


def test_a_success_between_them_counts_anew(scheduler: Scheduler) -> None:
    add(scheduler)
    for n in range(1, 15):
        run_one(scheduler)
        if n == 8:
            take(scheduler, delivery=8)
        else:
            fail_whole(scheduler, n)
    assert (endpoint(scheduler).held_until, endpoint(scheduler).failures) == (None, 6)


def test_enabling_one_frees_it(scheduler: Scheduler) -> None:
    held(scheduler)
    scheduler.do(lambda work: command.enable(work, WebhookId(1), actor="tester"))
    assert ids(to_send(scheduler)) == [11, 12, 13]


# Who is sent what at once.


def flying_of(found: Due) -> dict[str, frozenset[DeliveryId]]:
    served = [(letter.delivery.receiver, letter.delivery.id) for letter in found.letters]
    return {each: frozenset(number for receiver, number in served if receiver == each) for each, _ in served}


@pytest.mark.parametrize("standing", Standing)
def test_a_receiver_has_its_own_places_and_all_together_have_a_bound(
    scheduler: Scheduler, standing: Standing
) -> None:  # fmt: skip
    receivers = [f"webhook-{n}" for n in range(1, 100)]
    for port in range(1, 100):
        add(scheduler, f"http://127.0.0.1:{port}/")
    for _ in range(6):
        run_one(scheduler)
    for number in range(1, 100):  # one of each was tried before
        refuse(scheduler, delivery=number)
    scheduler.clock.advance(seconds=5)
    known = dict.fromkeys(receivers, standing)
    first = to_send(scheduler, known=known)
    assert len(first.letters) == MOST_AT_ONCE[standing]
    flying = flying_of(first)
    most = 2 if standing is Standing.FAILED else MOST_OF_ONE[standing]  # what was tried, and one that was not
    assert {len(each) for each in flying.values()} == {most}
    assert [*flying] == receivers[: len(flying)]
    assert to_send(scheduler, flying, known).letters == []
    hanging = dict(list(flying.items())[:10])
    known = dict.fromkeys([*receivers[len(flying) :], *flying], standing)
    after = to_send(scheduler, hanging, known)
    assert not flying_of(after).keys() & hanging.keys()
    assert after.letters[0].delivery.receiver == receivers[len(flying)]  # they take turns


def test_whom_nobody_knows_and_who_fails_leave_room_for_the_others(scheduler: Scheduler) -> None:
    for port in range(1, 101):
        add(scheduler, f"http://127.0.0.1:{port}/")
    for _ in range(6):
        run_one(scheduler)
    failed, took = [f"webhook-{n}" for n in range(1, 71)], [f"webhook-{n}" for n in range(71, 99)]
    known = {**dict.fromkeys(failed, Standing.FAILED), **dict.fromkeys(took, Standing.TOOK)}
    hanging = {each: frozenset({DeliveryId(10_000)}) for each in failed[: MOST_AT_ONCE[Standing.FAILED]]}
    found = flying_of(to_send(scheduler, hanging, known))
    assert {each: len(found[each]) for each in found if each not in took} == {"webhook-99": 1, "webhook-100": 1}
    assert [len(found[each]) for each in took[:15]] == [4] * 15
    assert sum(map(len, [*hanging.values(), *found.values()])) == MOST_AT_ONCE[Standing.TOOK]


def test_a_backlog_of_one_that_hangs_fails_at_its_times_and_then_it_is_held(scheduler: Scheduler) -> None:
    add(scheduler)
    for _ in range(60):
        run_one(scheduler)
    began, tries, ends = scheduler.clock.now(), dict[int, list[float]](), dict[DeliveryId, float]()
    known: dict[str, Standing] = {}

    def elapsed() -> float:
        return (scheduler.clock.now() - began).total_seconds()

    while endpoint(scheduler).held_until is None:
        found = to_send(scheduler, {"webhook-1": frozenset(ends)}, known)
        for number in ids(found):
            tries.setdefault(number, []).append(elapsed())
            ends[DeliveryId(number)] = elapsed() + 30
        assert len(ends) <= MOST_OF_ONE[Standing.FAILED]
        due_in = [] if found.next_at is None else [(found.next_at - began).total_seconds()]
        scheduler.clock.advance(seconds=min([*ends.values(), *due_in]) - elapsed())
        for number in [each for each, end in ends.items() if end <= elapsed()]:
            del ends[number]
            known["webhook-1"] = Standing.FAILED
            refuse(scheduler, delivery=number, status=None)
    assert tries[1] == [0, 35, 75, 125]
    assert len(deliveries(scheduler, state=DeliveryState.FAILED)) == 10
    assert elapsed() < 10 * 60
    assert max(each[0] for each in tries.values()) > elapsed() - 60  # what is new is begun with all along


def test_ten_thousand_that_wait_for_one_receiver_are_not_walked_over(scheduler: Scheduler) -> None:
    """One that hangs or is held costs the others nothing: a look takes a few rows of each receiver."""
    add(scheduler, "http://127.0.0.1:1/")
    scheduler.submit(webhooks=["http://127.0.0.1:2/"])
    for job in scheduler.drain():
        del job
    scheduler.do(lambda work: many(work, 3_000))
    rows: list[int] = []
    real = scheduler.reader._db.rows

    def counting(name: str, /, **values: Any) -> Any:
        found = real(name, **values)
        rows.append(len(found))
        return found

    scheduler.reader._db.rows = counting  # type: ignore[method-assign]
    flying = {"webhook-1": frozenset(DeliveryId(n) for n in range(1, 5))}
    found = to_send(scheduler, flying)
    assert [letter.delivery.receiver for letter in found.letters] == ["http://127.0.0.1:2"]
    assert sum(rows) < 20


def many(work: Work, count: int) -> None:
    from rota.store.webhook import Message

    message = Message(
        message="m", webhook=WebhookId(1), receiver="webhook-1", url=URL, kind="job.run.completed", job=None, run=None,
        group=None, payload="{}",
    )  # fmt: skip
    work.session.add_deliveries([message] * count, work.now)


# Secrets.


def test_a_secret_is_made_kept_and_changed_over(scheduler: Scheduler) -> None:
    made = add(scheduler)
    run_one(scheduler)
    assert to_send(scheduler).letters[0].secrets == (made.secret,)
    new = scheduler.do(lambda work: command.rotate(work, WebhookId(1), RotationWanted(), actor="tester"))
    assert new.secret != made.secret
    assert to_send(scheduler).letters[0].secrets == (new.secret, made.secret)
    scheduler.clock.advance(hours=24)
    assert to_send(scheduler).letters[0].secrets == (new.secret,)
    last = scheduler.do(lambda work: command.rotate(work, WebhookId(1), RotationWanted(keep="0s"), actor="tester"))
    assert to_send(scheduler).letters[0].secrets == (last.secret,)
    with pytest.raises(Conflict, match="has this secret already"):
        scheduler.do(
            lambda work: command.rotate(work, WebhookId(1), RotationWanted(secret=last.secret), actor="tester")
        )


def test_messages_of_jobs_are_signed_with_the_homes_own_secret(scheduler: Scheduler) -> None:
    run_one(scheduler, webhooks=[URL])
    secret = scheduler.do(command.secret_of_jobs)
    assert to_send(scheduler).letters[0].secrets == (secret,)
    scheduler.crash()
    assert scheduler.do(command.secret_of_jobs) == secret


def test_no_list_and_no_event_has_a_secret(scheduler: Scheduler) -> None:
    made = add(scheduler)
    new = scheduler.do(lambda work: command.rotate(work, WebhookId(1), RotationWanted(), actor="tester"))
    run_one(scheduler, webhooks=[URL])
    own = scheduler.do(command.secret_of_jobs)
    shown = encode([view.webhooks(scheduler.reader, scheduler.clock.now()), scheduler.events])
    shown += encode([view.delivery(scheduler.reader, each.id) for each in deliveries(scheduler)])
    for secret in (made.secret, new.secret, own):
        assert secret.encode() not in shown


# Looking and tidying up.


def test_deliveries_are_found_by_job_endpoint_and_state(scheduler: Scheduler) -> None:
    add(scheduler)
    one, other = run_one(scheduler, webhooks=[URL]), run_one(scheduler)
    take(scheduler)
    found = [each.id for each in deliveries(scheduler, job=one)]
    assert found == [1, 2]
    assert [each.id for each in deliveries(scheduler, job=one, webhook=WebhookId(1))] == [1]
    assert [each.id for each in deliveries(scheduler, webhook=WebhookId(1))] == [1, 3]
    assert [each.id for each in deliveries(scheduler, state=DeliveryState.PENDING)] == [2, 3]
    assert [each.id for each in deliveries(scheduler, job=other, state=DeliveryState.DELIVERED)] == []
    assert [each.id for each in deliveries(scheduler, below=3, limit=1)] == [2]


def test_old_deliveries_go_and_what_is_pending_keeps_nothing_but_itself(scheduler: Scheduler, raw: Raw) -> None:
    add(scheduler)
    for _ in range(3):
        run_one(scheduler)
    take(scheduler, delivery=1)
    take(scheduler, delivery=3)
    scheduler.clock.advance(days=6)
    refuse(scheduler, delivery=2)  # it is still tried
    scheduler.clock.advance(days=2)
    run_one(scheduler)
    take(scheduler, delivery=4)
    dry, real = collect(scheduler, is_dry=True), collect(scheduler)
    assert (dry.rows.jobs, dry.rows.deliveries, dry.given_up) == (3, 2, 0)
    assert (real.rows.jobs, real.rows.deliveries, real.given_up) == (3, 2, 0)
    assert [each.id for each in deliveries(scheduler)] == [2, 4]
    assert raw("SELECT delivery FROM delivery_try ORDER BY delivery") == [(2,), (4,)]
    assert take(scheduler, delivery=2).state is DeliveryState.DELIVERED  # of a job that is gone
    scheduler.clock.advance(days=8)
    collect(scheduler)
    run_one(scheduler)
    assert [each.id for each in deliveries(scheduler)] == [5]  # no number is used again


def collect(scheduler: Scheduler, days: int = 7, *, is_dry: bool = False) -> Collection:
    return collector_of(scheduler).collect(timedelta(days=days), cause="gc", is_dry=is_dry)


def test_what_nobody_takes_is_given_up_with_age_and_goes_as_others_do(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an endpoint that is dead for good would gather messages for ever."""
    monkeypatch.setattr(gc, "KEYS", 2)
    held(scheduler, 5)
    scheduler.clock.advance(days=5)
    redeliver(scheduler, 1)
    run_one(scheduler)
    scheduler.clock.advance(days=2, seconds=1)
    dry, before = collect(scheduler, is_dry=True), deliveries(scheduler)
    assert (dry.given_up, len(before)) == (5, 16)
    found = collect(scheduler)
    assert (found.given_up, found.rows.deliveries) == (5, dry.rows.deliveries)
    given_up = [each for each in deliveries(scheduler) if 11 <= each.id <= 15]
    reason = "not taken for 7d, and too old to be sent"
    assert [(each.state, each.reason) for each in given_up] == [(DeliveryState.FAILED, reason)] * 5
    assert [each.id for each in deliveries(scheduler, state=DeliveryState.PENDING)] == [1, 16], "sent again, or new"
    told = [each.data for each in scheduler.events if each.kind == "webhook.given_up"]
    assert told == [{"reason": reason, "failed": count} for count in (2, 2, 1)], "a bounded part in each turn"
    assert take(scheduler, delivery=11).state is DeliveryState.FAILED  # it was under way
    redeliver(scheduler, 12)
    assert collect(scheduler).given_up == 0
    scheduler.clock.advance(days=7, seconds=1)
    collect(scheduler)
    assert not {11, 13, 14, 15} & {each.id for each in deliveries(scheduler)}


def test_a_message_that_is_to_be_sent_is_not_given_up_within_a_day(scheduler: Scheduler) -> None:
    """`rota gc --days 0` is all that has ended."""
    add(scheduler)
    run_one(scheduler)
    scheduler.clock.advance(hours=24)
    assert collect(scheduler, 0).given_up == 0
    scheduler.clock.advance(seconds=1)
    assert collect(scheduler, 0).given_up == 1
    assert deliveries(scheduler)[0].reason == "not taken for 1d, and too old to be sent"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": "nonsense"}, "begins with http"),
        ({"url": "http://[fe80::1]/"}, "is refused"),
        ({"events": ["job.run.exploded"]}, "nobody is told of 'job.run.exploded'; there are job.run.completed"),
        ({"secret": "hunter2"}, "not a usable secret"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(scheduler: Scheduler, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        add(scheduler, **fields)
    assert scheduler.reader.webhooks() == []
    assert not any(each.kind.startswith("webhook.") for each in scheduler.events)


def test_events_are_kept_once_each(scheduler: Scheduler) -> None:
    twice: Sequence[str] = ["job.run.failed", "job.run.failed"]
    assert add(scheduler, events=twice).events == ("job.run.failed",)
