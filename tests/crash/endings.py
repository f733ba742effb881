"""Check of jobs that ended without a run, and of jobs that ran although they must not, against the client's requests.

    FAILED       never without a run: every program of the load exists, so only kills prevent a start, and those do not
                 count against the job
    CANCELLED    a client cancelled it, or its group stops and another member failed
    SKIPPED      it depends on a failure that did not happen, or its group skips and another member failed
    BLOCKED      a dependency ended with another status

A rewound job has ended more than once. Its dependents were rewound with it, except other members of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rota.kernel.groups import PREDECESSOR_FAILED
from tests.crash.load import Records, Submitted

_MEETS = {
    "success": ("COMPLETED", "SKIPPED"),
    "finished": ("COMPLETED", "SKIPPED", "FAILED", "CANCELLED", "BLOCKED_BY_DEPENDENCY"),
    "failed": ("FAILED",),
}
_FAILED = ("FAILED", "BLOCKED_BY_DEPENDENCY")
_DROPPED = {"CANCELLED": "stop", "SKIPPED": "skip"}


class EndingCheck:
    def __init__(self, jobs: Mapping[str, dict[str, Any]], records: Records) -> None:
        self._jobs = jobs
        self._submitted = {job: submitted for submitted in records.by_label.values() for job in submitted.jobs}
        """By chain."""
        ordered = sorted(jobs.values(), key=lambda job: int(job["id"].removeprefix("job-")))
        self._last_jobs = {job["chain"]: job for job in ordered}
        self._cancelled = {jobs[job]["chain"] for job in records.cancelled if job in jobs}
        self._rewound = {jobs[job]["chain"] for job in records.rewound if job in jobs}

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield each fault as kind and text."""
        for chain, last in self._last_jobs.items():
            submitted = self._submitted.get(chain)
            if submitted is not None and last["run"] is None and not self._has_cause(last, submitted):
                yield "lost", f"{last['id']} is {last['status']} ({last['reason']}) and never ran"
        for job in self._jobs.values():
            submitted = self._submitted.get(job["chain"])
            if submitted is not None and job["run"] is not None and job["chain"] not in self._rewound:
                unmet = [edge for edge in submitted.after if self._is_unmet(edge, job)]
                yield from (("twice", f"{job['id']} ran, though {edge['job']} ended otherwise") for edge in unmet)

    def _has_cause(self, job: dict[str, Any], submitted: Submitted) -> bool:
        """Return whether a job that ended without a run had a cause. Active jobs are checked elsewhere."""
        status = job["status"]
        if status in _DROPPED and job["reason"] == PREDECESSOR_FAILED:
            return submitted.on_failure == _DROPPED[status] and self._has_failed_member(job)
        unmet = {edge["policy"] for edge in submitted.after if self._is_unmet(edge, job)}
        match status:
            case "CANCELLED":
                return job["chain"] in self._cancelled
            case "SKIPPED":
                return "failed" in unmet
            case "BLOCKED_BY_DEPENDENCY":
                return bool(unmet - {"failed"})
            case _:
                return status not in ("FAILED", "COMPLETED")

    def _has_failed_member(self, job: dict[str, Any]) -> bool:
        """Return whether another member of the group failed. It may have been rewound and have succeeded since."""
        others = [
            other
            for other in self._last_jobs.values()
            if other["group"] == job["group"] and other["chain"] != job["chain"]
        ]
        return any(other["status"] in _FAILED or other["chain"] in self._rewound for other in others)

    def _is_unmet(self, edge: dict[str, str], job: dict[str, Any]) -> bool:
        """Return whether the dependency ended with a status that the edge does not accept. A job that the policy of
        another group skipped is no success."""
        last = self._last_jobs[self._jobs[edge["job"]]["chain"]]
        is_dropped = last["reason"] == PREDECESSOR_FAILED and last["group"] != job["group"]
        return last["status"] not in _MEETS[edge["policy"]] or (is_dropped and edge["policy"] == "success")
