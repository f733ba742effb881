"""Oracle of the state machine test: recomputes the expected state from the submitted jobs, slowly and simply.

The engine evaluates only jobs that an event concerns; the oracle evaluates every job, every time. A difference means a
lost wake-up, a start out of order, or a wrong explanation of a wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.ids import JobId
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status

_SATISFYING_STATUSES = {
    "success": {Status.COMPLETED, Status.SKIPPED},
    "finished": set(TERMINAL),
    "failed": {Status.FAILED},
}


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was submitted."""

    job: JobId
    command: tuple[str, ...]
    edges: tuple[tuple[JobId, str], ...]
    locks: Mapping[str, str]
    pool_demand: Mapping[str, int]
    priority: int
    chain: JobId
    max_retries: int = 0
    retries: int = 0

    @property
    def rank(self) -> tuple[int, int, int]:
        """Position in the queue. A retry has the position of the first job of its chain."""
        return (-self.priority, self.chain, self.job)


def is_met(edge: tuple[JobId, str], outcomes: Mapping[JobId, Status]) -> bool:
    """Return whether an edge is met. `outcomes`: see `chain_outcomes`."""
    predecessor, policy = edge
    return outcomes[predecessor] in _SATISFYING_STATUSES[policy]


def chain_outcomes(submitted: Mapping[JobId, SubmittedJob], statuses: Mapping[JobId, Status]) -> dict[JobId, Status]:
    """Map each job to the status of the last job of its chain."""
    last_jobs = {record.chain: job for job, record in sorted(submitted.items())}
    return {job: statuses[last_jobs[record.chain]] for job, record in submitted.items()}


def is_conflict(mode: str, other_mode: str) -> bool:
    return "exclusive" in (mode, other_mode)


def sum_demand(jobs: Iterable[SubmittedJob]) -> dict[str, int]:
    total: dict[str, int] = {}
    for job in jobs:
        for pool, weight in job.pool_demand.items():
            total[pool] = total.get(pool, 0) + weight
    return total


class Oracle:
    def __init__(
        self,
        submitted: Mapping[JobId, SubmittedJob],
        statuses: Mapping[JobId, Status],
        not_before: Mapping[JobId, datetime | None],
        limits: Mapping[str, int],
        now: datetime,
    ) -> None:
        self._outcomes = chain_outcomes(submitted, statuses)
        self._not_before = not_before
        self._limits = limits
        self._now = now
        self.running = [record for job, record in submitted.items() if statuses[job] in STARTED]
        self.waiting = sorted(
            (record for job, record in submitted.items() if statuses[job] in WAITING), key=lambda record: record.rank
        )

    def waits_for_edges(self, job: SubmittedJob) -> bool:
        return not all(is_met(edge, self._outcomes) for edge in job.edges)

    def has_unmeetable_edge(self, job: SubmittedJob) -> bool:
        return any(self._outcomes[edge[0]] in TERMINAL and not is_met(edge, self._outcomes) for edge in job.edges)

    def waits_for_delay(self, job: SubmittedJob) -> bool:
        until = self._not_before[job.job]
        return until is not None and until > self._now

    def is_oversized(self, job: SubmittedJob) -> bool:
        """Return whether an open pool is too small for the job even when empty."""
        return any(0 < self._limits.get(pool, -1) < weight for pool, weight in job.pool_demand.items())

    def contenders(self) -> list[SubmittedJob]:
        return [
            job
            for job in self.waiting
            if not (self.waits_for_edges(job) or self.waits_for_delay(job) or self.is_oversized(job))
        ]

    def blocked_keys(self, job: SubmittedJob) -> list[str]:
        """Return the keys that conflict with a holder or with an earlier contender."""
        earlier = [other for other in self.contenders() if other.rank < job.rank]
        return sorted(
            key
            for key, mode in job.locks.items()
            if any(key in other.locks and is_conflict(mode, other.locks[key]) for other in (*self.running, *earlier))
        )

    def ready_jobs(self) -> list[SubmittedJob]:
        return [job for job in self.contenders() if not self.blocked_keys(job)]

    def lacking_pools(self, job: SubmittedJob, used: Mapping[str, int]) -> set[str]:
        """Return the pools whose free capacity is too small for the job."""
        return {
            pool
            for pool, weight in job.pool_demand.items()
            if self._limits.get(pool, -1) >= 0 and used.get(pool, 0) + weight > self._limits[pool]
        }

    def walk_queue(self) -> tuple[list[SubmittedJob], set[str]]:
        """Return the jobs that can start, and the pools that are closed by the first job that does not fit."""
        used, closed, startable = sum_demand(self.running), set[str](), list[SubmittedJob]()
        for job in self.ready_jobs():
            if closed & job.pool_demand.keys():
                continue
            lacking = self.lacking_pools(job, used)
            if lacking:
                closed |= lacking
                continue
            startable.append(job)
            used = sum_demand([*self.running, *startable])
        return startable, closed

    def check_order(self, started: Sequence[SubmittedJob]) -> None:
        """INV-004: check that no job that has just started took capacity that an earlier job was waiting for."""
        closed: set[str] = set()
        for job in self.ready_jobs():
            later = [other for other in started if other.rank > job.rank]
            others = [other for other in self.running if other not in later]
            if not closed & job.pool_demand.keys():
                lacking = self.lacking_pools(job, sum_demand(others))
                closed |= lacking or job.pool_demand.keys()
            passing = [other.job for other in later if closed & other.pool_demand.keys()]
            assert passing == [], f"job-{job.job} was passed by {passing}"

    def expected_wait_kind(self, job: SubmittedJob) -> str | None:
        """Return the first gate that does not pass."""
        if self.waits_for_edges(job):
            return "dependencies"
        if self.waits_for_delay(job):
            return "delay"
        if self.is_oversized(job):
            return "capacity"
        if self.blocked_keys(job):
            return "locks"
        startable, _closed = self.walk_queue()
        return None if job in startable else "capacity"


def find_conflicts(jobs: Sequence[SubmittedJob]) -> list[tuple[JobId, JobId, str]]:
    """Return the pairs of jobs with conflicting locks, each with the key."""
    return [
        (job.job, other.job, key)
        for n, job in enumerate(jobs)
        for other in jobs[n + 1 :]
        for key in job.locks.keys() & other.locks.keys()
        if is_conflict(job.locks[key], other.locks[key])
    ]
