"""The job's spec: what may change of it, and until when (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.making import NOW
from rota.core.job import EDITABLE, Job, Spec, edit
from rota.core.run import Run
from rota.core.status import STARTED, Status
from rota.errors import Conflict
from rota.ids import JobId, RunId

SPEC = Spec(command=("agent", "plan"), cwd="/work", surroundings=1, name="plan", params={"key": "value"})
RUN = Run(
    id=RunId(1), job=JobId(1), worker="local/1", status=Status.FAILED, started_at=NOW, finished_at=NOW, exit_code=1,
    error="exit code 1",
)  # fmt: skip
CHANGES: dict[str, Any] = {
    "command": ("agent", "review"), "params": {"key": "new_value"}, "name": "other", "timeout": timedelta(seconds=5),
    "idle_timeout": timedelta(seconds=1),
}  # fmt: skip


def job(status: Status, run: Run | None = None) -> Job:
    """Only what an edit looks at is set."""
    fields: dict[str, Any] = dict.fromkeys(Job.__struct_fields__)
    return Job(**{**fields, "id": JobId(1), "spec": SPEC, "status": status, "run": run})


def test_inv_001_what_can_be_edited_is_edited_before_dispatch() -> None:
    assert CHANGES.keys() == EDITABLE
    edited = edit(job(Status.QUEUED), CHANGES)
    assert {name: getattr(edited, name) for name in CHANGES} == CHANGES
    assert (edited.cwd, edited.surroundings) == (SPEC.cwd, SPEC.surroundings)


@pytest.mark.parametrize("status", sorted(STARTED))
def test_inv_001_cannot_modify_params_after_dispatch(status: Status) -> None:
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch$"):
        edit(job(status), {"params": {"key": "new_value"}})
    with pytest.raises(Conflict, match=r"^Cannot modify command after dispatch$"):
        edit(job(status), {"command": ("rm",)})
    with pytest.raises(Conflict, match=r"^Cannot modify command, params after dispatch$"):
        edit(job(status), {"params": {}, "command": ("rm",)})


@pytest.mark.parametrize("status", Status)
def test_inv_001_what_has_run_stays_frozen_whatever_its_status_is_now(status: Status) -> None:
    """A rewind puts a job back in the queue; what it is asked to do stays what it was."""
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(job(status, RUN), {"params": {}})


@pytest.mark.parametrize("field", ["cwd", "surroundings", "locks", "pools", "flow", "nonsense"])
def test_what_is_no_part_of_an_edit_is_refused_by_name(field: str) -> None:
    with pytest.raises(Conflict, match=f"^Cannot modify immutable fields: {field}$"):
        edit(job(Status.QUEUED), {field: None, "name": "other"})
