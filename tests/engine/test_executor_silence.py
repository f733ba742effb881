"""A supervisor that does not answer: reports, blocked starts, and the outcome of its unconfirmed starts."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from rota.engine.recovery import NEVER_STARTED
from rota.executor.port import (
    ConnectionLoss,
    ExecutorMessage,
    ExecutorNotAnswering,
    ExitReport,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartFailure,
    StartRefusal,
)
from rota.ids import JobId
from rota.kernel.reservations import lock_owner
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

SINCE = "2026-01-01 00:00:00 UTC"


@pytest.fixture(autouse=True)
def five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.harness.START_TIMEOUT", timedelta(minutes=5))


def wait(scheduler: Scheduler, **duration: float) -> None:
    """Let time pass, and run every turn that becomes due."""
    end = scheduler.clock.monotonic() + sum(
        amount * {"minutes": 60, "seconds": 1}[unit] for unit, amount in duration.items()
    )
    while (due := scheduler.engine.next_deadline) is not None and due <= end:
        scheduler.clock.advance(seconds=due - scheduler.clock.monotonic())
        scheduler.run_turns()
        if scheduler.executor.inbox:
            scheduler.run_turns()
        assert scheduler.engine.next_deadline != due, "it spins"
    scheduler.clock.advance(seconds=end - scheduler.clock.monotonic())
    scheduler.run_turns()


def silence_text(scheduler: Scheduler) -> str:
    silence = scheduler.engine.silence
    assert silence is not None
    return silence.text


def submit_unconfirmed(scheduler: Scheduler) -> JobId:
    """Submit a job whose start the supervisor leaves unconfirmed for `start_timeout`."""
    job = scheduler.submit()
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=5)
    return job


def test_unconfirmed_start_is_reported_and_stops_further_starts(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit()
    unlimited_scheduler.executor.is_silent = True
    wait(unlimited_scheduler, minutes=5, seconds=-0.001)
    assert unlimited_scheduler.engine.silence is None
    wait(unlimited_scheduler, seconds=0.001)
    other = unlimited_scheduler.submit()
    text = silence_text(unlimited_scheduler)
    assert text.startswith(
        f"the supervisor (pid 77) has been silent since {SINCE} and has not confirmed the start of job-1"
    )
    assert "`kill -CONT 77`" in text
    assert unlimited_scheduler.started_jobs() == [job]
    assert unlimited_scheduler.engine.first_blocker == text
    assert unlimited_scheduler.engine.blockers == unlimited_scheduler.engine.errors == [text]
    assert unlimited_scheduler.explain_wait(job)["text"] == (
        f"job-1 is RUNNING: its start was ordered 5m ago, and the supervisor has not confirmed it\n{text}"
    )
    assert unlimited_scheduler.explain_wait(other)["text"] == f"job-2 is QUEUED: {text}"


def test_only_first_unconfirmed_starts_are_named(unlimited_scheduler: Scheduler) -> None:
    for _ in range(7):
        unlimited_scheduler.submit()
    unlimited_scheduler.executor.is_silent = True
    wait(unlimited_scheduler, minutes=5)
    assert "the start of job-1, job-2, job-3, job-4, job-5 and 2 more; nothing more is started" in silence_text(
        unlimited_scheduler
    )


def test_late_confirmation_is_accepted(unlimited_scheduler: Scheduler) -> None:
    job = submit_unconfirmed(unlimited_scheduler)
    other = unlimited_scheduler.submit()
    wait(unlimited_scheduler, minutes=60)
    assert unlimited_scheduler.executor.stops == []
    assert unlimited_scheduler.job(job).status is Status.DISPATCHED
    unlimited_scheduler.confirm_start(job)
    assert (unlimited_scheduler.status(job), unlimited_scheduler.job(job).dispatch_failures) == (Status.RUNNING, 0)
    assert unlimited_scheduler.engine.silence is None
    assert unlimited_scheduler.engine.blockers == []
    assert unlimited_scheduler.started_jobs() == [job, other]
    unlimited_scheduler.end_run(job)
    assert unlimited_scheduler.status(job) is Status.COMPLETED


def test_run_that_ended_unconfirmed_has_its_own_end(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """This includes an end by a stop that was not requested: the run may have started, so it is not queued again."""
    job = submit_unconfirmed(scheduler)
    scheduler.receive(ExitReport(run=scheduler.find_run(job), at=0, signal=15, ended_by="stop"))
    assert (scheduler.status(job), scheduler.job(job).reason) == (Status.FAILED, "killed by SIGTERM")
    assert run_sql("SELECT count(*) FROM run") == [(1,)]
    assert scheduler.started_jobs() == [job]


@pytest.mark.parametrize("kind", [StartFailure, StartRefusal])
def test_start_that_never_began_is_a_failed_dispatch(
    scheduler: Scheduler, kind: type[StartFailure | StartRefusal]
) -> None:
    job = submit_unconfirmed(scheduler)
    scheduler.receive(kind(run=scheduler.find_run(job), error="no such program"))
    assert (scheduler.status(job), scheduler.job(job).dispatch_failures) == (Status.QUEUED, 1)


def test_successor_without_the_run_makes_it_a_failed_dispatch(scheduler: Scheduler) -> None:
    job = submit_unconfirmed(scheduler)
    scheduler.executor.is_silent = False
    scheduler.receive(ConnectionLoss(reason="killed"))
    assert scheduler.job(job).status is Status.DISPATCHED, "its successor has not reported"
    scheduler.receive(RunInventory(runs=[]))
    record = scheduler.job(job)
    assert (record.status, record.dispatch_failures) == (Status.QUEUED, 1)
    assert record.last_failure == "the supervisor did not answer, and never started it"
    assert scheduler.engine.silence is None
    scheduler.clock.advance(minutes=10)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job, job]


def test_cancelled_job_that_never_started_is_cancelled(scheduler: Scheduler) -> None:
    job = submit_unconfirmed(scheduler)
    scheduler.cancel(job)
    assert "a stop was requested (cancelled by tester)" in scheduler.explain_wait(job)["text"]
    scheduler.receive(ConnectionLoss(reason="killed"), RunInventory(runs=[]))
    assert scheduler.status(job) is Status.CANCELLED


def test_start_that_was_not_overdue_is_no_failed_dispatch(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    wait(scheduler, minutes=4)
    scheduler.receive(ConnectionLoss(reason="killed"))
    wait(scheduler, minutes=4)
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.job(job).dispatch_failures == 0
    assert scheduler.started_jobs() == [job, job]


def test_successor_with_the_run_adopts_it(scheduler: Scheduler) -> None:
    job = submit_unconfirmed(scheduler)
    run = scheduler.find_run(job)
    scheduler.receive(ConnectionLoss(reason="killed"), RunInventory(runs=[RunReport(run=run, pid=5, start_time=1)]))
    assert scheduler.status(job) is Status.RUNNING
    scheduler.receive(ExitReport(run=run, at=0))
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (Status.FAILED, None, "exit status unknown")
    assert scheduler.started_jobs() == [job]


def test_start_ordered_from_a_silent_supervisor_is_a_failed_dispatch(scheduler: Scheduler) -> None:
    """The ping was sent before the start was ordered: the start itself is not overdue yet."""
    wait(scheduler, minutes=2)
    job = scheduler.submit()
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=3, seconds=1)
    assert "has not confirmed the start of job-1" in silence_text(scheduler)
    scheduler.receive(ConnectionLoss(reason="killed"), RunInventory(runs=[]))
    assert scheduler.job(job).dispatch_failures == 1


def test_silence_is_noticed_while_a_job_runs(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    waiting = scheduler.submit()
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=5)
    text = silence_text(scheduler)
    assert f"silent since {SINCE}; nothing more is started" in text
    assert scheduler.explain_wait(job)["text"].endswith(f"\n{text}")
    assert scheduler.explain_wait(waiting)["text"].endswith(f", used by job-1\n{text}")
    assert len(scheduler.executor.pings) == 1
    scheduler.end_run(job)
    assert scheduler.engine.silence is None
    assert scheduler.started_jobs() == [job, waiting]


def test_answering_supervisor_is_never_silent(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    wait(scheduler, minutes=60)
    assert scheduler.engine.silence is None
    assert len(scheduler.executor.pings) == 24
    assert scheduler.engine.blockers == []


def test_silence_of_idle_supervisor_is_noticed_before_the_next_job(scheduler: Scheduler) -> None:
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=5)
    assert silence_text(scheduler)
    scheduler.submit()
    assert scheduler.started_jobs() == []


def test_suspended_scheduler_pings_before_it_reports_silence(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.clock.advance(minutes=60)
    scheduler.run_turns()
    assert scheduler.engine.silence is None
    assert len(scheduler.executor.pings) == 1


def test_stuck_start_is_reported_and_blocks_no_other(unlimited_scheduler: Scheduler) -> None:
    stuck, other = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    unlimited_scheduler.confirm_start(other)
    wait(unlimited_scheduler, minutes=5)
    assert unlimited_scheduler.engine.silence is None
    assert unlimited_scheduler.engine.errors == [
        "the supervisor starts other runs, but has not confirmed the start of job-1"
    ]
    assert unlimited_scheduler.engine.blockers == []
    third = unlimited_scheduler.submit()
    assert unlimited_scheduler.started_jobs() == [stuck, other, third]
    wait(unlimited_scheduler, minutes=5)
    assert "has not confirmed the start of job-1, job-3;" in silence_text(unlimited_scheduler), (
        "no later start was confirmed"
    )
    assert unlimited_scheduler.engine.errors == [silence_text(unlimited_scheduler)]
    unlimited_scheduler.confirm_start(third)
    unlimited_scheduler.confirm_start(stuck)
    assert unlimited_scheduler.engine.errors == []


def test_changed_start_timeout_applies_immediately(scheduler: Scheduler) -> None:
    scheduler.submit()
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=1)
    scheduler.settings = scheduler.engine.settings = msgspec.structs.replace(
        scheduler.settings, start_timeout=scheduler.settings.start_timeout / 5
    )
    scheduler.run_turns()
    assert silence_text(scheduler)


def test_adopted_unconfirmed_claim_is_awaited(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.crash([RunReport(run=run, pid=None)])
    scheduler.executor.is_silent = True
    wait(scheduler, minutes=5)
    assert "job-1" in silence_text(scheduler)
    assert scheduler.executor.stops == []
    scheduler.receive(StartConfirmation(run=run, pid=1, start_time=1))
    assert scheduler.engine.silence is None


def test_ordered_reservation_is_kept_and_named(unlimited_scheduler: Scheduler) -> None:
    reservation = unlimited_scheduler.reserve("true")
    unlimited_scheduler.executor.is_silent = True
    wait(unlimited_scheduler, minutes=5)
    assert "has not confirmed the start of reservation-1;" in silence_text(unlimited_scheduler)
    unlimited_scheduler.confirm_start(lock_owner(reservation))
    assert unlimited_scheduler.engine.silence is None
    unlimited_scheduler.receive(
        ExitReport(run=unlimited_scheduler.find_run(lock_owner(reservation)), at=0, signal=15, ended_by="stop")
    )
    assert unlimited_scheduler.show_reservation(reservation).reason == "killed by SIGTERM"


class UnansweredGreeting(FakeExecutor):
    """Supervisor that was silent before this scheduler connected."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox.clear()
        self.has_answered = False

    def receive(self) -> list[ExecutorMessage]:
        self.has_answered = self.has_answered or bool(self.inbox)
        if not self.has_answered:
            raise ExecutorNotAnswering("no answer")
        return super().receive()


