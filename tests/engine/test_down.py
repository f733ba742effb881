"""`down`: no job starts during the shutdown. With `--kill`, running jobs end as FAILED `stopped by shutdown`."""

from __future__ import annotations

import pytest

from rota.control.commands import end_running
from rota.executor.port import ExitReport, RunReport, StartFailure
from rota.kernel.status import Status
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases


def test_running_jobs_fail_when_they_are_gone(unlimited_scheduler: Scheduler) -> None:
    running, claimed, waiting = (
        unlimited_scheduler.submit(locks=["k"]),
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(locks=["k"]),
    )
    unlimited_scheduler.confirm_start(running)
    unlimited_scheduler.engine.is_draining = True
    assert unlimited_scheduler.run_request(end_running) == [running, claimed]
    assert unlimited_scheduler.executor.stops == [
        unlimited_scheduler.find_run(running),
        unlimited_scheduler.find_run(claimed),
    ]
    assert (unlimited_scheduler.status(running), unlimited_scheduler.status(waiting)) == (
        Status.RUNNING,
        Status.WAITING_ON_LOCKS,
    )
    unlimited_scheduler.end_run(running, None, signal=15, ended_by="stop", tail="half done\n")
    record = unlimited_scheduler.job(running)
    assert (record.status, record.exit_code, record.reason) == (Status.FAILED, 143, "stopped by shutdown")
    assert record.run is not None
    assert record.run.error == "stopped by shutdown\nhalf done\n"
    unlimited_scheduler.end_run(claimed, None, signal=15, ended_by="stop")
    assert (unlimited_scheduler.status(claimed), unlimited_scheduler.job(claimed).reason) == (
        Status.FAILED,
        "stopped by shutdown",
    )
    assert waiting not in unlimited_scheduler.started_jobs()


def test_result_before_the_stop_stands(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.run_request(end_running)
    scheduler.end_run(job, 0)
    assert scheduler.status(job) is Status.COMPLETED


def test_exit_code_0_after_a_stop_is_a_failure(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    scheduler.run_request(end_running)
    scheduler.end_run(job, 0, ended_by="stop")
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 143)


def test_cancelled_jobs_are_cancelled_and_not_failed(unlimited_scheduler: Scheduler) -> None:
    before, after = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    for job in (before, after):
        unlimited_scheduler.confirm_start(job)
    unlimited_scheduler.cancel(before)
    unlimited_scheduler.run_request(end_running)
    unlimited_scheduler.cancel(after)
    for job in (before, after):
        unlimited_scheduler.end_run(job, None, signal=15, ended_by="stop")
        assert (unlimited_scheduler.status(job), unlimited_scheduler.job(job).reason) == (
            Status.CANCELLED,
            "cancelled by tester",
        )


def test_unused_claim_waits_again(scheduler: Scheduler) -> None:
    """It never ran, so nothing fails, and the stop does not affect its next run."""
    job = scheduler.submit()
    scheduler.engine.is_draining = True
    scheduler.run_request(end_running)
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
    assert (scheduler.status(job), scheduler.job(job).stop_requested) == (Status.QUEUED, None)
    scheduler.crash()
    scheduler.confirm_start(job)
    scheduler.crash([RunReport(run=scheduler.find_run(job), pid=1)] if scheduler.executor.starts else [])
    assert scheduler.executor.stops == []


def test_crash_during_shutdown_does_not_change_the_end(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job)
    run = scheduler.find_run(job)
    scheduler.run_request(end_running)
    scheduler.crash([RunReport(run=run, pid=1)])
    assert scheduler.executor.stops == [run]
    scheduler.receive(ExitReport(run=run, at=0, signal=9, ended_by="stop"))
    assert scheduler.job(job).reason == "stopped by shutdown"


def test_draining_engine_starts_nothing_and_records_ends(scheduler: Scheduler) -> None:
    first, second = scheduler.submit(), scheduler.submit()
    scheduler.engine.is_draining = True
    scheduler.end_run(first)
    assert scheduler.status(first) is Status.COMPLETED
    assert scheduler.started_jobs() == [first]
    assert scheduler.status(second) is Status.QUEUED
