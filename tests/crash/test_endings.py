"""The judge of the crash matrix detects a job that ended without a cause, and one that ran without permission."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crash.endings import EndingCheck
from tests.crash.load import Records, Submitted


def _make_job(
    number: int, status: str, *, reason: str | None = None, run: str | None = None, **fields: Any
) -> dict[str, Any]:
    name = f"job-{number}"
    job = {"id": name, "chain": name, "status": status, "reason": reason, "group": None}
    return job | {"run": None if run is None else {"id": run}} | fields


def _find_faults(
    *jobs: dict[str, Any], cancelled: tuple[str, ...] = (), on_failure: str = "", **after: str
) -> list[str]:
    """Return the kinds of faults. `job_2="failed"`: the second job depends on the first with that policy."""
    records = Records()
    records.cancelled.update(cancelled)
    for job in jobs:
        policy = after.get(job["id"].replace("-", "_"))
        edges = [] if policy is None else [{"job": "job-1", "policy": policy}]
        records.by_label[f"of {job['id']}"] = Submitted(jobs=[job["id"]], after=edges, on_failure=on_failure)
    return [kind for kind, _ in EndingCheck({job["id"]: job for job in jobs}, records).faults()]


@pytest.mark.parametrize("status", ["FAILED", "COMPLETED", "CANCELLED", "SKIPPED", "BLOCKED_BY_DEPENDENCY"])
def test_end_without_run_and_cause_is_a_fault(status: str) -> None:
    assert _find_faults(_make_job(1, status)) == ["lost"]
    assert _find_faults(_make_job(1, status, reason="predecessor failed")) == ["lost"]


def test_cancelled_job_has_a_cause() -> None:
    assert not _find_faults(_make_job(1, "CANCELLED", reason="cancelled by me"), cancelled=("job-1",))


@pytest.mark.parametrize(
    ("first", "policy", "second"), [("FAILED", "success", "BLOCKED_BY_DEPENDENCY"), ("COMPLETED", "failed", "SKIPPED")]
)
def test_unmet_dependency_is_a_cause(first: str, policy: str, second: str) -> None:
    jobs = _make_job(1, first, run="run-1"), _make_job(2, second)
    assert not _find_faults(*jobs, job_2=policy)
    assert _find_faults(*jobs, job_2="finished") == ["lost"]


@pytest.mark.parametrize(("status", "policy"), [("CANCELLED", "stop"), ("SKIPPED", "skip")])
def test_group_policy_is_a_cause(status: str, policy: str) -> None:
    jobs = (
        _make_job(1, "FAILED", run="run-1", group="group-1"),
        _make_job(2, status, reason="predecessor failed", group="group-1"),
    )
    assert not _find_faults(*jobs, on_failure=policy)
    assert _find_faults(*jobs, on_failure="continue") == ["lost"]


def test_run_after_an_unmet_dependency_is_a_fault() -> None:
    jobs = _make_job(1, "FAILED", run="run-1"), _make_job(2, "COMPLETED", run="run-2")
    assert _find_faults(*jobs, job_2="success") == ["twice"]
    assert not _find_faults(*jobs, job_2="failed")
