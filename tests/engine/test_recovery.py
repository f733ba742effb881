"""Recovery: open runs in the store are reconciled with the inventory of the executor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.db.runs import OpenRun
from rota.engine import recovery
from rota.engine.transaction import Transaction
from rota.errors import StoreError
from rota.executor.port import (
    ConnectionLoss,
    ExecutorMessage,
    ExitReport,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartFailure,
)
from rota.ids import JobId, RunId
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases


def test_living_run_is_adopted_and_continues(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.confirm_start(job, pid=7)
    run = scheduler.find_run(job)
    scheduler.crash([RunReport(run=run, pid=7)])
    assert scheduler.engine.recovery_counts == {"running_jobs_adopted": 1}
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 7)
    assert scheduler.started_jobs() == []  # it holds its capacity, and does not start again
    scheduler.receive(ExitReport(run=run, at=scheduler.clock.moment.timestamp(), code=5))
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 5)
    assert scheduler.started_jobs() == [following]


def test_run_that_ended_during_downtime_has_its_real_exit_code(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    run = scheduler.find_run(job)
    at = scheduler.clock.moment
    scheduler.clock.advance(hours=1)
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = [
        RunInventory(runs=[RunReport(run=run, pid=None, has_ended=True)]),
        ExitReport(run=run, at=at.timestamp(), code=42, tail="bye"),
    ]
    scheduler.start_engine()
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.finished_at) == (Status.FAILED, 42, at)
    assert scheduler.engine.recovery_counts == {"finished_while_down": 1}
    assert scheduler.executor.acknowledged == [run]


def test_unused_claim_returns_to_its_place(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    first = scheduler.submit()
    second = scheduler.submit()
    urgent = scheduler.submit(priority=-1)
    before = scheduler.job(first)
    scheduler.crash()
    assert scheduler.engine.recovery_counts == {"requeued": 1}
    assert scheduler.started_jobs() == [first]  # before those that came later
    after = scheduler.job(first)
    assert (after.position, after.priority, after.created_at) == (before.position, before.priority, before.created_at)
    assert after.dispatch_failures == 0
    assert after.run is not None
    assert before.run is not None
    assert after.run.id > before.run.id
    assert run_sql("SELECT count(*) FROM run") == [(1,)]
    assert scheduler.drain() == [first, second, urgent]


def test_confirmed_run_that_is_unaccounted_for_fails(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.crash()
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (Status.FAILED, None, "Scheduler crash recovery")
    assert record.run is not None
    assert record.run.error == "Scheduler crash recovery"
    assert scheduler.engine.recovery_counts == {"running_jobs_recovered": 1}
    assert scheduler.started_jobs() == [following]


def test_recovered_run_blocks_its_successors(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    following = unlimited_scheduler.submit(after=[job])
    unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.crash()
    assert unlimited_scheduler.status(following) is Status.BLOCKED_BY_DEPENDENCY


def test_recovery_is_idempotent(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    running, claimed, waiting = (
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(delay="1h"),
    )
    unlimited_scheduler.confirm_start(running)
    unlimited_scheduler.crash()
    for _ in range(2):
        run = unlimited_scheduler.job(claimed).run
        assert run is not None
        events = run_sql("SELECT count(*) FROM event")
        unlimited_scheduler.crash([RunReport(run=run.id, pid=1)])
        assert run_sql("SELECT count(*) FROM event WHERE kind <> 'scheduler.recovered'")[0] <= events[0]
        assert unlimited_scheduler.status(running) is Status.FAILED
        assert unlimited_scheduler.started_jobs() == []
    assert unlimited_scheduler.status(waiting) is Status.QUEUED


def test_ended_jobs_are_not_recovered_again(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: every restart recovered all of history."""
    for code in (0, 1):
        unlimited_scheduler.end_run(unlimited_scheduler.submit(), code)
    unlimited_scheduler.cancel(unlimited_scheduler.submit(delay="1h"))
    before = len(unlimited_scheduler.events)
    unlimited_scheduler.crash()
    assert unlimited_scheduler.engine.recovery_counts == {}
    assert len(unlimited_scheduler.events) == before


