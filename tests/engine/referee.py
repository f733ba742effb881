"""Referee: computes which jobs and reservations can start and why the others wait, from the records of all of them.

The oracle knows the submitted jobs, and so finds what the store lost. The referee takes the records as they are, and
walks them by the rules: reservations in order of arrival, then the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.ids import JobId
from rota.kernel.edges import Edge
from rota.kernel.holds import scopes_of
from rota.kernel.job import Job
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import Reservation, ReservationState, lock_owner
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status

SATISFYING_STATUSES = {
    "success": {Status.COMPLETED, Status.SKIPPED},
    "finished": set(TERMINAL),
    "failed": {Status.FAILED},
}


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """A job or a reservation, as pools and locks see it."""

    owner: JobId
    rank: tuple[float, ...]
    pool_demand: Mapping[str, int]
    locks: Mapping[str, str]
    scopes: tuple[str, ...]

    def conflicting_keys(self, other: Party) -> set[str]:
        shared = self.locks.keys() & other.locks.keys()
        return {key for key in shared if "exclusive" in (self.locks[key], other.locks[key])}


def party_of_job(job: Job) -> Party:
    return Party(
        owner=job.id,
        rank=(-job.priority, job.position, job.created_at.timestamp(), job.id),
        pool_demand=job.demand,
        locks={lock.key: lock.mode.value for lock in job.spec.locks},
        scopes=scopes_of(job.demand, job.spec.type, job.spec.flow, job.spec.target),
    )


def party_of_reservation(reservation: Reservation) -> Party:
    return Party(
        owner=lock_owner(reservation.id),
        rank=(float("-inf"), reservation.id),
        pool_demand=reservation.demand,
        locks={lock.key: lock.mode.value for lock in reservation.locks},
        scopes=scopes_of(reservation.demand, reservation.type, reservation.flow, reservation.target),
    )


def sum_demand(parties: Iterable[Party]) -> dict[str, int]:
    total: dict[str, int] = {}
    for party in parties:
        for pool, weight in party.pool_demand.items():
            total[pool] = total.get(pool, 0) + weight
    return total


class Referee:
    def __init__(
        self,
        jobs: Sequence[Job],
        reservations: Sequence[Reservation],
        sizes: Mapping[str, int],
        paused: Collection[str],
        now: datetime,
        external_wait: Callable[[Job], str | None] = lambda _: None,
        undecided: Collection[JobId] = (),
    ) -> None:
        """`paused` contains `global` if a hold file exists. `external_wait` returns the gate that external facts hold a
        job at. An `undecided` job keeps its place in the queues of its keys, but cannot start before a probe."""
        self._undecided = undecided
        self._external_wait = external_wait
        self._limits = PoolSizes(sizes)
        self._paused = paused
        self._now = now
        self._jobs = {job.id: job for job in jobs}
        self._last_statuses = {job.chain: job.status for job in sorted(jobs, key=lambda job: job.id)}
        self._last_ids = {job.chain: job.id for job in sorted(jobs, key=lambda job: job.id)}
        waiting = [
            party_of_reservation(reservation)
            for reservation in reservations
            if reservation.state is ReservationState.WAITING
        ]
        self.reservations = sorted(waiting, key=lambda party: party.rank)
        self.jobs = sorted((party_of_job(job) for job in jobs if job.status in WAITING), key=lambda party: party.rank)
        self.running = [party_of_job(job) for job in jobs if job.status in STARTED] + [
            party_of_reservation(reservation)
            for reservation in reservations
            if reservation.state in (ReservationState.STARTING, ReservationState.RUNNING)
        ]
        self.contenders = [
            party for party in (*self.reservations, *self.jobs) if self._held_before_locks(party) is None
        ]
        self.startable: list[Party] = []
        """Jobs and reservations that can start now."""
        self._closed: dict[str, Party] = {}
        """Closed pools, each with the first job that did not fit."""
        self._reservation_topics: dict[JobId, list[str]] = {}
        """Topics of reservations that lack capacity when their turn comes, before all jobs."""
        self._reserved: dict[str, int] = {}
        self._wait_kinds = {party.owner: self._judge_reservation(party) for party in self.reservations}
        self._walk_queue()
        self._wait_kinds |= {party.owner: self._judge_job(party) for party in self.jobs}

    def has_unmeetable_edge(self, party: Party) -> bool:
        edges = self._jobs[party.owner].after
        return any(
            self._last_statuses[edge.chain] in TERMINAL - SATISFYING_STATUSES[edge.policy.value] for edge in edges
        )

    def wait_kind(self, party: Party) -> str | None:
        """Return the first gate that does not pass."""
        return self._wait_kinds[party.owner]

    def wait_topics(self, party: Party) -> list[str] | None:
        """Return the wait topics that `why` must show; `None` if they are external."""
        match self.wait_kind(party):
            case "dependencies":
                unmet = [edge for edge in self._jobs[party.owner].after if not self._is_met(edge)]
                return [f"job:{self._last_ids[unmet[0].chain]}"] if unmet else None
            case "locks":
                blocked = self.blocked_keys(party)
                return [f"lock:{key}" for key in party.locks if key in blocked]
            case "capacity":
                return (
                    self._reservation_topics[party.owner]
                    if party.owner in self._reservation_topics
                    else self._capacity_topics(party)
                )
            case "reservation":
                return ["reservation"]
            case "delay":
                return []
            case _:
                return None

    def _capacity_topics(self, party: Party) -> list[str]:
        """Return the first pool that is too small, full, or closed by an earlier job, and that job."""
        if oversized := self._oversized(party):
            return [f"pool:{oversized[0]}"]
        for pool in party.pool_demand:
            closer = self._closed.get(pool)
            if self._is_short(party, pool):
                return [f"pool:{pool}"]
            if closer is not None and closer.rank < party.rank:
                return [f"pool:{pool}", f"job:{closer.owner}"]
        return []

    def _is_met(self, edge: Edge) -> bool:
        return self._last_statuses[edge.chain] in SATISFYING_STATUSES[edge.policy.value]

    def lacks_reserved_capacity(self, party: Party) -> bool:
        """Return whether waiting reservations keep capacity that the party needs."""
        return any(
            self._reserved.get(pool, 0) and self._is_short(party, pool, self._reserved[pool])
            for pool in party.pool_demand
        )

    def keeps_capacity(self, reservation: Party) -> bool:
        """Return whether a waiting reservation keeps capacity free."""
        sizes = ((self._limits.size(pool), weight) for pool, weight in reservation.pool_demand.items())
        fits = all(size is None or weight <= size for size, weight in sizes)
        return fits and self._held_before_locks(reservation) is None

    def is_overdrawn(self, pool: str) -> bool:
        """Return whether running parties and waiting reservations together exceed the pool."""
        size = self._limits.size(pool)
        waiting = [reservation for reservation in self.reservations if self.keeps_capacity(reservation)]
        return size is not None and sum_demand([*self.running, *waiting]).get(pool, 0) > size

    def is_limited(self, pool: str) -> bool:
        return self._limits.size(pool) is not None

    def blocked_keys(self, party: Party) -> set[str]:
        """Return the keys that conflict with a holder or with an earlier contender."""
        earlier = [other for other in self.contenders if other.rank < party.rank]
        return {key for other in (*self.running, *earlier) for key in party.conflicting_keys(other)}

    def _is_short(self, party: Party, pool: str, reserved: int = 0) -> bool:
        size, weight = self._limits.size(pool), party.pool_demand[pool]
        return size is not None and sum_demand([*self.running, *self.startable]).get(pool, 0) + weight + reserved > size

    def _held_before_locks(self, party: Party) -> str | None:
        job = self._jobs.get(party.owner)
        if job is not None:
            if not all(map(self._is_met, job.after)):
                return "dependencies"
            held = self._external_wait(job)
            if held is not None:
                return held
            if job.not_before is not None and job.not_before > self._now:
                return "delay"
        if set(self._paused) & {"global", *party.scopes}:
            return "paused"
        return "capacity" if self._oversized(party) else None

    def _oversized(self, party: Party) -> list[str]:
        """Return the open pools that are too small for the party even when empty."""
        return [pool for pool, weight in party.pool_demand.items() if 0 < (self._limits.size(pool) or 0) < weight]

    def _judge_reservation(self, reservation: Party) -> str | None:
        kind = self._held_before_locks(reservation)
        if kind is None:
            full = self._reservation_topics[reservation.owner] = self._capacity_topics(reservation)
            kind = (
                "locks"
                if self.blocked_keys(reservation)
                else "reservation"
                if self.lacks_reserved_capacity(reservation)
                else "capacity"
                if full
                else None
            )
        if kind is None:
            self.startable.append(reservation)
        elif self.keeps_capacity(reservation):
            for pool, weight in reservation.pool_demand.items():
                self._reserved[pool] = self._reserved.get(pool, 0) + weight
        return kind

    def _walk_queue(self) -> None:
        """Walk the queue: a job that fits can start; the first one that does not closes the pools that it lacks."""
        for job in self.contenders:
            if (
                job.owner < 0
                or job.owner in self._undecided
                or self.blocked_keys(job)
                or self._closed.keys() & job.pool_demand.keys()
            ):
                continue
            short = {pool for pool in job.pool_demand if self._is_short(job, pool, self._reserved.get(pool, 0))}
            if not short:
                self.startable.append(job)
            self._closed |= dict.fromkeys(short - self._closed.keys(), job)

    def _judge_job(self, job: Party) -> str | None:
        kind = self._held_before_locks(job)
        if kind is not None or job in self.startable:
            return kind
        return "locks" if self.blocked_keys(job) else "reservation" if self.lacks_reserved_capacity(job) else "capacity"
