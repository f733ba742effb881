"""Workspace in start orders, and workspace errors of a run."""

from __future__ import annotations

import msgspec

from rota.executor.local import _encode_order
from rota.ids import JobId
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.job import WorkspaceSpec
from rota.kernel.status import Status
from tests.harness import START_TIMEOUT, Scheduler

WORKSPACE = WorkspaceSpec(repository="/repo/.git", subdirectory="below", base="abc", patch=True, input_patch="d" * 64)


def _submit(scheduler: Scheduler, workspace: WorkspaceSpec | None) -> JobId:
    request = [Submission(command=["true"], cwd="/repo/below", retries=1)]
    environment = DefaultEnvironment(cwd="/", variables={})
    result = scheduler.run_request(lambda tx: submit(tx, request, environment, actor="tester", workspaces=[workspace]))
    job: JobId = result.jobs[0]
    return job


def test_workspace_is_stored_and_ordered_as_requested(scheduler: Scheduler) -> None:
    job = _submit(scheduler, WORKSPACE)
    assert scheduler.job(job).spec.workspace == WORKSPACE
    (start,) = scheduler.executor.starts
    assert start.workspace == {
        "repository": "/repo/.git",
        "subdirectory": "below",
        "base": "abc",
        "patch": True,
        "input_patch": f"{scheduler.home}/patches/{'d' * 64}.patch",
        "home": str(scheduler.home),
        "job": "job-1",
        "directory": f"{scheduler.home}/jobs/1",
        "cwd": "/repo/below",
        "limit": 0.8 * START_TIMEOUT.total_seconds(),
    }
    assert start.overlay["ROTA_INPUT_PATCH"] == f"{scheduler.home}/jobs/1/input.patch"


def test_plain_job_has_no_extra_fields_in_its_order(scheduler: Scheduler) -> None:
    job = _submit(scheduler, None)
    (start,) = scheduler.executor.starts
    assert b"workspace" not in _encode_order(start)
    assert "ROTA_INPUT_PATCH" not in start.overlay
    assert (scheduler.job(job).spec.workspace, scheduler.show_job(job).worktree) == (None, None)


def test_retry_has_the_same_workspace_in_its_own_directory(scheduler: Scheduler) -> None:
    job = _submit(scheduler, WORKSPACE)
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    scheduler.clock.advance(seconds=60)
    scheduler.run_turns()
    first, second = scheduler.executor.starts
    assert isinstance(first.workspace, dict)
    assert isinstance(second.workspace, dict)
    assert second.workspace == {**first.workspace, "job": "job-2", "directory": f"{scheduler.home}/jobs/2"}


def test_workspace_error_is_added_to_the_error_of_a_failed_run(scheduler: Scheduler) -> None:
    job = _submit(scheduler, WORKSPACE)
    scheduler.confirm_start(job)
    scheduler.end_run(job, 3, tail="oh", workspace_error="no patch")
    run = scheduler.job(job).run
    assert run is not None
    assert run.error == "exit code 3\noh\nno patch"


def test_workspace_error_does_not_fail_a_successful_run(scheduler: Scheduler) -> None:
    job = _submit(scheduler, WORKSPACE)
    scheduler.confirm_start(job)
    scheduler.end_run(job, 0, workspace_error="no patch")
    record = scheduler.job(job)
    assert record.run is not None
    assert (record.status, record.run.error) == (Status.COMPLETED, None)


def test_unreadable_workspace_fails_its_own_job(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 0})
    broken = _submit(scheduler, msgspec.structs.replace(WORKSPACE, repository=7))
    fine = _submit(scheduler, None)
    scheduler.set_pools(**{"global": 2})
    assert scheduler.status(broken) is Status.FAILED
    assert (scheduler.job(broken).reason or "").startswith("scheduler data error: ")
    assert scheduler.started_jobs() == [fine]
