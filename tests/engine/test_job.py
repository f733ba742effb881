"""The whole way of one job, and what comes early, late, twice or never."""

from __future__ import annotations

from datetime import timedelta
from signal import SIGKILL

import pytest

from harness import Scheduler
from rota.core.status import Status
from rota.executor.port import Environment, Exited, FailedToStart, Start, Started
from rota.ids import RunId


def kinds(scheduler: Scheduler) -> list[str]:
    return [event.kind for event in scheduler.events]


def test_the_whole_way_of_one_job(scheduler: Scheduler) -> None:
    job = scheduler.submit("echo", "hello", params={"a": 1}, timeout="2m", idle_timeout="5s", skip_if="test -e x")
    environment, start = scheduler.executor.orders
    assert environment == Environment(surroundings=1, variables={"PATH": "/usr/bin:/bin"})
    assert start == Start(
        run=RunId(1),
        job=job,
        argv=("echo", "hello"),
        cwd="/",
        surroundings=1,
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
    assert scheduler.show(job).status == "RUNNING"  # DISPATCHED is internal (DEC-006)

    scheduler.clock.advance(seconds=1)
    scheduler.start(job, pid=77)
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 77)

    scheduler.clock.advance(seconds=1)
    scheduler.end(job)
    form = scheduler.show(job)
    assert (form.status, form.exit_code, form.reason, form.wait) == ("COMPLETED", 0, None, None)
    assert form.finished_at == form.created_at + timedelta(seconds=2)
    assert form.run is not None
    assert (form.run.id, form.run.worker, form.run.status, form.run.exit_code) == ("run-1", "local/1", "COMPLETED", 0)
    assert scheduler.executor.acknowledged == [1]
    assert kinds(scheduler) == ["job.submitted", "job.dispatched", "job.running", "job.completed"]


def test_an_environment_is_told_once_for_each_connection(scheduler: Scheduler) -> None:
    for _ in range(3):
        scheduler.submit()
    scheduler.drain()
    assert sum(isinstance(order, Environment) for order in scheduler.executor.orders) == 1
    scheduler.crash()
    scheduler.submit()
    assert sum(isinstance(order, Environment) for order in scheduler.executor.orders) == 1


@pytest.mark.parametrize(
    ("fields", "status", "exit_code", "reason"),
    [
        ({"code": 0}, Status.COMPLETED, 0, None),
        ({"code": 3}, Status.FAILED, 3, "exit code 3"),
        ({"code": None, "signal": int(SIGKILL)}, Status.FAILED, 137, "killed by SIGKILL"),
        ({"code": None, "ended_by": "timeout", "signal": 15}, Status.FAILED, 124, "timed out after 2m"),
        ({"code": None, "ended_by": "idle_timeout"}, Status.FAILED, 124, "timed out after 5s without output"),
        ({"code": 0, "skipped": "nothing to do"}, Status.SKIPPED, 0, "nothing to do"),
        ({"code": 0, "skipped": ""}, Status.SKIPPED, 0, "skip_if exited 0"),
        ({"code": None}, Status.FAILED, 1, "exit status unknown"),
        ({"code": None, "watched": False}, Status.FAILED, 1, "Scheduler crash recovery"),
    ],
)
def test_what_an_end_means(
    scheduler: Scheduler, fields: dict[str, object], status: Status, exit_code: int, reason: str | None
) -> None:
    job = scheduler.submit(timeout="2m", idle_timeout="5s")
    scheduler.start(job)
    scheduler.end(job, **fields)  # type: ignore[arg-type]
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (status, exit_code, reason)
    assert found.run is not None
    assert (found.run.status, found.run.exit_code) == (status, exit_code)
    assert bool(found.run.error) == (status is Status.FAILED)


def test_the_end_of_stderr_is_kept(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end(job, 1, tail="Traceback: no")
    run = scheduler.job(job).run
    assert run is not None
    assert run.error == "exit code 1\nTraceback: no"


def test_a_child_so_fast_that_its_end_comes_with_its_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.say(Started(run=run, pid=5, start_time=1), Exited(run=run, at=0, code=0))
    assert scheduler.status(job) is Status.COMPLETED
    assert kinds(scheduler)[-2:] == ["job.running", "job.completed"]


def test_a_child_so_fast_that_its_end_comes_before_its_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.say(Exited(run=run, at=0, code=0), Started(run=run, pid=5, start_time=1))
    assert scheduler.status(job) is Status.COMPLETED
    scheduler.say(Started(run=run, pid=5, start_time=1))
    assert scheduler.status(job) is Status.COMPLETED
    assert kinds(scheduler)[-1] == "job.completed"


def test_an_end_told_again_changes_nothing_and_is_acknowledged_again(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.end(job, 0)
    before = scheduler.job(job)
    told = len(scheduler.events)
    scheduler.clock.advance(hours=1)
    scheduler.say(Exited(run=run, at=scheduler.clock.moment.timestamp(), code=9, tail="late"))
    scheduler.say(FailedToStart(run=run, error="late"))
    assert scheduler.job(job) == before
    assert len(scheduler.events) == told
    assert scheduler.executor.acknowledged == [run, run, run]
    assert scheduler.status(following) is Status.DISPATCHED


def test_messages_of_runs_that_nobody_knows_change_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    ghost = RunId(999)
    scheduler.say(
        Started(run=ghost, pid=1, start_time=1), FailedToStart(run=ghost, error="x"), Exited(run=ghost, at=0, code=1)
    )
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.engine.trouble is None


def test_a_main_process_that_cannot_be_started_after_skip_if_ran_is_not_left_running(scheduler: Scheduler) -> None:
    """The supervisor says `started` of the `skip_if` child, then `failed_to_start` of the main one."""
    job, following = scheduler.submit("missing", skip_if="false"), scheduler.submit()
    scheduler.start(job)
    for _ in range(3):
        scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
        scheduler.clock.advance(seconds=5)
        scheduler.turn()
    assert scheduler.status(job) is not Status.RUNNING
    assert following in scheduler.started()


def test_an_end_is_booked_at_the_time_it_came_and_never_in_the_future(scheduler: Scheduler) -> None:
    early, late = scheduler.submit(), scheduler.submit()
    at = scheduler.clock.moment
    scheduler.clock.advance(minutes=5)
    scheduler.say(Exited(run=scheduler.run_of(early), at=at.timestamp(), code=0))
    assert scheduler.job(early).finished_at == at
    scheduler.say(Exited(run=scheduler.run_of(late), at=scheduler.clock.moment.timestamp() + 3600, code=0))
    assert scheduler.job(late).finished_at == scheduler.clock.moment
