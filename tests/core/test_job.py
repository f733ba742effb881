"""The job's spec: what may change of it, and until when (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.making import NOW
from rota.core.job import EDITABLE, FROZEN, Job, Spec, changed, edit
from rota.core.retry import RetryPolicy
from rota.core.run import Run
from rota.core.status import STARTED, WAITING, Status
from rota.errors import Conflict
from rota.ids import JobId, RunId

SPEC = Spec(command=("agent", "plan"), cwd="/work", surroundings=1, name="plan", params={"key": "value"})
RUN = Run(
    id=RunId(1), job=JobId(1), worker="local/1", status=Status.FAILED, started_at=NOW, finished_at=NOW, exit_code=1,
    error="exit code 1",
)  # fmt: skip
CHANGES: dict[str, Any] = {
    "command": ("agent", "review"), "params": {"key": "new_value"}, "name": "other", "timeout": timedelta(seconds=5),
    "idle_timeout": timedelta(seconds=1), "retry": RetryPolicy(max_retries=7),
}  # fmt: skip


def job(status: Status, run: Run | None = None) -> Job:
    return Job(
        id=JobId(1), spec=SPEC, status=status, chain=JobId(1), retry_of=None, attempt=1, retries=0, priority=0,
        position=100, created_at=NOW, queued_at=NOW, started_at=None, finished_at=None, not_before=None, exit_code=None,
        reason=None,
        wait_kind=None, waited_on=(), permanently_failed=False, dispatch_failures=0, last_failure=None,
        stop_requested=None, pid=None, run=run,
    )  # fmt: skip


def test_inv_001_what_can_be_edited_is_edited_before_dispatch() -> None:
    own = {"priority": 3, "not_before": NOW + timedelta(hours=1)}
    assert {*CHANGES, *own} == EDITABLE
    was = job(Status.QUEUED)
    edited = edit(was, {**CHANGES, **own})
    assert {name: getattr(edited.spec, name) for name in CHANGES} == CHANGES
    assert {name: getattr(edited, name) for name in own} == own
    assert (edited.spec.cwd, edited.spec.surroundings, edited.position) == (SPEC.cwd, SPEC.surroundings, was.position)
    assert changed(was, edited) == sorted(EDITABLE)
    assert changed(was, edit(was, {"name": "plan", "priority": 0})) == []


@pytest.mark.parametrize("status", Status)
def test_only_what_waits_is_edited(status: Status) -> None:
    for name, value in (*CHANGES.items(), ("priority", 3), ("not_before", None)):
        if status in WAITING:
            edit(job(status), {name: value})
        else:
            when = "dispatch" if status in STARTED else "its end"
            with pytest.raises(Conflict, match=rf"^Cannot modify {name} after {when}$"):
                edit(job(status), {name: value})


@pytest.mark.parametrize("status", sorted(WAITING))
def test_one_that_was_rewound_is_edited_but_for_what_it_is_asked_to_do(status: Status) -> None:
    rest = {name: value for name, value in CHANGES.items() if name not in FROZEN}
    assert changed(job(status, RUN), edit(job(status, RUN), {**rest, "priority": 9})) == sorted({*rest, "priority"})
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
def test_inv_001_what_has_run_stays_frozen_whatever_its_status_is_now(status: Status) -> None:
    """A rewind puts a job back in the queue; what it is asked to do stays what it was."""
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(job(status, RUN), {"params": {}})


@pytest.mark.parametrize("field", ["cwd", "surroundings", "locks", "pools", "flow", "nonsense"])
def test_what_is_no_part_of_an_edit_is_refused_by_name(field: str) -> None:
    with pytest.raises(Conflict, match=f"^Cannot modify immutable fields: {field}$"):
        edit(job(Status.QUEUED), {field: None, "name": "other"})
