"""Engine metrics on the real store; recording them runs no statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.control.metrics import read_gauges
from rota.engine.metrics import MAX_TYPES, EndSample, EngineMetrics, Metric, render_metrics
from rota.errors import InvalidInput, StoreError
from rota.executor.port import ExitReport, RunReport, StartConfirmation, StartFailure
from rota.kernel.events import Event
from rota.kernel.status import Status
from tests.engine.test_groups import recorded_statements
from tests.harness import Scheduler
from tests.webhooks.test_outbox import add, record_answer, record_refusal

MetricReader = Callable[..., float]


def make_reader(metrics: list[Metric]) -> MetricReader:
    """Return a function that reads a metric by name and labels; 0 where there is none."""
    families = text_string_to_metric_families(render_metrics(metrics))
    values = {(s.name, *sorted(s.labels.items())): s.value for family in families for s in family.samples}

    def read(name: str, **labels: str) -> float:
        return values.get((name, *sorted(labels.items())), 0.0)

    return read


def counters(scheduler: Scheduler) -> MetricReader:
    return make_reader(scheduler.engine._metrics.metrics)


def gauges(scheduler: Scheduler) -> MetricReader:
    with scheduler.reader.read_transaction():
        return make_reader(read_gauges(scheduler.reader, scheduler.view_context))


def test_metrics_of_a_job_from_submit_to_end(scheduler: Scheduler) -> None:
    first, job = scheduler.submit(), scheduler.submit(type="build")
    scheduler.clock.advance(seconds=20)
    scheduler.confirm_start(first)
    scheduler.end_run(first)
    scheduler.clock.advance(seconds=2)
    scheduler.confirm_start(job)
    scheduler.clock.advance(seconds=40)
    scheduler.end_run(job, 1)
    read = counters(scheduler)
    assert read("rota_jobs_submitted_total") == 2
    assert read("rota_dispatches_total") == 2
    assert read("rota_job_wait_seconds_sum", type="build") == 20, "queued until there was capacity"
    assert read("rota_dispatch_latency_seconds_sum") == 20 + 22, "from ready until the process started: 20 s and 22 s"
    assert read("rota_start_duration_seconds_sum") == 20 + 2
    assert read("rota_run_duration_seconds_sum", type="build") == 42
    assert read("rota_run_duration_seconds_bucket", type="build", le="30") == 0
    assert read("rota_run_duration_seconds_bucket", type="build", le="60") == 1
    assert read("rota_runs_total", status="FAILED", type="build") == 1
    assert read("rota_runs_total", status="COMPLETED", type="") == 1
    assert read("rota_jobs_ended_total", status="FAILED") == 1
    assert read("rota_events_total", kind="job.dispatched") == 2


def test_latency_counts_from_the_last_open_gate(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 5})
    before = scheduler.submit()
    delayed = scheduler.submit(delay="10s")
    after = scheduler.submit(after=[before])
    scheduler.confirm_start(before)
    scheduler.clock.advance(seconds=10)
    scheduler.run_turns()
    scheduler.confirm_start(delayed)
    scheduler.end_run(before)
    scheduler.clock.advance(seconds=3)
    scheduler.confirm_start(after)
    read = counters(scheduler)
    assert read("rota_dispatch_latency_seconds_count") == 3
    assert read("rota_dispatch_latency_seconds_sum") == 3
    assert read("rota_job_wait_seconds_sum", type="") == 20, "the delay of one, the predecessor of the other"


def test_restart_begins_at_zero_and_counts_later_ends(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    run = scheduler.find_run(job)
    scheduler.crash([RunReport(run=run, pid=4242, start_time=1)])
    scheduler.clock.advance(seconds=5)
    scheduler.receive(ExitReport(run=run, at=scheduler.clock.moment.timestamp(), code=0))
    read = counters(scheduler)
    assert read("rota_jobs_submitted_total") == 0
    assert read("rota_start_duration_seconds_count") == 0, "it had started before"
    assert read("rota_run_duration_seconds_sum", type="") == 5


def test_repeated_confirmation_is_counted_once(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(2):
        scheduler.receive(StartConfirmation(run=scheduler.find_run(job), pid=4242, start_time=1))
    for _ in range(2):
        scheduler.end_run(job)
    read = counters(scheduler)
    assert (read("rota_start_duration_seconds_count"), read("rota_run_duration_seconds_count", type="")) == (1, 1)


def test_retries_and_failed_starts_are_counted(scheduler: Scheduler) -> None:
    job = scheduler.submit(retries=1)
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
    assert counters(scheduler)("rota_dispatch_failures_total") == 1
    for _ in range(10):
        scheduler.clock.advance(hours=1)
        scheduler.run_turns()
        if scheduler.status(job) is not Status.DISPATCHED:
            break
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
    failures = counters(scheduler)("rota_dispatch_failures_total")
    assert failures == len([start for start in scheduler.executor.starts if start.job == job]), "including the last"
    assert counters(scheduler)("rota_runs_total", status="FAILED", type="") == 0, "a failed start is no run"
    other = scheduler.submit(retries=1)
    scheduler.confirm_start(other)
    scheduler.end_run(other, 1)
    assert counters(scheduler)("rota_retries_total", by="policy") == 1
    assert counters(scheduler)("rota_jobs_submitted_total") == 2


@pytest.mark.both_databases
def test_undone_turns_and_requests_are_not_counted(make_scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = make_scheduler(**{"global": 2})
    first, second = scheduler.submit(), scheduler.submit()
    commit = scheduler.session.commit

    def fail() -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.session, "commit", fail)
        scheduler.executor.inbox.append(StartConfirmation(run=scheduler.find_run(first), pid=1, start_time=1))
        scheduler.engine.turn()
    assert scheduler.session.commit == commit
    assert counters(scheduler)("rota_turn_failures_total") == 1
    assert counters(scheduler)("rota_start_duration_seconds_count") == 0
    scheduler.run_turns()
    assert counters(scheduler)("rota_start_duration_seconds_count") == 1, "it was kept, and recorded then"

    def refused(tx: Any) -> None:
        tx.effects.samples.append(EndSample("never", Status.FAILED, 1.0))
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        scheduler.run_request(refused)
    assert counters(scheduler)("rota_runs_total", status="FAILED", type="never") == 0
    scheduler.confirm_start(second)


def test_end_that_recovery_rolled_back_is_not_counted(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)

    def fail(*_: object, **__: object) -> None:
        raise ValueError("its record is damaged")

    monkeypatch.setattr("rota.engine.breaker.record_end", fail)
    scheduler.crash()
    assert scheduler.status(job) is Status.FAILED
    assert counters(scheduler)("rota_runs_total", status="FAILED", type="") == 1


def test_turns_and_their_requests_are_counted(scheduler: Scheduler) -> None:
    before = counters(scheduler)
    scheduler.submit()
    read = counters(scheduler)
    assert read("rota_turn_requests_sum") - before("rota_turn_requests_sum") == 1
    turns = read("rota_turn_duration_seconds_count")
    assert turns == read("rota_commit_duration_seconds_count") == read("rota_turn_requests_count")


def test_number_of_types_with_their_own_metrics_is_limited() -> None:
    metrics = EngineMetrics()
    for n in range(2 * MAX_TYPES):
        metrics.record(
            [EndSample(f"t{n}", Status.COMPLETED, 1.0), EndSample(None, Status.COMPLETED, 1.0)],
            [],
            requests=0,
            seconds=0,
            commit_seconds=0,
        )
    read = make_reader(metrics.metrics)
    assert read("rota_runs_total", status="COMPLETED", type="t0") == 1
    assert read("rota_runs_total", status="COMPLETED", type=f"t{MAX_TYPES - 1}") == 1
    assert read("rota_runs_total", status="COMPLETED", type=f"t{MAX_TYPES}") == 0
    assert read("rota_runs_total", status="COMPLETED", type="other") == MAX_TYPES
    assert read("rota_runs_total", status="COMPLETED", type="") == 2 * MAX_TYPES


def test_schedule_fires_are_counted_by_state() -> None:
    metrics = EngineMetrics()

    def make_event(kind: str, **data: Any) -> Event:
        return Event(kind=f"schedule.{kind}", at=0, cause="schedule", data=data)

    events = [
        make_event("fired", delay_seconds=0.2),
        make_event("fired", delay_seconds=90.0),
        make_event("skipped", delay_seconds=0.001),
        make_event("missed", count=40, delay_seconds=9000.0),
        make_event("fired", delay_seconds=0.0, trigger=True),
        make_event("created"),
    ]
    metrics.record([], events, requests=0, seconds=0, commit_seconds=0)
    read = make_reader(metrics.metrics)
    fires = {
        state: read("rota_schedule_fires_total", state=state) for state in ("fired", "missed", "skipped", "failed")
    }
    assert fires == {"fired": 3, "missed": 40, "skipped": 1, "failed": 0}
    assert read("rota_schedule_lateness_seconds_count") == 3
    assert read("rota_schedule_lateness_seconds_sum") == pytest.approx(90.201)


def test_webhook_deliveries_are_counted_by_outcome(scheduler: Scheduler) -> None:
    add(scheduler)
    for _ in range(3):
        job = scheduler.submit()
        scheduler.confirm_start(job)
        scheduler.end_run(job)
    assert gauges(scheduler)("rota_webhook_deliveries_pending") == 3
    record_answer(scheduler, delivery=1)
    record_refusal(scheduler, delivery=2)
    assert gauges(scheduler)("rota_webhook_deliveries_pending") == 2
    record_refusal(scheduler, delivery=3, status=410)
    read = counters(scheduler)
    assert read("rota_webhook_deliveries_total", outcome="delivered") == 1
    assert read("rota_webhook_deliveries_total", outcome="failed") == 2, (
        "the one with the final response, and the pending one"
    )
    assert read("rota_webhook_attempts_total", outcome="success") == 1
    assert read("rota_webhook_attempts_total", outcome="failure") == 2
    assert gauges(scheduler)("rota_webhook_deliveries_pending") == 0


def test_gauges_are_read_at_scrape_time(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2, "type__build": 1, "type__*": 7, "flow__x": -1})
    first = scheduler.submit(type="build")
    for _ in range(3):
        scheduler.submit(type="build")
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    scheduler.submit(locks=["k"], type="own")
    scheduler.submit(locks=["k"])
    scheduler.pause("type/own")
    read = gauges(scheduler)
    by_status = {status: read("rota_jobs", status=status) for status in ("QUEUED", "RUNNING", "WAITING_ON_DEPS")}
    assert by_status == {"QUEUED": 4, "RUNNING": 2, "WAITING_ON_DEPS": 1}
    assert read("rota_jobs", status="WAITING_ON_LOCKS") == 1
    reasons = ("dependencies", "locks", "delay", "paused", "capacity")
    assert {reason: read("rota_jobs_waiting", reason=reason) for reason in reasons} == {
        "dependencies": 1,
        "locks": 1,
        "delay": 1,
        "paused": 0,
        "capacity": 3,
    }
    assert read("rota_pauses") == 1
    assert (read("rota_pool_size", pool="global"), read("rota_pool_used", pool="global")) == (2, 2)
    assert (read("rota_pool_size", pool="type/build"), read("rota_pool_used", pool="type/build")) == (1, 1)
    assert read("rota_pool_queued", pool="type/build") == 3
    text = render_metrics(read_gauges(scheduler.reader, scheduler.view_context))
    assert "type/own" not in text, "it has the size of its kind, and no entry of its own"
    assert "flow/x" not in text, "it has no limit"
    assert "/*" not in text, "a wildcard is no pool"


def test_recording_metrics_runs_no_statement(make_scheduler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_jobs(scheduler: Scheduler) -> list[str]:
        with recorded_statements(scheduler) as statements:
            for code in (0, 1):
                job = scheduler.submit(type="build", retries=0)
                scheduler.confirm_start(job)
                scheduler.end_run(job, code)
        return list(statements)

    scheduler = make_scheduler(**{"global": 1})
    run_jobs(scheduler)  # runs the statements that run only once
    with_it = run_jobs(scheduler)
    monkeypatch.setattr(EngineMetrics, "record", lambda *_args, **_options: None)
    monkeypatch.setattr(EngineMetrics, "record_failed_turn", lambda *_args: None)
    assert with_it == run_jobs(scheduler)


def test_gauges_take_few_statements_and_read_no_ended_jobs(scheduler: Scheduler) -> None:
    database, names = scheduler.reader._db, list[str]()
    rows = database.rows

    def record(name: str, /, **values: Any) -> Any:
        names.append(name)
        return rows(name, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "rows", record)
        read_gauges(scheduler.reader, scheduler.view_context)
    assert "count_ended" not in names
    assert len(names) <= 15
