"""Who may start, and why the others wait, worked out the slow way from the records of every job and slot.

`oracle` knows what was asked for and so finds what was forgotten; a referee takes the records as they are and goes
through all of them by the rules: direct executions in order of arrival, then the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.after import Edge
from rota.core.control import scopes_of
from rota.core.job import Job
from rota.core.pool import Limits
from rota.core.slot import Slot, SlotState, owner_of
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.ids import JobId

MEETS = {"success": {Status.COMPLETED, Status.SKIPPED}, "finished": set(TERMINAL), "failed": {Status.FAILED}}


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a slot, as pools and locks see it."""

    owner: JobId
    rank: tuple[float, ...]
    draws: Mapping[str, int]
    locks: Mapping[str, str]
    scopes: tuple[str, ...]

    def clashes(self, other: Party) -> set[str]:
        shared = self.locks.keys() & other.locks.keys()
        return {key for key in shared if "exclusive" in (self.locks[key], other.locks[key])}


def of_job(job: Job) -> Party:
    return Party(
        owner=job.id,
        rank=(-job.priority, job.position, job.created_at.timestamp(), job.id),
        draws=job.draws,
        locks={lock.key: lock.mode.value for lock in job.spec.locks},
        scopes=scopes_of(job.draws, job.spec.type, job.spec.flow, job.spec.target),
    )


def of_slot(slot: Slot) -> Party:
    return Party(
        owner=owner_of(slot.id),
        rank=(float("-inf"), slot.id),
        draws=slot.draws,
        locks={lock.key: lock.mode.value for lock in slot.locks},
        scopes=scopes_of(slot.draws, slot.type, slot.flow, slot.target),
    )


def used(parties: Iterable[Party]) -> dict[str, int]:
    total: dict[str, int] = {}
    for party in parties:
        for pool, weight in party.draws.items():
            total[pool] = total.get(pool, 0) + weight
    return total


