"""The judge of the crash matrix sees a job that ended without cause, and one that ran without leave."""

from __future__ import annotations

from typing import Any

import pytest

from crash.ends import Ends
from crash.load import Records, Told


def _job(number: int, status: str, *, reason: str | None = None, run: str | None = None, **more: Any) -> dict[str, Any]:
    name = f"job-{number}"
    shown = {"id": name, "chain": name, "status": status, "reason": reason, "group": None}
    return shown | {"run": None if run is None else {"id": run}} | more


def _faults(*jobs: dict[str, Any], cancelled: tuple[str, ...] = (), on_failure: str = "", **after: str) -> list[str]:
    """`job_2="failed"`: the second comes after the first, by that policy."""
    records = Records()
    records.cancelled.update(cancelled)
    for job in jobs:
        policy = after.get(job["id"].replace("-", "_"))
        edges = [] if policy is None else [{"job": "job-1", "policy": policy}]
        records.told[f"of {job['id']}"] = Told(jobs=[job["id"]], after=edges, on_failure=on_failure)
    return [kind for kind, _ in Ends({job["id"]: job for job in jobs}, records).faults()]


@pytest.mark.parametrize("status", ["FAILED", "COMPLETED", "CANCELLED", "SKIPPED", "BLOCKED_BY_DEPENDENCY"])
def test_nobody_ends_without_a_run_and_without_a_cause(status: str) -> None:
    assert _faults(_job(1, status)) == ["lost"]
    assert _faults(_job(1, status, reason="predecessor failed")) == ["lost"]


def test_what_somebody_cancelled_has_a_cause() -> None:
    assert not _faults(_job(1, "CANCELLED", reason="cancelled by me"), cancelled=("job-1",))


@pytest.mark.parametrize(
    ("first", "policy", "second"),
    [("FAILED", "success", "BLOCKED_BY_DEPENDENCY"), ("COMPLETED", "failed", "SKIPPED")],
)
def test_what_came_after_one_that_ended_otherwise_has_a_cause(first: str, policy: str, second: str) -> None:
    jobs = _job(1, first, run="run-1"), _job(2, second)
    assert not _faults(*jobs, job_2=policy)
    assert _faults(*jobs, job_2="finished") == ["lost"]


@pytest.mark.parametrize(("status", "policy"), [("CANCELLED", "stop"), ("SKIPPED", "skip")])
def test_what_the_policy_of_its_group_ended_has_a_cause(status: str, policy: str) -> None:
    jobs = (
        _job(1, "FAILED", run="run-1", group="group-1"),
        _job(2, status, reason="predecessor failed", group="group-1"),
    )
    assert not _faults(*jobs, on_failure=policy)
    assert _faults(*jobs, on_failure="continue") == ["lost"]


def test_nobody_runs_after_one_that_ended_otherwise() -> None:
    jobs = _job(1, "FAILED", run="run-1"), _job(2, "COMPLETED", run="run-2")
    assert _faults(*jobs, job_2="success") == ["twice"]
    assert not _faults(*jobs, job_2="failed")
