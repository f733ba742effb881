"""`down --kill`: what runs ends as FAILED `stopped by shutdown`, by the same way as every other end."""

from __future__ import annotations

from harness import Scheduler
from rota.command.down import end_running
from rota.core.status import Status
from rota.executor.port import Account, Exited, FailedToStart


def test_what_runs_is_failed_when_it_is_gone(wide: Scheduler) -> None:
    running, claimed, waiting = wide.submit(locks=["k"]), wide.submit(), wide.submit(locks=["k"])
    wide.start(running)
    wide.engine.is_draining = True
    assert wide.do(end_running) == [running, claimed]
    assert wide.executor.stops == [wide.run_of(running), wide.run_of(claimed)]
    assert (wide.status(running), wide.status(waiting)) == (Status.RUNNING, Status.WAITING_ON_LOCKS)
    wide.end(running, None, signal=15, ended_by="stop", tail="half done\n")
    found = wide.job(running)
    assert (found.status, found.exit_code, found.reason) == (Status.FAILED, 143, "stopped by shutdown")
    assert found.run is not None
    assert found.run.error == "stopped by shutdown\nhalf done\n"
    wide.end(claimed, None, signal=15, ended_by="stop")
    assert (wide.status(claimed), wide.job(claimed).reason) == (Status.FAILED, "stopped by shutdown")
    assert waiting not in wide.started()


def test_a_result_that_was_there_first_stands(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.do(end_running)
    scheduler.end(job, 0)
    assert scheduler.status(job) is Status.COMPLETED


def test_a_child_that_leaves_with_0_when_told_to_has_not_succeeded(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    scheduler.do(end_running)
    scheduler.end(job, 0, ended_by="stop")
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 143)


def test_what_somebody_cancels_is_cancelled_and_not_failed(wide: Scheduler) -> None:
    before, after = wide.submit(), wide.submit()
    for job in (before, after):
        wide.start(job)
    wide.cancel(before)
    wide.do(end_running)
    wide.cancel(after)
    for job in (before, after):
        wide.end(job, None, signal=15, ended_by="stop")
        assert (wide.status(job), wide.job(job).reason) == (Status.CANCELLED, "cancelled by tester")


def test_a_claim_that_came_to_nothing_waits_again(scheduler: Scheduler) -> None:
    """It never ran, so there is nothing to fail, and nothing is asked of its next run."""
    job = scheduler.submit()
    scheduler.engine.is_draining = True
    scheduler.do(end_running)
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
    assert (scheduler.status(job), scheduler.job(job).stop_requested) == (Status.QUEUED, None)
    scheduler.crash()
    scheduler.start(job)
    scheduler.crash([Account(run=scheduler.run_of(job), pid=1)] if scheduler.executor.starts else [])
    assert scheduler.executor.stops == []


def test_a_scheduler_killed_meanwhile_does_not_change_the_end(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    run = scheduler.run_of(job)
    scheduler.do(end_running)
    scheduler.crash([Account(run=run, pid=1)])
    assert scheduler.executor.stops == [run]
    scheduler.say(Exited(run=run, at=0, signal=9, ended_by="stop"))
    assert scheduler.job(job).reason == "stopped by shutdown"