def restart_unanswered(scheduler: Scheduler) -> None:
    scheduler.session.close()
    scheduler.executor = UnansweredGreeting()
    scheduler.start_engine()


def test_new_scheduler_reports_silence_of_the_supervisor(scheduler: Scheduler) -> None:
    submit_unconfirmed(scheduler)
    restart_unanswered(scheduler)
    text = silence_text(scheduler)
    assert text.startswith(
        "the supervisor (pid 77) has been silent since at least 2026-01-01 00:05:00 UTC; nothing more is started until"
        " it answers: `kill -CONT 77`"
    )
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    assert silence_text(scheduler) == text
    assert scheduler.engine.blockers == scheduler.engine.errors == [text]


@pytest.mark.parametrize(("minutes", "failures"), [(5, 1), (4, 0)])
def test_unused_claim_is_a_failed_dispatch_after_restart(scheduler: Scheduler, minutes: int, failures: int) -> None:
    job = scheduler.submit()
    restart_unanswered(scheduler)
    scheduler.clock.advance(minutes=minutes, seconds=1)
    scheduler.receive(RunInventory(runs=[]))
    record = scheduler.job(job)
    assert record.dispatch_failures == failures
    assert record.last_failure == (NEVER_STARTED if failures else None)
    assert scheduler.engine.silence is None
    scheduler.clock.advance(minutes=10)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]


def test_new_scheduler_does_not_inherit_the_silence(scheduler: Scheduler) -> None:
    job = submit_unconfirmed(scheduler)
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = [RunInventory(runs=[])]
    scheduler.start_engine()
    assert scheduler.engine.silence is None
    assert scheduler.job(job).dispatch_failures == 0
