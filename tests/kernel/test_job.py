"""Edits of a job: which fields may change, and until when (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Conflict
from rota.ids import JobId, RunId
from rota.kernel.job import EDITABLE_FIELDS, FROZEN_FIELDS, Job, Spec, changed_fields, edit
from rota.kernel.retry import RetryPolicy
from rota.kernel.run import Run
from rota.kernel.status import STARTED, WAITING, Status
from tests.kernel.factories import NOW

SPEC = Spec(command=("agent", "plan"), cwd="/work", environment=1, name="plan", params={"key": "value"})
RUN = Run(
    id=RunId(1),
    job=JobId(1),
    worker="local/1",
    status=Status.FAILED,
    started_at=NOW,
    finished_at=NOW,
    exit_code=1,
    error="exit code 1",
)
CHANGES: dict[str, Any] = {
    "command": ("agent", "review"),
    "params": {"key": "new_value"},
    "name": "other",
    "timeout": timedelta(seconds=5),
    "idle_timeout": timedelta(seconds=1),
    "retry": RetryPolicy(max_retries=7),
}


def job(status: Status, run: Run | None = None) -> Job:
    return Job(
        id=JobId(1),
        spec=SPEC,
        status=status,
        chain=JobId(1),
        retry_of=None,
        attempt=1,
        retries=0,
        priority=0,
        position=100,
        created_at=NOW,
        queued_at=NOW,
        started_at=None,
        finished_at=None,
        not_before=None,
        exit_code=None,
        reason=None,
        wait_kind=None,
        waited_on=(),
        permanently_failed=False,
        dispatch_failures=0,
        last_failure=None,
        stop_requested=None,
        pid=None,
        run=run,
    )


def test_inv_001_editable_fields_change_before_dispatch() -> None:
    job_fields = {"priority": 3, "not_before": NOW + timedelta(hours=1)}
    assert {*CHANGES, *job_fields} == EDITABLE_FIELDS
    original = job(Status.QUEUED)
    edited = edit(original, {**CHANGES, **job_fields})
    assert {name: getattr(edited.spec, name) for name in CHANGES} == CHANGES
    assert {name: getattr(edited, name) for name in job_fields} == job_fields
    assert (edited.spec.cwd, edited.spec.environment, edited.position) == (
        SPEC.cwd,
        SPEC.environment,
        original.position,
    )
    assert changed_fields(original, edited) == sorted(EDITABLE_FIELDS)
    assert changed_fields(original, edit(original, {"name": "plan", "priority": 0})) == []


@pytest.mark.parametrize("status", Status)
def test_only_waiting_jobs_can_be_edited(status: Status) -> None:
    for name, value in (*CHANGES.items(), ("priority", 3), ("not_before", None)):
        if status in WAITING:
            edit(job(status), {name: value})
        else:
            when = "dispatch" if status in STARTED else "its end"
            with pytest.raises(Conflict, match=rf"^Cannot modify {name} after {when}$"):
                edit(job(status), {name: value})


@pytest.mark.parametrize("status", sorted(WAITING))
def test_rewound_job_keeps_command_and_params(status: Status) -> None:
    rest = {name: value for name, value in CHANGES.items() if name not in FROZEN_FIELDS}
    assert changed_fields(job(status, RUN), edit(job(status, RUN), {**rest, "priority": 9})) == sorted(
        {*rest, "priority"}
    )
    with pytest.raises(Conflict, match=r"^Cannot modify command after dispatch$"):
        edit(job(status, RUN), {**rest, "command": ("rm",)})


@pytest.mark.parametrize("status", sorted(STARTED))
def test_inv_001_cannot_modify_params_after_dispatch(status: Status) -> None:
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch$"):
        edit(job(status), {"params": {"key": "new_value"}})
    with pytest.raises(Conflict, match=r"^Cannot modify command after dispatch$"):
        edit(job(status), {"command": ("rm",)})
    with pytest.raises(Conflict, match=r"^Cannot modify command, params after dispatch$"):
        edit(job(status), {"params": {}, "command": ("rm",)})


@pytest.mark.parametrize("status", Status)
def test_inv_001_params_stay_frozen_after_a_run(status: Status) -> None:
    """A rewind puts a job back in the queue, but its command and params stay frozen."""
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(job(status, RUN), {"params": {}})


@pytest.mark.parametrize("field", ["cwd", "environment", "locks", "pools", "flow", "nonsense"])
def test_immutable_fields_are_refused_by_name(field: str) -> None:
    with pytest.raises(Conflict, match=f"^Cannot modify immutable fields: {field}$"):
        edit(job(Status.QUEUED), {field: None, "name": "other"})
