"""Cancel: a waiting job ends immediately, a running job when its process is gone, and an earlier result stands."""

from __future__ import annotations

import pytest

from rota.errors import Conflict, NotFound
from rota.executor.port import ExitReport, RunReport, StartFailure
from rota.ids import JobId
from rota.kernel.status import Status
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases


@pytest.mark.parametrize("fields", [{}, {"delay": "1h"}, {"locks": ["repo"]}, {"after": [1]}])
def test_waiting_job_ends_immediately_without_a_run(scheduler: Scheduler, fields: dict[str, object]) -> None:
    scheduler.submit(locks=["repo"])
    job = scheduler.submit(**fields)  # type: ignore[arg-type]
    scheduler.cancel(job)
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (Status.CANCELLED, 143, "cancelled by tester")
    assert (record.run, record.started_at, record.finished_at) == (None, None, scheduler.clock.moment)
    assert scheduler.events[-1].actor == "tester"
    assert scheduler.executor.stops == []


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_running_job_is_cancelled_when_it_is_gone(scheduler: Scheduler, is_confirmed: bool) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    if is_confirmed:
        scheduler.confirm_start(job)
    scheduler.cancel(job)
    assert scheduler.executor.stops == [scheduler.find_run(job)]
    assert scheduler.show_job(job).status == "RUNNING"
    assert scheduler.started_jobs() == [job]  # its capacity is not free yet
    scheduler.end_run(job, None, signal=15, ended_by="stop")
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (Status.CANCELLED, 143, "cancelled by tester")
    assert record.run is not None
    assert (record.run.status, record.run.exit_code) == (Status.CANCELLED, 143)
    assert scheduler.started_jobs() == [job, following]


@pytest.mark.parametrize(("code", "status"), [(0, Status.COMPLETED), (3, Status.FAILED)])
def test_result_before_the_stop_took_effect_stands(scheduler: Scheduler, code: int, status: Status) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    scheduler.end_run(job, code)
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (status, code)


def test_cancel_in_the_turn_of_the_end_is_a_conflict(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.executor.inbox.append(ExitReport(run=run, at=0, code=0))
    with pytest.raises(Conflict, match=r"job-1 has already ended \(COMPLETED\); nothing was changed"):
        scheduler.cancel(job)
    assert scheduler.status(job) is Status.COMPLETED
    assert scheduler.executor.stops == []


def test_cancel_is_idempotent(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.cancel(job)
    assert set(scheduler.executor.stops) == {scheduler.find_run(job)}
    scheduler.end_run(job, None, signal=9, ended_by="stop")
    scheduler.cancel(job)
    assert scheduler.status(job) is Status.CANCELLED
    assert [event.kind for event in scheduler.events].count("job.stop_requested") == 1


@pytest.mark.parametrize("code", [0, 1])
def test_cancel_of_ended_job_is_a_conflict(scheduler: Scheduler, code: int) -> None:
    job = scheduler.submit()
    scheduler.end_run(job, code)
    with pytest.raises(Conflict, match="already ended"):
        scheduler.cancel(job)


def test_cancel_of_unknown_job_is_not_found(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-99; `rota list --all`"):
        scheduler.cancel(JobId(99))


def test_stop_is_sent_again_after_reconnect(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    run = scheduler.find_run(job)
    scheduler.cancel(job)
    scheduler.crash([RunReport(run=run, pid=4242)])
    assert scheduler.executor.stops == [run]


def test_cancelled_job_whose_start_fails_is_not_retried(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.run) == (Status.CANCELLED, 143, None)
    scheduler.clock.advance(hours=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]


def test_cancelled_job_that_was_not_started_is_not_started_after_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.crash()
    assert scheduler.started_jobs() == []
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.CANCELLED, 143)


def test_cancelled_job_that_is_unaccounted_for_ends(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    scheduler.crash()
    assert scheduler.status(job) in (Status.CANCELLED, Status.FAILED)
    assert scheduler.started_jobs() == [following]


def test_cancel_leaves_other_jobs_alone(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit() for _ in range(3)]
    unlimited_scheduler.cancel(jobs[1])
    assert unlimited_scheduler.executor.stops == [unlimited_scheduler.find_run(jobs[1])]


def test_timeout_after_cancel_fails_the_job(scheduler: Scheduler) -> None:
    """The supervisor reports the cause that came first."""
    job = scheduler.submit(timeout="5s")
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    scheduler.end_run(job, None, signal=15, ended_by="timeout")
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 124)


def test_stop_of_one_claim_does_not_reach_the_next(scheduler: Scheduler) -> None:
    """LESSONS Processes: kill signal survived a requeue. The run of a rewound job is not stopped."""
    job = scheduler.submit()
    scheduler.confirm_start(job)
    first = scheduler.find_run(job)
    scheduler.cancel(job)
    assert scheduler.executor.stops == [first]
    scheduler.receive(ExitReport(run=first, at=0, signal=15, ended_by="stop"))
    scheduler.rewind(job)
    second = scheduler.find_run(job)
    assert second != first
    scheduler.confirm_start(job)
    scheduler.receive(ExitReport(run=first, at=0, signal=15, ended_by="stop"))  # reported again
    assert (scheduler.show_job(job).status, scheduler.job(job).stop_requested) == ("RUNNING", None)
    assert scheduler.executor.stops == [first]
    scheduler.end_run(job)
    assert scheduler.status(job) is Status.COMPLETED