def test_nothing_starts_before_the_inventory(scheduler: Scheduler) -> None:
    scheduler.submit()
    second = scheduler.submit()
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = []
    scheduler.start_engine()
    scheduler.set_pools(**{"global": 5})
    assert scheduler.started_jobs() == []
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.started_jobs() == [1, second]


def test_executor_that_is_lost_and_reconnects(unlimited_scheduler: Scheduler) -> None:
    alive, gone, claimed = (unlimited_scheduler.submit() for _ in range(3))
    unlimited_scheduler.confirm_start(alive)
    unlimited_scheduler.confirm_start(gone)
    run = unlimited_scheduler.find_run(alive)
    unlimited_scheduler.receive(ConnectionLoss(reason="it was killed"))
    assert {unlimited_scheduler.status(job) for job in (alive, gone)} == {Status.RUNNING}
    waiting = unlimited_scheduler.submit()
    assert waiting not in unlimited_scheduler.started_jobs()
    unlimited_scheduler.receive(RunInventory(runs=[RunReport(run=run, pid=1)]))
    assert unlimited_scheduler.status(alive) is Status.RUNNING
    assert unlimited_scheduler.status(gone) is Status.FAILED
    assert unlimited_scheduler.started_jobs()[-2:] == [claimed, waiting]
    unlimited_scheduler.end_run(alive)
    assert unlimited_scheduler.status(alive) is Status.COMPLETED


def test_missed_start_confirmation_is_known_from_inventory(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.crash([RunReport(run=run, pid=7)])
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 7)
    event_count = len(scheduler.events)
    scheduler.receive(StartConfirmation(run=run, pid=7, start_time=1))
    assert len(scheduler.events) == event_count


def test_adopted_run_that_is_lost_later_is_not_started_again(scheduler: Scheduler) -> None:
    """The supervisor does not repeat the start confirmation; its report has the pid, so the child exists. If both are
    lost later, the job must not run a second time."""
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.crash([RunReport(run=run, pid=7)])
    scheduler.crash()
    assert scheduler.started_jobs() == []
    assert (scheduler.status(job), scheduler.job(job).reason) == (Status.FAILED, "Scheduler crash recovery")


def test_recovery_writes_an_event_with_its_counts(unlimited_scheduler: Scheduler) -> None:
    running, _claimed = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    unlimited_scheduler.confirm_start(running)
    unlimited_scheduler.crash()
    (event,) = [event for event in unlimited_scheduler.events if event.kind == "scheduler.recovered"]
    assert event.data == {"running_jobs_recovered": 1, "requeued": 1}
    assert {event.cause for event in unlimited_scheduler.events if event.kind == "job.failed"} == {"recovery"}


def test_unknown_process_is_stopped_and_its_number_is_used(scheduler: Scheduler) -> None:
    """As after a restore: the supervisor has runs that the store does not know."""
    known = scheduler.submit()
    stray, ended = RunId(70), RunId(71)
    inventory = [
        RunReport(run=scheduler.find_run(known), pid=7),
        RunReport(run=stray, pid=8),
        RunReport(run=ended, pid=None, has_ended=True),
    ]
    for _ in range(2):
        scheduler.crash(inventory)
        assert scheduler.executor.stops == [stray]
        assert scheduler.engine.recovery_counts == {"running_jobs_adopted": 1, "unknown_runs_ended": 1}
    for run in (stray, ended):
        scheduler.receive(ExitReport(run=run, at=0, code=0))
    assert scheduler.executor.acknowledged == [stray, ended]
    assert [job.id for job in scheduler.reader.jobs.find_all([JobId(1), JobId(2)])] == [known], (
        "no job was created for it"
    )
    scheduler.receive(ExitReport(run=inventory[0].run, at=0, code=0))
    scheduler.submit()
    assert scheduler.executor.starts[-1].run == 72, "a message of the stray run can never be taken for a job's"


