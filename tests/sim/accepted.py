"""Submits: the stored jobs match the requests, all or none, as long as they are stored.

If the scheduler is killed during a submit, the jobs may be stored without a response. So the expected number of members
is recorded before the submit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rota.ids import JobId, format_job_id, parse_group_id
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome
from rota.kernel.events import Event
from tests.harness import SqlRunner


class SubmitChecker:
    def __init__(self, run_sql: SqlRunner) -> None:
        self._run_sql = run_sql
        self._reported: set[JobId] = set()
        """Jobs that a response contained."""
        self._requested_count = 0
        self._members: dict[int, int] = {}
        """Number of requested members of each group."""

    @contextmanager
    def expecting_members(self, count: int) -> Iterator[None]:
        """Expect a submit of so many jobs: a new group of them, or one more for an existing group."""
        self._requested_count = count
        try:
            yield
        finally:
            self._requested_count = 0

    def record_response(self, response: SubmitOutcome, *bodies: Mapping[str, Any]) -> None:
        """Check the response to these requested jobs, in their order."""
        if isinstance(response, AcceptedSubmit):
            assert len(response.jobs) == len(bodies), f"{response.jobs} for {len(bodies)} requested jobs"
            self._reported.update(response.jobs)
            for job, body in zip(response.jobs, bodies, strict=True):
                self._check_locks(job, body)
                self._check_needs(job, body)

    def _check_locks(self, job: JobId, body: Mapping[str, Any]) -> None:
        """A job has the requested locks. Unless it is parallelizable, it also holds the lock of its phase."""
        expected = {
            key: mode or "exclusive" for key, _, mode in (lock.partition(":") for lock in body.get("locks", ()))
        }
        if body.get("phase") and not body.get("parallelizable"):
            expected[f"phase/{body['phase']}/{body['flow']}"] = "exclusive"
        stored: dict[str, str] = dict(self._run_sql(f"SELECT key, mode FROM lock WHERE job = {job}"))
        assert stored == expected, f"{format_job_id(job)} has the locks {stored}, expected {expected}"

    def _check_needs(self, job: JobId, body: Mapping[str, Any]) -> None:
        """A job that does not choose waits for a `file` or `custom` artifact that no job produces, and for no other."""
        choice = body.get("missing_producer")
        expected = {
            name: choice or ("wait" if name.startswith(("file:", "custom:")) else "block")
            for name in body.get("needs", ())
        }
        stored: dict[str, str] = dict(
            self._run_sql(
                "SELECT name, missing_producer FROM need JOIN artifact ON artifact.id = need.artifact"
                f" WHERE need.chain = {job}"
            )
        )
        assert stored == expected, f"{format_job_id(job)} has the needs {stored}, expected {expected}"

    def at_commit(self, events: Sequence[Event]) -> None:
        new = {parse_group_id(str(event.data["group"])) for event in events if event.kind == "group.submitted"}
        self._members |= dict.fromkeys(new, self._requested_count)
        for event in events:
            if event.kind == "job.submitted" and "retry_of" not in event.data:
                ((group,),) = self._run_sql(f"SELECT job_group FROM job WHERE id = {event.job}")
                if group is not None and group not in new:
                    assert self._requested_count, f"{event.job} joined group-{group} without a request"
                    self._members[group] += 1

    def check(self) -> None:
        stored = {job for (job,) in self._run_sql("SELECT id FROM job")}
        assert self._reported <= stored, f"lost: {self._reported - stored}"
        members = dict.fromkeys(self._members, 0) | dict(
            self._run_sql("SELECT job_group, count(DISTINCT chain) FROM job WHERE job_group IS NOT NULL GROUP BY 1")
        )
        assert members == self._members, f"groups have {members} members, expected {self._members}"
