"""What is counted as jobs go through, on the real store; and that counting asks nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.test_group import counting
from engine.test_webhook import add, refuse, take
from harness import Scheduler
from rota.core.event import Event
from rota.core.status import Status
from rota.engine.meter import MOST_TYPES, Ended, Meter
from rota.errors import InvalidInput, StoreError
from rota.executor.port import Account, Exited, FailedToStart, Started
from rota.metric import Metric, exposition
from rota.view.metrics import figures

Figures = Callable[..., float]


def reading(metrics: list[Metric]) -> Figures:
    """A figure by name and labels; 0 where there is none."""
    families = text_string_to_metric_families(exposition(metrics))
    found = {(each.name, *sorted(each.labels.items())): each.value for family in families for each in family.samples}

    def read(name: str, **labels: str) -> float:
        return found.get((name, *sorted(labels.items())), 0.0)

    return read


def counted(scheduler: Scheduler) -> Figures:
    return reading(scheduler.engine._meter.metrics)


def states(scheduler: Scheduler) -> Figures:
    with scheduler.reader.reading():
        return reading(figures(scheduler.reader, scheduler.sight))


def test_a_job_from_its_submit_to_its_end(scheduler: Scheduler) -> None:
    first, job = scheduler.submit(), scheduler.submit(type="build")
    scheduler.clock.advance(seconds=20)
    scheduler.start(first)
    scheduler.end(first)
    scheduler.clock.advance(seconds=2)
    scheduler.start(job)
    scheduler.clock.advance(seconds=40)
    scheduler.end(job, 1)
    seen = counted(scheduler)
    assert seen("rota_jobs_submitted_total") == 2
    assert seen("rota_dispatches_total") == 2
    assert seen("rota_job_wait_seconds_sum", type="build") == 20, "in the queue until there was room"
    assert seen("rota_dispatch_latency_seconds_sum") == 20 + 22, "ready at once, and until the child was there"
    assert seen("rota_start_duration_seconds_sum") == 20 + 2
    assert seen("rota_run_duration_seconds_sum", type="build") == 42
    assert seen("rota_run_duration_seconds_bucket", type="build", le="30") == 0
    assert seen("rota_run_duration_seconds_bucket", type="build", le="60") == 1
    assert seen("rota_runs_total", status="FAILED", type="build") == 1
    assert seen("rota_runs_total", status="COMPLETED", type="") == 1
    assert seen("rota_jobs_ended_total", status="FAILED") == 1
    assert seen("rota_events_total", kind="job.dispatched") == 2


def test_latency_counts_from_when_the_last_gate_opened(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 5})
    before = scheduler.submit()
    delayed = scheduler.submit(delay="10s")
    after = scheduler.submit(after=[before])
    scheduler.start(before)
    scheduler.clock.advance(seconds=10)
    scheduler.turn()
    scheduler.start(delayed)
    scheduler.end(before)
    scheduler.clock.advance(seconds=3)
    scheduler.start(after)
    seen = counted(scheduler)
    assert seen("rota_dispatch_latency_seconds_count") == 3
    assert seen("rota_dispatch_latency_seconds_sum") == 3
    assert seen("rota_job_wait_seconds_sum", type="") == 20, "the delay of one, the predecessor of the other"


def test_a_restart_begins_at_zero_and_counts_what_ends_after_it(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    run = scheduler.run_of(job)
    scheduler.crash([Account(run=run, pid=4242, start_time=1)])
    scheduler.clock.advance(seconds=5)
    scheduler.say(Exited(run=run, at=scheduler.clock.moment.timestamp(), code=0))
    seen = counted(scheduler)
    assert seen("rota_jobs_submitted_total") == 0
    assert seen("rota_start_duration_seconds_count") == 0, "it had begun before"
    assert seen("rota_run_duration_seconds_sum", type="") == 5


def test_a_child_is_counted_once_however_often_it_is_said_to_be_there(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(2):
        scheduler.say(Started(run=scheduler.run_of(job), pid=4242, start_time=1))
    for _ in range(2):
        scheduler.end(job)
    seen = counted(scheduler)
    assert (seen("rota_start_duration_seconds_count"), seen("rota_run_duration_seconds_count", type="")) == (1, 1)


def test_retries_and_starts_that_come_to_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit(retries=1)
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
    assert counted(scheduler)("rota_dispatch_failures_total") == 1
    for _ in range(10):
        scheduler.clock.advance(hours=1)
        scheduler.turn()
        if scheduler.status(job) is not Status.DISPATCHED:
            break
        scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
    failures = counted(scheduler)("rota_dispatch_failures_total")
    assert failures == len([start for start in scheduler.executor.starts if start.job == job]), "also the last"
    assert counted(scheduler)("rota_runs_total", status="FAILED", type="") == 0, "no run without an execution"
    other = scheduler.submit(retries=1)
    scheduler.start(other)
    scheduler.end(other, 1)
    assert counted(scheduler)("rota_retries_total", by="policy") == 1
    assert counted(scheduler)("rota_jobs_submitted_total") == 2


def test_what_is_undone_is_not_counted(make_scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(**{"global": 2})
    one, two = scheduler.submit(), scheduler.submit()
    commit = scheduler.session.commit

    def fail() -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.session, "commit", fail)
        scheduler.executor.inbox.append(Started(run=scheduler.run_of(one), pid=1, start_time=1))
        scheduler.engine.turn()
    assert scheduler.session.commit == commit
    assert counted(scheduler)("rota_turn_failures_total") == 1
    assert counted(scheduler)("rota_start_duration_seconds_count") == 0
    scheduler.turn()
    assert counted(scheduler)("rota_start_duration_seconds_count") == 1, "it was kept, and booked then"

    def refused(work: Any) -> None:
        work.notes.append(Ended("never", Status.FAILED, 1.0))
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        scheduler.do(refused)
    assert counted(scheduler)("rota_runs_total", status="FAILED", type="never") == 0
    scheduler.start(two)


def test_turns_and_the_requests_that_share_one(scheduler: Scheduler) -> None:
    before = counted(scheduler)
    scheduler.submit()
    seen = counted(scheduler)
    assert seen("rota_turn_requests_sum") - before("rota_turn_requests_sum") == 1
    turns = seen("rota_turn_duration_seconds_count")
    assert turns == seen("rota_commit_duration_seconds_count") == seen("rota_turn_requests_count")


def test_only_so_many_types_have_figures_of_their_own() -> None:
    meter = Meter()
    for n in range(2 * MOST_TYPES):
        meter.book(
            [Ended(f"t{n}", Status.COMPLETED, 1.0), Ended(None, Status.COMPLETED, 1.0)], [],
            requests=0, seconds=0, commit_seconds=0,
        )  # fmt: skip
    seen = reading(meter.metrics)
    assert seen("rota_runs_total", status="COMPLETED", type="t0") == 1
    assert seen("rota_runs_total", status="COMPLETED", type=f"t{MOST_TYPES - 1}") == 1
    assert seen("rota_runs_total", status="COMPLETED", type=f"t{MOST_TYPES}") == 0
    assert seen("rota_runs_total", status="COMPLETED", type="other") == MOST_TYPES
    assert seen("rota_runs_total", status="COMPLETED", type="") == 2 * MOST_TYPES


def test_what_became_of_the_times_of_schedules() -> None:
    meter = Meter()

    def told(kind: str, **data: Any) -> Event:
        return Event(kind=f"schedule.{kind}", at=0, cause="schedule", data=data)

    events = [
        told("fired", late=0.2), told("fired", late=90.0), told("skipped", late=0.001),
        told("missed", count=40, late=9000.0), told("fired", late=0.0, trigger=True), told("created"),
    ]  # fmt: skip
    meter.book([], events, requests=0, seconds=0, commit_seconds=0)
    seen = reading(meter.metrics)
    fires = {
        state: seen("rota_schedule_fires_total", state=state) for state in ("fired", "missed", "skipped", "failed")
    }
    assert fires == {"fired": 3, "missed": 40, "skipped": 1, "failed": 0}
    assert seen("rota_schedule_lateness_seconds_count") == 3
    assert seen("rota_schedule_lateness_seconds_sum") == pytest.approx(90.201)


def test_messages_by_what_became_of_them(scheduler: Scheduler) -> None:
    add(scheduler)
    for _ in range(3):
        job = scheduler.submit()
        scheduler.start(job)
        scheduler.end(job)
    assert states(scheduler)("rota_webhook_deliveries_pending") == 3
    take(scheduler, delivery=1)
    refuse(scheduler, delivery=2)
    assert states(scheduler)("rota_webhook_deliveries_pending") == 2
    refuse(scheduler, delivery=3, status=410)
    seen = counted(scheduler)
    assert seen("rota_webhook_deliveries_total", outcome="delivered") == 1
    assert seen("rota_webhook_deliveries_total", outcome="failed") == 2, "the last word, and what it took along"
    assert seen("rota_webhook_tries_total", outcome="success") == 1
    assert seen("rota_webhook_tries_total", outcome="failure") == 2
    assert states(scheduler)("rota_webhook_deliveries_pending") == 0


def test_states_are_those_of_the_moment(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2, "type__build": 1, "type__*": 7, "flow__x": -1})
    first = scheduler.submit(type="build")
    for _ in range(3):
        scheduler.submit(type="build")
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    scheduler.submit(locks=["k"], type="own")
    scheduler.submit(locks=["k"])
    scheduler.pause("type/own")
    seen = states(scheduler)
    by_status = {status: seen("rota_jobs", status=status) for status in ("QUEUED", "RUNNING", "WAITING_ON_DEPS")}
    assert by_status == {"QUEUED": 4, "RUNNING": 2, "WAITING_ON_DEPS": 1}
    assert seen("rota_jobs", status="WAITING_ON_LOCKS") == 1
    reasons = ("dependencies", "locks", "delay", "paused", "capacity")
    assert {reason: seen("rota_jobs_waiting", reason=reason) for reason in reasons} == {
        "dependencies": 1, "locks": 1, "delay": 1, "paused": 0, "capacity": 3,
    }  # fmt: skip
    assert seen("rota_pauses") == 1
    assert (seen("rota_pool_size", pool="global"), seen("rota_pool_used", pool="global")) == (2, 2)
    assert (seen("rota_pool_size", pool="type/build"), seen("rota_pool_used", pool="type/build")) == (1, 1)
    assert seen("rota_pool_queued", pool="type/build") == 3
    text = exposition(figures(scheduler.reader, scheduler.sight))
    assert "type/own" not in text, "it has the size of its kind, and no line of its own"
    assert "flow/x" not in text, "it has no limit"


def test_counting_runs_no_statement(make_scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def life(scheduler: Scheduler) -> list[str]:
        with counting(scheduler) as statements:
            for code in (0, 1):
                job = scheduler.submit(type="build", retries=0)
                scheduler.start(job)
                scheduler.end(job, code)
        return list(statements)

    scheduler = make_scheduler(**{"global": 1})
    life(scheduler)  # what is asked once is asked here
    with_it = life(scheduler)
    monkeypatch.setattr(Meter, "book", lambda *_args, **_options: None)
    monkeypatch.setattr(Meter, "undo", lambda *_args: None)
    assert with_it == life(scheduler)


def test_a_look_asks_a_few_statements_and_none_that_walks_the_ended(scheduler: Scheduler) -> None:
    database, names = scheduler.reader._db, list[str]()
    ask = database.rows

    def noted(name: str, /, **values: Any) -> Any:
        names.append(name)
        return ask(name, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "rows", noted)
        figures(scheduler.reader, scheduler.sight)
    assert "count_ended" not in names
    assert len(names) <= 15
