"""The lifecycle of a job, and messages that arrive early, late, twice or never."""

from __future__ import annotations

from datetime import timedelta
from signal import SIGKILL

import pytest

from rota.executor.port import EnvironmentUpload, ExitReport, StartConfirmation, StartFailure, StartOrder
from rota.ids import RunId
from rota.kernel.status import Status
from tests.harness import Scheduler


def kinds(scheduler: Scheduler) -> list[str]:
    return [event.kind for event in scheduler.events]


def test_lifecycle_of_a_job(scheduler: Scheduler) -> None:
    job = scheduler.submit("echo", "hello", params={"a": 1}, timeout="2m", idle_timeout="5s", skip_if="test -e x")
    environment, start = scheduler.executor.orders
    assert environment == EnvironmentUpload(environment_id=1, variables={"PATH": "/usr/bin:/bin"})
    assert start == StartOrder(
        run=RunId(1),
        job=job,
        argv=("echo", "hello"),
        cwd="/",
        environment_id=1,
        overlay={
            "ROTA_HOME": str(scheduler.home),
            "ROTA_JOB": "job-1",
            "ROTA_RUN": "run-1",
            "ROTA_PARAMS": '{"a":1}',
            "ROTA_SESSION_FILE": str(scheduler.home / "jobs" / "1" / "session"),
        },
        directory=str(scheduler.home / "jobs" / "1"),
        timeout=120.0,
        idle_timeout=5.0,
        kill_after=5.0,
        skip_if="test -e x",
    )
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show_job(job).status == "RUNNING"  # DISPATCHED is internal (DEC-006)

    scheduler.clock.advance(seconds=1)
    scheduler.confirm_start(job, pid=77)
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 77)

    scheduler.clock.advance(seconds=1)
    scheduler.end_run(job)
    shown = scheduler.show_job(job)
    assert (shown.status, shown.exit_code, shown.reason, shown.wait) == ("COMPLETED", 0, None, None)
    assert shown.finished_at == shown.created_at + timedelta(seconds=2)
    assert shown.run is not None
    assert (shown.run.id, shown.run.worker, shown.run.status, shown.run.exit_code) == (
        "run-1",
        "local/1",
        "COMPLETED",
        0,
    )
    assert scheduler.executor.acknowledged == [1]
    assert kinds(scheduler) == ["job.submitted", "job.dispatched", "job.running", "job.completed"]


def test_environment_is_uploaded_once_per_connection(scheduler: Scheduler) -> None:
    for _ in range(3):
        scheduler.submit()
    scheduler.drain()
    assert sum(isinstance(order, EnvironmentUpload) for order in scheduler.executor.orders) == 1
    scheduler.crash()
    scheduler.submit()
    assert sum(isinstance(order, EnvironmentUpload) for order in scheduler.executor.orders) == 1


@pytest.mark.parametrize(
    ("fields", "status", "exit_code", "reason"),
    [
        ({"code": 0}, Status.COMPLETED, 0, None),
        ({"code": 3}, Status.FAILED, 3, "exit code 3"),
        ({"code": None, "signal": int(SIGKILL)}, Status.FAILED, 137, "killed by SIGKILL"),
        ({"code": None, "ended_by": "timeout", "signal": 15}, Status.FAILED, 124, "timed out after 2m"),
        ({"code": None, "ended_by": "idle_timeout"}, Status.FAILED, 124, "timed out after 5s without output"),
        ({"code": 0, "skip_reason": "nothing to do"}, Status.SKIPPED, 0, "nothing to do"),
        ({"code": 0, "skip_reason": ""}, Status.SKIPPED, 0, "skip_if exited 0"),
        ({"code": None}, Status.FAILED, None, "exit status unknown"),
        ({"code": None, "is_observed": False}, Status.FAILED, None, "Scheduler crash recovery"),
    ],
)
def test_end_report_decides_status_exit_code_and_reason(
    scheduler: Scheduler, fields: dict[str, object], status: Status, exit_code: int, reason: str | None
) -> None:
    job = scheduler.submit(timeout="2m", idle_timeout="5s")
    scheduler.confirm_start(job)
    scheduler.end_run(job, **fields)  # type: ignore[arg-type]
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (status, exit_code, reason)
    assert record.run is not None
    assert (record.run.status, record.run.exit_code) == (status, exit_code)
    assert bool(record.run.error) == (status is Status.FAILED)


