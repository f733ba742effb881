"""Order of starts: which jobs start in a turn and which do not, checked at each commit from the store (INV-004).

The referee gets the state before the starts of the turn. Each job that starts is startable for the referee. A job that
does not start although a later job does is not startable, or its facts are still being probed. No job is overtaken: the
first job that does not fit into a pool closes it for all later jobs, and a job that waits for a key is before all later
jobs with that key. So the number of later jobs that take what an earlier job waits for is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from rota.ids import JobId, parse_reservation_id
from rota.kernel.events import Event
from rota.kernel.job import Job
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import Reservation, ReservationState, lock_owner
from rota.kernel.status import Status
from tests.engine.referee import Party, Referee, sum_demand

if TYPE_CHECKING:
    from tests.sim.judge import Judge
    from tests.sim.simulation import Simulation


class StartOrderChecker:
    def __init__(self, simulation: Simulation, judge: Judge) -> None:
        self._sim = simulation
        self._run_sql = judge.run_sql
        self._started: set[JobId] = set()
        self._not_started: set[JobId | None] = set()
        """Jobs that start at this point of the commit or after it."""
        self._ready: set[JobId] = set()
        """Jobs that are ready or contend for locks."""
        self._undecided: set[JobId] = set()
        self._now = simulation.sim_clock.now()
        self._is_held = False
        self._sizes: dict[str, int] = {}

    def at_commit(self, events: Sequence[Event]) -> None:
        """Check the starts of the commit. Prefetched jobs started before this turn, so the state of the previous commit
        applies to them."""
        causes = {event.cause for event in events if _started_owner(event) is not None}
        if causes != {"prefetch"}:
            self._read_state()
        self._check_starts(events)
        self._read_state()

    def _read_state(self) -> None:
        self._now, self._is_held = self._sim.clock.now(), self._sim.engine.hold_text is not None
        self._sizes = dict(self._sim.sizes)

    def _check_starts(self, events: Sequence[Event]) -> None:
        """Check prefetched starts one by one, and claimed starts together."""
        starts = [n for n, event in enumerate(events) if _started_owner(event) is not None]
        prefetched = [n for n in starts if events[n].cause == "prefetch"]
        claimed = [n for n in starts if events[n].cause != "prefetch"]
        for numbers in (*([n] for n in prefetched), claimed):
            if numbers and not self._is_undetermined():
                self._started = {owner for n in numbers if (owner := _started_owner(events[n])) is not None}
                self._not_started = {event.job for event in events[numbers[0] :] if event.kind == "job.dispatched"}
                self._check_batch()

    def _check_batch(self) -> None:
        ready = {JobId(job) for (job,) in self._run_sql("SELECT id FROM job WHERE ready = 1")}
        contending = {JobId(job) for (job,) in self._run_sql("SELECT job FROM lock WHERE state = 'contending'")}
        self._ready, self._undecided = ready | contending, contending - ready
        self._check(self._make_referee())

    def _is_undetermined(self) -> bool:
        """Return whether the referee cannot decide: a half-open breaker lets one job through, and a clear in progress
        cancels jobs over several turns."""
        clearing = self._run_sql("SELECT 1 FROM meta WHERE key = 'clear_operations' AND value NOT IN ('', '[]')")
        return bool(self._sim.reader.breakers.list_all() or self._sim.engine.clear_operations or clearing)

    def _make_referee(self) -> Referee:
        paused = {scope for (scope,) in self._run_sql("SELECT scope FROM pause")}
        if self._is_held:
            paused.add("global")
        jobs = [self._job_before(job) for job in self._sim.reader.jobs.find_all(self._sim.job_ids())]
        reservations = [
            self._reservation_before(reservation) for reservation in self._sim.reader.reservations.list_open()
        ]
        self._undecided &= {job.id for job in jobs if _needs_facts(job)}
        return Referee(jobs, reservations, self._sizes, paused, self._now, self._find_wait, self._undecided)

    def _job_before(self, job: Job) -> Job:
        """Return the job as it was before its start. A failed start delays the job only after it."""
        if job.id not in self._not_started:
            return job
        has_failed_start = job.status is Status.QUEUED
        return msgspec.structs.replace(
            job, status=Status.QUEUED, not_before=None if has_failed_start else job.not_before
        )

    def _reservation_before(self, reservation: Reservation) -> Reservation:
        is_new = lock_owner(reservation.id) in self._started
        return msgspec.structs.replace(reservation, state=ReservationState.WAITING) if is_new else reservation

    def _find_wait(self, job: Job) -> str | None:
        """Return the wait for external facts, as last observed according to the store. After a restart no fact is
        observed: a job that waited for a key keeps its place for it, and counts for pools only after a probe."""
        return "dependencies" if _needs_facts(job) and job.id not in self._ready | self._started else None

    def _check(self, referee: Referee) -> None:
        parties = {party.owner: party for party in (*referee.reservations, *referee.jobs)}
        started = sorted((parties[owner] for owner in self._started), key=lambda party: party.rank)
        remaining = [party for party in referee.contenders if party.owner not in self._started]
        for party in remaining:
            self._check_not_overtaken(party, referee, [other for other in started if other.rank > party.rank])
        for party in started:
            assert party in referee.startable, f"{party.owner} starts although {referee.wait_kind(party)} holds it"
        for party in referee.startable:
            is_overtaken = party.rank < started[-1].rank and party.owner not in self._started
            assert not is_overtaken or self._is_probing(party), f"{started[-1].owner} starts before {party.owner}"

    def _is_probing(self, party: Party) -> bool:
        """Return whether the facts of the job are probed again before its start. Its capacity is kept meanwhile."""
        return party.owner > 0 and _needs_facts(self._sim.job(party.owner))

    def _check_not_overtaken(self, party: Party, referee: Referee, later: list[Party]) -> None:
        for other in later:
            assert not party.conflicting_keys(other), f"{other.owner} overtakes {party.owner}, which waits for its key"
        if not later or party.owner < 0 or party.owner in self._undecided or referee.blocked_keys(party):
            return
        limits = PoolSizes(self._sizes)
        limited = {pool for pool in party.pool_demand if limits.size(pool) is not None}
        earlier = [other for other in referee.contenders if other.rank < party.rank]
        before = [other for other in earlier if other.owner not in self._undecided]
        if any(limited & other.pool_demand.keys() for other in before if other.owner not in self._started):
            return  # an earlier job is before it in one of its pools
        total = sum_demand([*referee.running, *(other for other in before if other.owner in self._started)])
        for pool in limited:
            size = limits.size(pool) or 0
            if total.get(pool, 0) + party.pool_demand[pool] > size:
                overtaking = [other.owner for other in later if pool in other.pool_demand]
                assert not overtaking, f"{overtaking} overtake {party.owner}, which waits for {pool}"


def _needs_facts(job: Job) -> bool:
    return bool(job.spec.needs) or job.spec.pinned_head is not None


def _started_owner(event: Event) -> JobId | None:
    if event.kind == "reservation.started":
        return lock_owner(parse_reservation_id(str(event.data["reservation"])))
    return event.job if event.kind == "job.dispatched" else None