@pytest.mark.parametrize("start", [None, StartConfirmation(run=RunId(9), pid=5, start_time=1)])
@pytest.mark.parametrize("end", [ExitReport(run=RunId(9), at=0, code=0), StartFailure(run=RunId(9), error="no")])
def test_stray_run_and_its_job_never_run_together(
    unlimited_scheduler: Scheduler, start: ExecutorMessage | None, end: ExecutorMessage
) -> None:
    """As after a restore to a time at which the job still waited: its earlier run is alive."""
    job = unlimited_scheduler.submit(delay="1s")
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.crash([RunReport(run=RunId(9), pid=None if start is None else 5)])
    assert (unlimited_scheduler.started_jobs(), unlimited_scheduler.executor.stops) == ([], [9])
    blocker = "nothing is started until runs unknown to the store have ended: run-9"
    assert (unlimited_scheduler.engine.first_blocker, unlimited_scheduler.engine.errors) == (blocker, [blocker])
    other = unlimited_scheduler.submit()
    if start is not None:
        unlimited_scheduler.receive(start)
    assert unlimited_scheduler.started_jobs() == []
    due = unlimited_scheduler.engine.next_deadline
    assert not unlimited_scheduler.engine.has_more
    assert due is not None
    assert due > unlimited_scheduler.clock.monotonic(), "it does not spin"
    unlimited_scheduler.receive(end)
    assert unlimited_scheduler.started_jobs() == [job, other]
    assert unlimited_scheduler.executor.acknowledged == [9]
    assert (unlimited_scheduler.engine.first_blocker, unlimited_scheduler.engine.errors) == (None, [])


def test_stray_run_blocks_only_while_its_executor_knows_it(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.crash([RunReport(run=RunId(9), pid=5), RunReport(run=RunId(8), pid=4)])
    job = unlimited_scheduler.submit()
    unlimited_scheduler.receive(ConnectionLoss(reason="it was killed"))
    assert unlimited_scheduler.engine.errors == []
    unlimited_scheduler.receive(
        RunInventory(runs=[RunReport(run=RunId(8), pid=4), RunReport(run=RunId(9), pid=None, has_ended=True)])
    )
    assert "run-8" in str(unlimited_scheduler.engine.first_blocker)
    assert "run-9" not in str(unlimited_scheduler.engine.first_blocker)
    assert unlimited_scheduler.started_jobs() == []
    unlimited_scheduler.receive(ConnectionLoss(reason="it was killed"), RunInventory(runs=[]))
    assert unlimited_scheduler.started_jobs() == [job]


def test_report_is_of_the_first_connection(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.confirm_start(unlimited_scheduler.submit())
    assert unlimited_scheduler.engine.recovery_counts == {}
    unlimited_scheduler.receive(ConnectionLoss(reason="it was killed"), RunInventory(runs=[]))
    assert unlimited_scheduler.engine.recovery_counts == {}, "later losses are not part of it"
    unlimited_scheduler.session.close()
    unlimited_scheduler.executor = FakeExecutor()
    unlimited_scheduler.executor.inbox = []
    unlimited_scheduler.start_engine()
    assert unlimited_scheduler.engine.recovery_counts is None, "not known yet"


UNUSABLE = '{"max_retries":3,"base":"P999999999D","cap":"P999999999D"}'
"""Retry policy that is readable, and leads beyond the maximum date."""


def test_lost_run_with_unusable_record_fails_permanently(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    bad = unlimited_scheduler.submit(retries=3, locks=["k"])
    unlimited_scheduler.confirm_start(bad)
    behind, dependent = unlimited_scheduler.submit(locks=["k"]), unlimited_scheduler.submit(after=[bad])
    run_sql(f"UPDATE spec SET retry = '{UNUSABLE}' WHERE id = (SELECT spec FROM job WHERE id = {bad})")
    unlimited_scheduler.crash()
    record = unlimited_scheduler.job(bad)
    assert (record.status, record.exit_code, record.permanently_failed) == (Status.FAILED, None, True)
    assert str(record.reason).startswith("scheduler data error: ")
    assert record.run is not None
    assert record.run.exit_code is None
    assert record.run.error == record.reason
    assert unlimited_scheduler.engine.recovery_counts == {"errors": 1}
    assert unlimited_scheduler.status(dependent) is Status.BLOCKED_BY_DEPENDENCY
    assert unlimited_scheduler.started_jobs() == [behind], "its locks are free"
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(behind), pid=1)])
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_adopted": 1}