class Referee:
    def __init__(
        self, jobs: Sequence[Job], slots: Sequence[Slot], sizes: Mapping[str, int], paused: Collection[str],
        now: datetime, outside: Callable[[Job], str | None] = lambda _: None,
        undecided: Collection[JobId] = (),
    ) -> None:  # fmt: skip
        """`paused` has `global` where a file holds everything; `outside` says what holds a job that hangs on the world
        outside. Who is undecided keeps its turn for its keys, and cannot start before somebody has looked there."""
        self._undecided = undecided
        self._outside = outside
        self._limits = Limits(sizes)
        self._paused = paused
        self._now = now
        self._jobs = {job.id: job for job in jobs}
        self._lasts = {job.chain: job.status for job in sorted(jobs, key=lambda job: job.id)}
        waiting = [of_slot(slot) for slot in slots if slot.state is SlotState.WAITING]
        self.slots = sorted(waiting, key=lambda party: party.rank)
        self.jobs = sorted((of_job(job) for job in jobs if job.status in WAITING), key=lambda party: party.rank)
        self.running = [of_job(job) for job in jobs if job.status in STARTED] + [
            of_slot(slot) for slot in slots if slot.state in (SlotState.STARTING, SlotState.RUNNING)
        ]
        self.contenders = [party for party in (*self.slots, *self.jobs) if self._held_before_locks(party) is None]
        self.able: list[Party] = []
        """Who could start now."""
        self._closed: dict[str, Party] = {}
        """Each by the first who lacked room in it."""
        self._full: dict[JobId, list[str]] = {}
        """What a slot lacks room in when its turn comes, before all jobs."""
        self._reserved: dict[str, int] = {}
        self._kinds = {party.owner: self._kind_of_slot(party) for party in self.slots}
        self._close()
        self._kinds |= {party.owner: self._kind_of_job(party) for party in self.jobs}

    def is_decided(self, party: Party) -> bool:
        """It waits for what can no longer come."""
        edges = self._jobs[party.owner].after
        return any(self._lasts[edge.chain] in TERMINAL - MEETS[edge.policy.value] for edge in edges)

    def kind(self, party: Party) -> str | None:
        """The first gate that does not pass."""
        return self._kinds[party.owner]

    def topics(self, party: Party) -> list[str] | None:
        """What it waits for, as `why` names it; none where that is outside."""
        match self.kind(party):
            case "dependencies":
                unmet = [edge for edge in self._jobs[party.owner].after if not self._is_met(edge)]
                return [f"job:{unmet[0].predecessor}"] if unmet else None
            case "locks":
                barred = self.barred(party)
                return [f"lock:{key}" for key in party.locks if key in barred]
            case "capacity":
                return self._full[party.owner] if party.owner in self._full else self._lacks(party)
            case "slot":
                return ["slot"]
            case "delay":
                return []
            case _:
                return None

    def _lacks(self, party: Party) -> list[str]:
        """The first pool that keeps it: full, or closed by one before it, who is named then."""
        for pool in party.draws:
            closer = self._closed.get(pool)
            if self._is_short(party, pool):
                return [f"pool:{pool}"]
            if closer is not None and closer.rank < party.rank:
                return [f"pool:{pool}", f"job:{closer.owner}"]
        return []

    def _is_met(self, edge: Edge) -> bool:
        return self._lasts[edge.chain] in MEETS[edge.policy.value]

    def is_reserved(self, party: Party) -> bool:
        return any(
            self._reserved.get(pool, 0) and self._is_short(party, pool, self._reserved[pool]) for pool in party.draws
        )

    def reserves(self, slot: Party) -> bool:
        sizes = ((self._limits.size(pool), weight) for pool, weight in slot.draws.items())
        fits = all(size is None or weight <= size for size, weight in sizes)
        return fits and self._held_before_locks(slot) is None

    def is_overdrawn(self, pool: str) -> bool:
        """What runs and what waits before the queue together do not fit in it."""
        size = self._limits.size(pool)
        waiting = [slot for slot in self.slots if self.reserves(slot)]
        return size is not None and used([*self.running, *waiting]).get(pool, 0) > size

    def is_limited(self, pool: str) -> bool:
        return self._limits.size(pool) is not None

    def barred(self, party: Party) -> set[str]:
        """Keys that it may not have: held against it, or wanted against it by somebody before it."""
        before = [other for other in self.contenders if other.rank < party.rank]
        return {key for other in (*self.running, *before) for key in party.clashes(other)}

    def _is_short(self, party: Party, pool: str, more: int = 0) -> bool:
        size, weight = self._limits.size(pool), party.draws[pool]
        return size is not None and used([*self.running, *self.able]).get(pool, 0) + weight + more > size

    def _held_before_locks(self, party: Party) -> str | None:
        job = self._jobs.get(party.owner)
        if job is not None:
            if not all(map(self._is_met, job.after)):
                return "dependencies"
            held = self._outside(job)
            if held is not None:
                return held
            if job.not_before is not None and job.not_before > self._now:
                return "delay"
        return "paused" if set(self._paused) & {"global", *party.scopes} else None

    def _kind_of_slot(self, slot: Party) -> str | None:
        kind = self._held_before_locks(slot)
        if kind is None:
            full = self._full[slot.owner] = self._lacks(slot)
            kind = "locks" if self.barred(slot) else "slot" if self.is_reserved(slot) else "capacity" if full else None
        if kind is None:
            self.able.append(slot)
        elif self.reserves(slot):
            for pool, weight in slot.draws.items():
                self._reserved[pool] = self._reserved.get(pool, 0) + weight
        return kind

    def _close(self) -> None:
        """Down the queue: who fits takes, and the first who does not closes what it lacks."""
        for job in self.contenders:
            if (
                job.owner < 0
                or job.owner in self._undecided
                or self.barred(job)
                or self._closed.keys() & job.draws.keys()
            ):
                continue
            short = {pool for pool in job.draws if self._is_short(job, pool, self._reserved.get(pool, 0))}
            if not short:
                self.able.append(job)
            self._closed |= dict.fromkeys(short - self._closed.keys(), job)

    def _kind_of_job(self, job: Party) -> str | None:
        kind = self._held_before_locks(job)
        if kind is not None or job in self.able:
            return kind
        return "locks" if self.barred(job) else "slot" if self.is_reserved(job) else "capacity"
