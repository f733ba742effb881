"""What the executor is told of a workspace, and what its trouble makes of a run."""

from __future__ import annotations

import msgspec

from harness import Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.status import Status
from rota.core.workspace import Workspace
from rota.executor.local import _encoded
from rota.ids import JobId

ASKED = Workspace(repository="/repo/.git", below="below", base="abc", patch=True, input="d" * 64)


def _submit(scheduler: Scheduler, workspace: Workspace | None) -> JobId:
    wanted = [Submission(command=["true"], cwd="/repo/below", retries=1)]
    around = Surroundings(cwd="/", variables={})
    told = scheduler.do(lambda work: submit(work, wanted, around, actor="tester", workspaces=[workspace]))
    job: JobId = told.jobs[0]
    return job


def test_it_is_stored_and_ordered_as_it_was_asked_for(scheduler: Scheduler) -> None:
    job = _submit(scheduler, ASKED)
    assert scheduler.job(job).spec.workspace == ASKED
    (start,) = scheduler.executor.starts
    assert start.workspace == {
        "repository": "/repo/.git",
        "below": "below",
        "base": "abc",
        "patch": True,
        "input": f"{scheduler.home}/patches/{'d' * 64}.patch",
        "home": str(scheduler.home),
        "job": "job-1",
        "directory": f"{scheduler.home}/jobs/1",
        "cwd": "/repo/below",
        "limit": 240.0,
    }
    assert start.overlay["ROTA_INPUT_PATCH"] == f"{scheduler.home}/jobs/1/input.patch"


def test_a_plain_job_costs_not_a_byte(scheduler: Scheduler) -> None:
    job = _submit(scheduler, None)
    (start,) = scheduler.executor.starts
    assert b"workspace" not in _encoded(start)
    assert "ROTA_INPUT_PATCH" not in start.overlay
    assert (scheduler.job(job).spec.workspace, scheduler.show(job).worktree) == (None, None)


def test_a_retry_has_the_same_in_its_own_directory(scheduler: Scheduler) -> None:
    job = _submit(scheduler, ASKED)
    scheduler.start(job)
    scheduler.end(job, 1)
    scheduler.clock.advance(seconds=60)
    scheduler.turn()
    first, second = scheduler.executor.starts
    assert isinstance(first.workspace, dict)
    assert isinstance(second.workspace, dict)
    assert second.workspace == {**first.workspace, "job": "job-2", "directory": f"{scheduler.home}/jobs/2"}


def test_trouble_after_the_end_is_in_the_error_of_a_run_that_failed(scheduler: Scheduler) -> None:
    job = _submit(scheduler, ASKED)
    scheduler.start(job)
    scheduler.end(job, 3, tail="oh", trouble="no patch")
    run = scheduler.job(job).run
    assert run is not None
    assert run.error == "exit code 3\noh\nno patch"


def test_trouble_after_the_end_does_not_make_a_failure(scheduler: Scheduler) -> None:
    job = _submit(scheduler, ASKED)
    scheduler.start(job)
    scheduler.end(job, 0, trouble="no patch")
    found = scheduler.job(job)
    assert found.run is not None
    assert (found.status, found.run.error) == (Status.COMPLETED, None)


def test_a_record_that_cannot_be_read_ends_its_own_job_alone(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 0})
    broken = _submit(scheduler, msgspec.structs.replace(ASKED, repository=7))
    fine = _submit(scheduler, None)
    scheduler.set_pools(**{"global": 2})
    assert scheduler.status(broken) is Status.FAILED
    assert (scheduler.job(broken).reason or "").startswith("scheduler data error: ")
    assert scheduler.started() == [fine]