def test_end_of_stderr_is_kept(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end_run(job, 1, tail="Traceback: no")
    run = scheduler.job(job).run
    assert run is not None
    assert run.error == "exit code 1\nTraceback: no"


def test_end_that_arrives_with_the_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.receive(StartConfirmation(run=run, pid=5, start_time=1), ExitReport(run=run, at=0, code=0))
    assert scheduler.status(job) is Status.COMPLETED
    assert kinds(scheduler)[-2:] == ["job.running", "job.completed"]


def test_end_that_arrives_before_the_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.receive(ExitReport(run=run, at=0, code=0), StartConfirmation(run=run, pid=5, start_time=1))
    assert scheduler.status(job) is Status.COMPLETED
    scheduler.receive(StartConfirmation(run=run, pid=5, start_time=1))
    assert scheduler.status(job) is Status.COMPLETED
    assert kinds(scheduler)[-1] == "job.completed"


def test_repeated_end_changes_nothing_and_is_acknowledged_again(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.end_run(job, 0)
    before = scheduler.job(job)
    event_count = len(scheduler.events)
    scheduler.clock.advance(hours=1)
    scheduler.receive(ExitReport(run=run, at=scheduler.clock.moment.timestamp(), code=9, tail="late"))
    scheduler.receive(StartFailure(run=run, error="late"))
    assert scheduler.job(job) == before
    assert len(scheduler.events) == event_count
    assert scheduler.executor.acknowledged == [run, run, run]
    assert scheduler.status(following) is Status.DISPATCHED


@pytest.mark.parametrize("code", [0, 1])
def test_pid_is_shown_only_while_the_job_runs(scheduler: Scheduler, code: int) -> None:
    job = scheduler.submit()
    scheduler.confirm_start(job, pid=77)
    assert scheduler.show_job(job).pid == 77
    scheduler.end_run(job, code)
    assert scheduler.show_job(job).pid is None


def test_messages_of_unknown_runs_change_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    unknown = RunId(999)
    scheduler.receive(
        StartConfirmation(run=unknown, pid=1, start_time=1),
        StartFailure(run=unknown, error="x"),
        ExitReport(run=unknown, at=0, code=1),
    )
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.engine.store_error is None


def test_main_process_that_cannot_start_after_skip_if_does_not_stay_running(scheduler: Scheduler) -> None:
    """The supervisor reports the start of the `skip_if` child, then the failed start of the main process."""
    job, following = scheduler.submit("missing", skip_if="false"), scheduler.submit()
    scheduler.confirm_start(job)
    for _ in range(3):
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
        scheduler.clock.advance(seconds=5)
        scheduler.run_turns()
    assert scheduler.status(job) is not Status.RUNNING
    assert following in scheduler.started_jobs()


def test_end_time_is_that_of_the_report_and_never_in_the_future(scheduler: Scheduler) -> None:
    early, late = scheduler.submit(), scheduler.submit()
    at = scheduler.clock.moment
    scheduler.clock.advance(minutes=5)
    scheduler.receive(ExitReport(run=scheduler.find_run(early), at=at.timestamp(), code=0))
    assert scheduler.job(early).finished_at == at
    scheduler.receive(ExitReport(run=scheduler.find_run(late), at=scheduler.clock.moment.timestamp() + 3600, code=0))
    assert scheduler.job(late).finished_at == scheduler.clock.moment