def test_claim_that_cannot_be_requeued_fails(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = unlimited_scheduler.submit()
    monkeypatch.setattr(recovery, "requeue", lambda *_, **__: 1 / 0)
    unlimited_scheduler.crash()
    record = unlimited_scheduler.job(bad)
    assert (record.status, record.reason, record.run) == (Status.FAILED, "scheduler data error: division by zero", None)
    assert unlimited_scheduler.engine.recovery_counts == {"errors": 1}


def test_run_that_cannot_be_failed_is_left_and_others_are_recovered(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, waiting = unlimited_scheduler.submit(), unlimited_scheduler.submit(delay="1s")
    unlimited_scheduler.confirm_start(bad)
    unlimited_scheduler.clock.advance(seconds=1)
    with monkeypatch.context() as broken:
        broken.setattr(recovery, "finish", lambda *_, **__: 1 / 0)
        broken.setattr(recovery, "fail_without_retry", lambda *_, **__: 1 / 0)
        unlimited_scheduler.crash()
    assert (unlimited_scheduler.status(bad), unlimited_scheduler.started_jobs()) == (Status.RUNNING, [waiting])
    assert unlimited_scheduler.engine.recovery_counts == {"errors": 1}
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(waiting), pid=1)])
    assert unlimited_scheduler.status(bad) is Status.FAILED, "the next connection tries again"


