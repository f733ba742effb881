"""Why a job ended that never ran, and whether one ran that should not have: by what its client asked for.

    FAILED       never without a run: every program of the load is there, so nothing keeps a start from succeeding but
                 the kills, and those are nobody's fault
    CANCELLED    somebody asked for that, or its group stops and another member failed
    SKIPPED      it was to come after a failure that did not come, or its group skips and another member failed
    BLOCKED      what it was to come after ended otherwise

What was rewound has ended more than once; what hangs on it was rewound with it, but for the other members of a group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crash.load import Records, Told
from rota.core.group import PREDECESSOR_FAILED

_MEETS = {
    "success": ("COMPLETED", "SKIPPED"),
    "finished": ("COMPLETED", "SKIPPED", "FAILED", "CANCELLED", "BLOCKED_BY_DEPENDENCY"),
    "failed": ("FAILED",),
}
_FAILED = ("FAILED", "BLOCKED_BY_DEPENDENCY")
_DROPPED = {"CANCELLED": "stop", "SKIPPED": "skip"}


class Ends:
    def __init__(self, jobs: Mapping[str, dict[str, Any]], records: Records) -> None:
        self._jobs = jobs
        self._told = {job: told for told in records.told.values() for job in told.jobs}
        """By chain."""
        ordered = sorted(jobs.values(), key=lambda job: int(job["id"].removeprefix("job-")))
        self._lasts = {job["chain"]: job for job in ordered}
        self._cancelled = {jobs[job]["chain"] for job in records.cancelled if job in jobs}
        self._rewound = {jobs[job]["chain"] for job in records.rewound if job in jobs}

    def faults(self) -> Iterator[tuple[str, str]]:
        """Each by its kind."""
        for chain, last in self._lasts.items():
            told = self._told.get(chain)
            if told is not None and last["run"] is None and not self._has_cause(last, told):
                yield "lost", f"{last['id']} is {last['status']} ({last['reason']}) and never ran"
        for job in self._jobs.values():
            told = self._told.get(job["chain"])
            if told is not None and job["run"] is not None and job["chain"] not in self._rewound:
                spoilt = [edge for edge in told.after if self._is_spoilt(edge, job)]
                yield from (("twice", f"{job['id']} ran, though {edge['job']} ended otherwise") for edge in spoilt)

    def _has_cause(self, job: dict[str, Any], told: Told) -> bool:
        """Of one that ended without a run. One that is active is missed elsewhere."""
        status = job["status"]
        if status in _DROPPED and job["reason"] == PREDECESSOR_FAILED:
            return told.on_failure == _DROPPED[status] and self._has_failed_member(job)
        spoilt = {edge["policy"] for edge in told.after if self._is_spoilt(edge, job)}
        match status:
            case "CANCELLED":
                return job["chain"] in self._cancelled
            case "SKIPPED":
                return "failed" in spoilt
            case "BLOCKED_BY_DEPENDENCY":
                return bool(spoilt - {"failed"})
            case _:
                return status not in ("FAILED", "COMPLETED")

    def _has_failed_member(self, job: dict[str, Any]) -> bool:
        """One that had failed may have been rewound, and have gone well since."""
        others = [
            each for each in self._lasts.values() if each["group"] == job["group"] and each["chain"] != job["chain"]
        ]
        return any(each["status"] in _FAILED or each["chain"] in self._rewound for each in others)

    def _is_spoilt(self, edge: dict[str, str], job: dict[str, Any]) -> bool:
        """It has ended otherwise than this edge wants it. What another group's policy skipped is no success."""
        last = self._lasts[self._jobs[edge["job"]]["chain"]]
        is_dropped = last["reason"] == PREDECESSOR_FAILED and last["group"] != job["group"]
        return last["status"] not in _MEETS[edge["policy"]] or (is_dropped and edge["policy"] == "success")
