"""Failures that belong to no job: an unavailable supervisor, a machine without resources, unreadable records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.db.session import Session
from rota.engine.dispatch import StartOrders
from rota.engine.engine import Engine
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import ServiceUnavailable, StorageFull
from rota.executor.port import (
    ConnectionLoss,
    ExecutorFailure,
    ExecutorMessage,
    ExitReport,
    RunInventory,
    StartConfirmation,
    StartFailure,
    StartRefusal,
)
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases


class UnavailableExecutor(FakeExecutor):
    """Executor that is unavailable for a while."""

    is_unavailable = True

    def receive(self) -> list[ExecutorMessage]:
        if self.is_unavailable:
            raise ServiceUnavailable("the supervisor could not be started")
        return super().receive()


def test_without_supervisor_everything_except_starts_continues(scheduler: Scheduler) -> None:
    scheduler.session.close()
    scheduler.executor = executor = UnavailableExecutor()
    scheduler.start_engine()
    job = scheduler.submit()
    assert scheduler.started_jobs() == []
    assert "the supervisor could not be started" in str(scheduler.engine.first_blocker)
    assert scheduler.engine.next_deadline == scheduler.clock.monotonic() + 1
    other = scheduler.submit()
    scheduler.cancel(other)
    executor.is_unavailable = False
    scheduler.run_turns()
    assert scheduler.started_jobs() == [], "the connection is retried after a second, not in every turn"
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]
    assert scheduler.engine.first_blocker is None


def test_machine_failure_does_not_count_for_the_job(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    for _ in range(5):
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="disk full", is_machine_failure=True))
        assert scheduler.status(job) is Status.QUEUED
        assert scheduler.engine.first_blocker == "disk full"
        before = len(scheduler.started_jobs())
        scheduler.run_turns()
        assert len(scheduler.started_jobs()) == before, "nothing starts until a second is over"
        scheduler.clock.advance(seconds=1)
        scheduler.run_turns()
        assert len(scheduler.started_jobs()) == before + 1
    assert scheduler.job(job).dispatch_failures == 0
    scheduler.confirm_start(job)
    assert scheduler.engine.first_blocker is None
    scheduler.end_run(job)
    assert scheduler.status(job) is Status.COMPLETED


def test_one_trial_start_at_a_time_after_machine_failure(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit() for _ in range(3)]
    failures = [
        StartFailure(run=unlimited_scheduler.find_run(job), error="disk full", is_machine_failure=True) for job in jobs
    ]
    unlimited_scheduler.receive(*failures)
    for _ in range(3):
        unlimited_scheduler.executor.orders.clear()
        unlimited_scheduler.clock.advance(seconds=1)
        unlimited_scheduler.run_turns()
        assert unlimited_scheduler.started_jobs() == [jobs[0]]
        assert unlimited_scheduler.engine.blockers == ["disk full"], "it is reported until a start succeeds"
        unlimited_scheduler.receive(
            StartFailure(run=unlimited_scheduler.find_run(jobs[0]), error="disk full", is_machine_failure=True)
        )
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.run_turns()
    run = unlimited_scheduler.find_run(jobs[0])
    unlimited_scheduler.executor.orders.clear()
    unlimited_scheduler.receive(StartConfirmation(run=run, pid=1, start_time=1))
    assert unlimited_scheduler.started_jobs() == jobs[1:]
    assert unlimited_scheduler.engine.blockers == []


def test_machine_failure_without_waiting_jobs_does_not_spin(scheduler: Scheduler) -> None:
    """A deadline in the past would make the loop spin."""
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="disk full", is_machine_failure=True))
    scheduler.cancel(job)
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    due = scheduler.engine.next_deadline
    assert due is not None
    assert due > scheduler.clock.monotonic()
    assert scheduler.engine.errors == []


def test_unreadable_waiting_job_fails_alone(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    first = scheduler.submit()
    bad = scheduler.submit(after=[first])
    behind = scheduler.submit(after=[bad])
    good = scheduler.submit(after=[first])
    run_sql(f"UPDATE job SET waited_on = 'nonsense' WHERE id = {bad}")
    scheduler.end_run(first)
    shown = scheduler.show_job(bad)
    assert (shown.status, shown.exit_code) == ("FAILED", 1)
    assert str(shown.reason).startswith("scheduler data error: ")
    assert scheduler.status(behind) is Status.BLOCKED_BY_DEPENDENCY
    assert scheduler.started_jobs() == [first, good]


def test_claimed_job_without_record_fails_and_frees_its_slot(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    first, bad, good = (scheduler.submit() for _ in range(3))
    run_sql(f"DELETE FROM spec WHERE id = {bad}")
    scheduler.end_run(first)
    assert scheduler.started_jobs() == [first, good]
    assert run_sql(f"SELECT status, reason FROM job WHERE id = {bad}") == [
        ("FAILED", "scheduler data error: its record is missing from the store")
    ]


def test_internal_error_in_a_turn_is_reported_and_engine_continues(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.claim.plan_starts", lambda *_: 1 / 0)
        scheduler.engine.turn()
        assert scheduler.engine.errors
    job = scheduler.submit()
    assert scheduler.started_jobs() == [job]
    assert scheduler.engine.errors == []


def test_paused_job_yields_its_locks(make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": 4})
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('type/x', 'ann', 0)")
    held = scheduler.submit(type="x", locks=["repo"])
    later = scheduler.submit(locks=["repo"])
    assert scheduler.wait_detail(held) == "paused by ann"
    assert scheduler.started_jobs() == [later]


def test_repeated_inventory_after_a_loss_is_accepted(scheduler: Scheduler) -> None:
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.engine.first_blocker is None


def test_store_that_is_full_at_startup_is_opened_later(scheduler: Scheduler) -> None:
    """The engine starts, reports the error, refuses requests, and continues later, with a full evaluation."""
    job = scheduler.submit(delay="1h")
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    is_full = True

    def open_session() -> Session:
        if is_full:
            raise StorageFull("the disk is full")
        return scheduler.session

    engine = Engine(
        open_session=open_session,
        executor=scheduler.executor,
        clock=scheduler.clock,
        settings=scheduler.settings,
        start_orders=StartOrders(scheduler.home, scheduler.home / "jobs"),
        publish=scheduler.events.extend,
        submit_probes=scheduler.probe_requests.extend,
    )
    engine.start()
    responses: list[object] = []
    for _ in range(2):
        engine.turn([TurnRequest(lambda _: 1, responses.append)])
    assert [type(response) for response in responses] == [StorageFull, StorageFull]
    assert engine.first_blocker == "the disk is full"
    assert not engine.has_more, "it would spin"
    assert scheduler.executor.inbox, "the executor is not read before the store is open"
    is_full = False
    scheduler.clock.advance(hours=2)
    scheduler.session, scheduler.engine = scheduler.store.session(), engine
    scheduler.run_turns()
    assert engine.errors == []
    assert scheduler.started_jobs() == [job]


@pytest.mark.parametrize(("kind", "code"), [("exited", 1), ("unknown exit", None), ("failed to start", 1)])
def test_end_that_cannot_be_recorded_fails_its_own_job(
    make_scheduler: Callable[..., Scheduler], monkeypatch: pytest.MonkeyPatch, kind: str, code: int | None
) -> None:
    scheduler = make_scheduler(**{"global": 2})
    bad, good, behind = scheduler.submit(locks=["k"]), scheduler.submit(), scheduler.submit(locks=["k"])
    run = scheduler.find_run(bad)
    at = scheduler.clock.moment.timestamp()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.conclude", lambda *_: 1 / 0)
        broken.setattr("rota.engine.finish.record_dispatch_failure", lambda *_: 1 / 0)
        exit_report = ExitReport(run=run, at=at, code=0 if kind == "exited" else None)
        end = StartFailure(run=run, error="no") if kind == "failed to start" else exit_report
        scheduler.receive(end, StartConfirmation(run=scheduler.find_run(good), pid=1, start_time=1))
    record = scheduler.job(bad)
    assert (record.status, record.exit_code) == (Status.FAILED, code)
    assert record.reason == "scheduler data error: division by zero"
    assert scheduler.executor.acknowledged == [run]
    assert scheduler.status(good) is Status.RUNNING
    assert behind in scheduler.started_jobs(), "its locks and its capacity are free"
    assert scheduler.engine.errors == []


def test_end_that_cannot_even_be_failed_is_reported_and_repeated(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduler.submit()
    end = ExitReport(run=scheduler.find_run(job), at=scheduler.clock.moment.timestamp(), code=4)
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.finish", lambda *_, **__: 1 / 0)
        broken.setattr("rota.engine.finish.fail_without_retry", lambda *_, **__: 1 / 0)
        scheduler.receive(end)
    assert scheduler.executor.acknowledged == []
    assert scheduler.engine.errors == ["cannot record the end of run-1: ZeroDivisionError('division by zero')"]
    assert scheduler.engine.first_blocker is None, "other jobs start"
    scheduler.receive(end)  # as at the next connection
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 4)
    assert scheduler.engine.errors == []


def test_start_that_cannot_be_recorded_is_settled_by_its_end(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduler.submit()
    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.finish.record_start", lambda *_: 1 / 0)
        scheduler.confirm_start(job)
    assert scheduler.show_job(job).status == "RUNNING"
    scheduler.end_run(job)
    assert scheduler.status(job) is Status.COMPLETED


def test_refused_start_is_a_failed_dispatch(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    for delay in (1, 2):
        run = scheduler.find_run(job)
        scheduler.receive(StartRefusal(run=run, error="not understood"))
        assert scheduler.executor.stops[-1] == run, "a run with its number must not continue"
        assert scheduler.status(job) is Status.QUEUED
        scheduler.clock.advance(seconds=delay)
        scheduler.end_run(following) if delay == 1 else scheduler.run_turns()
        assert scheduler.find_run(job) > run
    scheduler.receive(StartRefusal(run=scheduler.find_run(job), error="not understood"))
    record = scheduler.job(job)
    assert record.status is Status.FAILED
    assert record.reason == "circuit-broken: the supervisor refused to start it: not understood"


def test_refused_start_of_cancelled_job_ends_it(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.receive(StartRefusal(run=scheduler.find_run(job), error="not understood"))
    assert scheduler.status(job) is Status.CANCELLED


def test_refusal_of_confirmed_start_changes_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.receive(StartRefusal(run=scheduler.find_run(job), error="known already"))
    assert scheduler.status(job) is Status.RUNNING


def test_executor_failure_is_reported_while_it_lasts(scheduler: Scheduler) -> None:
    scheduler.receive(ExecutorFailure(error="disk full; not reported: run-1"))
    assert scheduler.engine.errors == ["disk full; not reported: run-1"]
    scheduler.receive(ExecutorFailure(error=None))
    assert scheduler.engine.errors == []
    scheduler.receive(ExecutorFailure(error="disk full; not reported: run-1"))
    scheduler.receive(ConnectionLoss(reason="it was killed"))
    assert scheduler.engine.errors == []


def test_slow_store_is_reported_during_the_turn(scheduler: Scheduler) -> None:
    observed: list[list[str]] = []

    def wait(_tx: Transaction) -> None:
        for seconds in (9, 2):
            scheduler.clock.advance(seconds=seconds)
            observed.append(scheduler.engine.blockers)

    scheduler.run_request(wait)
    assert observed == [[], ["a turn has been running for 11 s; the store may not be responding"]]
    assert scheduler.engine.blockers == []


def test_machine_failure_is_reported_while_no_trial_is_possible(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no memory", is_machine_failure=True))
    scheduler.receive(ConnectionLoss(reason="killed"))
    scheduler.clock.advance(seconds=2)
    scheduler.run_turns()
    assert "no memory" in scheduler.engine.blockers
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.started_jobs() == [job, job]
    scheduler.confirm_start(job)
    assert scheduler.engine.blockers == []


def test_due_trial_wakes_the_engine_until_a_turn_runs(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no memory", is_machine_failure=True))
    scheduler.clock.advance(seconds=1)
    assert scheduler.engine.next_deadline == scheduler.clock.monotonic()
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job, job]


def test_failure_of_the_machine_is_the_reason_of_every_waiting_job(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    jobs = [scheduler.submit() for _ in range(7)]
    for job in jobs[:2]:
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="disk full", is_machine_failure=True))
    assert [scheduler.wait_detail(job) for job in jobs] == ["disk full"] * 7
    for _ in range(2):
        scheduler.reserve("true")
    assert [scheduler.wait_detail(job) for job in jobs] == ["disk full"] * 7, "no reservation takes room either"
