"""Cancel: a waiting job at once, a running one when it is gone, and a result that came first stands."""

from __future__ import annotations

import pytest

from harness import Scheduler
from rota.core.status import Status
from rota.errors import Conflict, NotFound
from rota.executor.port import Account, Exited, FailedToStart
from rota.ids import JobId


@pytest.mark.parametrize("fields", [{}, {"delay": "1h"}, {"locks": ["repo"]}, {"after": [1]}])
def test_a_waiting_job_ends_at_once_without_a_run(scheduler: Scheduler, fields: dict[str, object]) -> None:
    scheduler.submit(locks=["repo"])
    job = scheduler.submit(**fields)  # type: ignore[arg-type]
    scheduler.cancel(job)
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (Status.CANCELLED, 143, "cancelled by tester")
    assert (found.run, found.started_at, found.finished_at) == (None, None, scheduler.clock.moment)
    assert scheduler.events[-1].actor == "tester"
    assert scheduler.executor.stops == []


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_running_job_is_cancelled_when_it_is_gone(scheduler: Scheduler, is_confirmed: bool) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    if is_confirmed:
        scheduler.start(job)
    scheduler.cancel(job)
    assert scheduler.executor.stops == [scheduler.run_of(job)]
    assert scheduler.show(job).status == "RUNNING"
    assert scheduler.started() == [job]  # its place is not free yet
    scheduler.end(job, None, signal=15, ended_by="stop")
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (Status.CANCELLED, 143, "cancelled by tester")
    assert found.run is not None
    assert (found.run.status, found.run.exit_code) == (Status.CANCELLED, 143)
    assert scheduler.started() == [job, following]


@pytest.mark.parametrize(("code", "status"), [(0, Status.COMPLETED), (3, Status.FAILED)])
def test_a_result_that_came_before_the_stop_took_effect_stands(scheduler: Scheduler, code: int, status: Status) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.cancel(job)
    scheduler.end(job, code)
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (status, code)


def test_a_cancel_in_the_turn_of_the_end_is_a_conflict_and_the_result_stands(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.executor.inbox.append(Exited(run=run, at=0, code=0))
    with pytest.raises(Conflict, match=r"job-1 has already ended \(COMPLETED\); nothing was changed"):
        scheduler.cancel(job)
    assert scheduler.status(job) is Status.COMPLETED
    assert scheduler.executor.stops == []


def test_cancelling_twice_is_fine(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.cancel(job)
    assert set(scheduler.executor.stops) == {scheduler.run_of(job)}
    scheduler.end(job, None, signal=9, ended_by="stop")
    scheduler.cancel(job)
    assert scheduler.status(job) is Status.CANCELLED
    assert [event.kind for event in scheduler.events].count("job.stop_requested") == 1


@pytest.mark.parametrize("code", [0, 1])
def test_what_has_ended_is_a_conflict(scheduler: Scheduler, code: int) -> None:
    job = scheduler.submit()
    scheduler.end(job, code)
    with pytest.raises(Conflict, match="already ended"):
        scheduler.cancel(job)


def test_what_is_not_there_is_not_found(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-99; `rota list --all`"):
        scheduler.cancel(JobId(99))


def test_a_stop_is_sent_again_after_a_reconnect(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    run = scheduler.run_of(job)
    scheduler.cancel(job)
    scheduler.crash([Account(run=run, pid=4242)])
    assert scheduler.executor.stops == [run]


def test_a_cancelled_job_whose_start_fails_is_cancelled_and_not_tried_again(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.run) == (Status.CANCELLED, 143, None)
    scheduler.clock.advance(hours=1)
    scheduler.turn()
    assert scheduler.started() == [job]


def test_a_cancelled_job_that_was_never_started_is_not_started_after_a_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.cancel(job)
    scheduler.crash()
    assert scheduler.started() == []
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.CANCELLED, 143)


def test_a_cancelled_job_that_nobody_can_account_for_is_ended_and_not_left(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.start(job)
    scheduler.cancel(job)
    scheduler.crash()
    assert scheduler.status(job) in (Status.CANCELLED, Status.FAILED)
    assert scheduler.started() == [following]


def test_cancelling_one_leaves_the_others_alone(wide: Scheduler) -> None:
    jobs = [wide.submit() for _ in range(3)]
    wide.cancel(jobs[1])
    assert wide.executor.stops == [wide.run_of(jobs[1])]


def test_a_timeout_after_a_cancel_was_asked_for(scheduler: Scheduler) -> None:
    """Whoever comes first gives the reason: the supervisor says by what it ended."""
    job = scheduler.submit(timeout="5s")
    scheduler.start(job)
    scheduler.cancel(job)
    scheduler.end(job, None, signal=15, ended_by="timeout")
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 124)


def test_a_stop_of_one_claim_does_not_reach_the_next(scheduler: Scheduler) -> None:
    """LESSONS Processes: kill signal survived a requeue. A start that nobody confirmed is called back; what the job
    runs as next has nothing to do with that."""
    job = scheduler.submit()
    first = scheduler.run_of(job)
    scheduler.clock.advance(minutes=6)
    scheduler.turn()
    assert scheduler.executor.stops == [first]
    scheduler.say(Exited(run=first, at=0, signal=15, ended_by="stop"))
    scheduler.clock.advance(seconds=2)
    scheduler.turn()
    second = scheduler.run_of(job)
    assert second != first
    scheduler.start(job)
    scheduler.say(Exited(run=first, at=0, signal=15, ended_by="stop"))  # told again
    assert (scheduler.show(job).status, scheduler.job(job).stop_requested) == ("RUNNING", None)
    assert scheduler.executor.stops == [first]
    scheduler.end(job)
    assert scheduler.status(job) is Status.COMPLETED
