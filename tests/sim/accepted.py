"""What was asked for is what is stored: all of it or nothing, for as long as it is there.

A submit whose scheduler is killed may be stored though nobody is told of it; so what is asked for is known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from harness import Raw
from rota.command.submit import Answer, Submitted
from rota.core.event import Event
from rota.ids import JobId, parse_group, show_job


class Accepted:
    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._told: set[JobId] = set()
        """Jobs that somebody was told of."""
        self._asked = 0
        self._members: dict[int, int] = {}
        """How many were asked for, by group."""

    @contextmanager
    def asking(self, count: int) -> Iterator[None]:
        """Somebody submits so many: a group of them, or one more for a group that there is."""
        self._asked = count
        try:
            yield
        finally:
            self._asked = 0

    def told(self, answer: Answer, *bodies: Mapping[str, Any]) -> None:
        """What he is answered who asked for these, in their order."""
        if isinstance(answer, Submitted):
            assert len(answer.jobs) == len(bodies), f"{answer.jobs}, and {len(bodies)} were asked for"
            self._told.update(answer.jobs)
            for job, body in zip(answer.jobs, bodies, strict=True):
                self._check_locks(job, body)

    def _check_locks(self, job: JobId, body: Mapping[str, Any]) -> None:
        """Those that he named; and who does not say that it can go beside its phase has that to itself."""
        wanted = {key: mode or "exclusive" for key, _, mode in (lock.partition(":") for lock in body.get("locks", ()))}
        if body.get("phase") and not body.get("parallelizable"):
            wanted[f"phase/{body['phase']}/{body['flow']}"] = "exclusive"
        stored: dict[str, str] = dict(self._raw(f"SELECT key, mode FROM lock WHERE job = {job}"))
        assert stored == wanted, f"{show_job(job)} has the locks {stored}, and was to have {wanted}"

    def at_commit(self, events: Sequence[Event]) -> None:
        new = {parse_group(str(event.data["group"])) for event in events if event.kind == "group.submitted"}
        self._members |= dict.fromkeys(new, self._asked)
        for event in events:
            if event.kind == "job.submitted" and "retry_of" not in event.data:
                ((group,),) = self._raw(f"SELECT job_group FROM job WHERE id = {event.job}")
                if group is not None and group not in new:
                    assert self._asked, f"{event.job} has joined group-{group}, and nobody asked for that"
                    self._members[group] += 1

    def check(self) -> None:
        known = {job for (job,) in self._raw("SELECT id FROM job")}
        assert self._told <= known, f"lost: {self._told - known}"
        members = dict.fromkeys(self._members, 0) | dict(
            self._raw("SELECT job_group, count(DISTINCT chain) FROM job WHERE job_group IS NOT NULL GROUP BY 1")
        )
        assert members == self._members, f"groups have {members} members, and were to have {self._members}"