@pytest.fixture
def connect_unsettled(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Function that connects with an inventory that cannot be reconciled, followed by these messages."""

    def connect(inventory: list[RunReport], *messages: ExecutorMessage) -> None:
        with monkeypatch.context() as broken:
            broken.setattr("rota.engine.executor_inbox.reconcile", lambda *_: 1 / 0)
            unlimited_scheduler.crash(inventory)
            unlimited_scheduler.receive(*messages)

    return connect


BLOCKER = "nothing can be started: cannot reconcile the runs of the supervisor: ZeroDivisionError('division by zero')"


def test_failed_reconciliation_is_reported_and_retried(
    unlimited_scheduler: Scheduler, connect_unsettled: Callable[..., None]
) -> None:
    running, waiting = unlimited_scheduler.submit(), unlimited_scheduler.submit(delay="1s")
    unlimited_scheduler.confirm_start(running)
    run = unlimited_scheduler.find_run(running)
    unlimited_scheduler.clock.advance(seconds=1)
    connect_unsettled([RunReport(run=run, pid=1)])
    assert (unlimited_scheduler.engine.first_blocker, unlimited_scheduler.engine.errors) == (BLOCKER, [BLOCKER])
    assert (unlimited_scheduler.started_jobs(), unlimited_scheduler.engine.recovery_counts) == ([], None)
    assert unlimited_scheduler.engine.next_deadline == unlimited_scheduler.clock.monotonic() + 10
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [], "it is not retried in every turn"
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert (unlimited_scheduler.engine.first_blocker, unlimited_scheduler.engine.errors) == (None, [])
    assert (unlimited_scheduler.started_jobs(), unlimited_scheduler.status(running)) == ([waiting], Status.RUNNING)
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_adopted": 1}


def test_messages_after_failed_reconciliation_count(
    unlimited_scheduler: Scheduler, connect_unsettled: Callable[..., None]
) -> None:
    starting, ended = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    first, second = unlimited_scheduler.find_run(starting), unlimited_scheduler.find_run(ended)
    inventory = [RunReport(run=first, pid=None), RunReport(run=second, pid=2), RunReport(run=RunId(9), pid=3)]
    ends = [ExitReport(run=run, at=0, code=0) for run in (second, RunId(9))]
    connect_unsettled(inventory, StartConfirmation(run=first, pid=7, start_time=1), *ends)
    assert unlimited_scheduler.status(ended) is Status.COMPLETED, "everything except starts continues"
    unlimited_scheduler.clock.advance(seconds=10)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.engine.errors == [], "the stray has ended already"
    unlimited_scheduler.clock.advance(minutes=6)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.executor.stops == [], "the start was confirmed"
    assert (unlimited_scheduler.status(starting), unlimited_scheduler.job(starting).pid) == (Status.RUNNING, 7)


def test_failed_reconciliation_ends_with_its_connection(
    unlimited_scheduler: Scheduler, connect_unsettled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unlimited_scheduler.submit(delay="1s")
    connect_unsettled([RunReport(run=RunId(9), pid=3)])
    unlimited_scheduler.receive(ConnectionLoss(reason="it was killed"))
    assert unlimited_scheduler.engine.errors == []
    unlimited_scheduler.clock.advance(minutes=1)
    unlimited_scheduler.run_turns()
    assert (unlimited_scheduler.executor.stops, unlimited_scheduler.started_jobs()) == ([], []), (
        "the old inventory may be out of date"
    )
    unlimited_scheduler.receive(RunInventory(runs=[]))
    assert unlimited_scheduler.started_jobs() == [job]


def test_failed_reconciliation_survives_store_errors(
    unlimited_scheduler: Scheduler, connect_unsettled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = unlimited_scheduler.submit(delay="1s")
    connect_unsettled([])
    unlimited_scheduler.clock.advance(seconds=10)

    def fail(*_: object) -> None:
        raise StoreError("it is away")

    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.executor_inbox.reconcile", fail)
        unlimited_scheduler.engine.turn()
        assert "it is away" in unlimited_scheduler.engine.errors
    unlimited_scheduler.run_turns()
    assert (unlimited_scheduler.started_jobs(), unlimited_scheduler.engine.errors) == ([job], [])


def test_run_that_cannot_be_recovered_does_not_block_others(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, lost, waiting = (
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(delay="1s"),
    )
    for job in (bad, lost):
        unlimited_scheduler.confirm_start(job)
    broken = unlimited_scheduler.find_run(bad)
    adopt = recovery.adopt_run

    def fail(tx: Transaction, run: OpenRun, account: RunReport) -> None:
        adopt(tx, run, account)
        raise ValueError("its record is damaged")

    monkeypatch.setattr(recovery, "adopt_run", fail)
    unlimited_scheduler.crash([RunReport(run=broken, pid=1)])
    assert unlimited_scheduler.engine.recovery_counts == {"errors": 1, "running_jobs_recovered": 1}
    assert unlimited_scheduler.status(lost) is Status.FAILED
    assert "run-1 could not be recovered" in caplog.text
    unlimited_scheduler.clock.advance(seconds=2)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [waiting]
    unlimited_scheduler.receive(ExitReport(run=broken, at=0, code=0))
    assert unlimited_scheduler.status(bad) is Status.COMPLETED


def test_repeated_crashes_lose_and_repeat_nothing(unlimited_scheduler: Scheduler) -> None:
    root = unlimited_scheduler.submit()
    jobs = [unlimited_scheduler.submit(after=[root], locks=["k"]) for _ in range(5)]
    finished = []
    for _ in range(6):
        open_runs = {
            job.run.id: job.id
            for job in unlimited_scheduler.reader.jobs.find_all([root, *jobs])
            if job.run and not job.run.status
        }
        for run, job in list(open_runs.items())[:1]:
            unlimited_scheduler.crash([RunReport(run=run, pid=1) for run in open_runs])
            unlimited_scheduler.receive(ExitReport(run=run, at=0, code=0))
            finished.append(job)
    assert finished == [root, *jobs]
    assert {unlimited_scheduler.status(job) for job in finished} == {Status.COMPLETED}
