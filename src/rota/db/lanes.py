"""Storage of lanes and pauses, and search for the jobs that a pause, a breaker or a clear operation affects.

A pause does not mark the jobs that it holds. A job without locks stays in its lane, which the plan skips as a whole. A
job with locks is parked: it is queued but in no lane, because it must not block the queues of its locks. It wakes up
when the hold ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from rota.db.database import Database
from rota.db.decoding import breaker_state, decode_demand, from_micros, to_micros
from rota.db.events import Events
from rota.ids import JobId, LaneId
from rota.kernel.breaker import BreakerStates, breaker_keys
from rota.kernel.events import Event
from rota.kernel.holds import Holds, Pause, PauseState, scopes_of
from rota.kernel.pools import PoolDemand, PoolSizes
from rota.kernel.queue import Rank

NO_LIMIT = 2**31


class LaneScope(msgspec.Struct, frozen=True, kw_only=True):
    """Lane with the scopes and breakers of its jobs."""

    lane: LaneId
    scopes: tuple[str, ...]
    breaker_keys: tuple[str, ...]
    flow: str
    demand: PoolDemand
    ready_count: int


class ClearableJob(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting job that a clear operation can end."""

    rank: Rank
    chain: JobId


class LaneRecords:
    """Read access to lanes and their queued jobs."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def depths(self) -> list[tuple[dict[str, int], int]]:
        """Return the demand and the number of ready jobs of each lane that has any."""
        return [(dict(decode_demand(demand) or {}), ready) for demand, ready in self._db.rows("lane_depths")]

    def scopes(self) -> list[LaneScope]:
        """Return all lanes. Their number does not grow with the number of jobs."""
        return [
            LaneScope(
                lane=LaneId(lane),
                demand=decode_demand(demand) or {},
                scopes=scopes_of(decode_demand(demand) or {}, type_, flow, target),
                breaker_keys=breaker_keys(type_, target),
                flow=flow,
                ready_count=ready,
            )
            for lane, demand, type_, flow, target, ready in self._db.rows("lane_scopes")
        ]

    def under(self, scope: str) -> list[LaneId]:
        return [lane.lane for lane in self.scopes() if scope in lane.scopes]

    def count_paused(self, pauses: PauseState) -> tuple[int, int]:
        """Count the jobs that a pause or a breaker holds: those in lanes, and the parked ones."""
        if not pauses.scopes and not pauses.breakers.states and pauses.hold_text is None:
            return 0, 0
        paused = [lane for lane in self.scopes() if pauses.is_paused(lane.scopes, lane.breaker_keys)]
        if not paused:
            return 0, 0
        parked = self._db.rows("count_parked", lanes=[lane.lane for lane in paused])
        return sum(lane.ready_count for lane in paused), int(parked[0][0])

    def oversized(self, limits: PoolSizes) -> dict[LaneId, str]:
        """Return the lanes whose demand exceeds the size of a pool, each with the reason."""
        reasons = {}
        for lane in self.scopes():
            reason = limits.describe_oversize(lane.demand)
            if reason is not None:
                reasons[lane.lane] = reason
        return reasons

    def count_oversized(self, limits: PoolSizes, pauses: PauseState) -> int:
        """Count the jobs that pass every gate but the size of a pool, and that no pause holds."""
        return sum(
            lane.ready_count
            for lane in self.scopes()
            if limits.find_oversized_pool(lane.demand) is not None
            and not pauses.is_paused(lane.scopes, lane.breaker_keys)
        )

    def queued_jobs(self, lanes: Iterable[LaneId], limit: int) -> list[tuple[JobId, LaneId]]:
        """Return up to `limit` queued jobs of these lanes, in queue order, each with its lane."""
        jobs: list[tuple[tuple[int, ...], LaneId]] = []
        for lane in lanes:
            jobs.extend((tuple(rank), lane) for rank in self._db.rows("queued_in_lane", lane=lane, limit=limit))
            if len(jobs) >= limit:
                break
        return [(JobId(rank[-1]), lane) for rank, lane in sorted(jobs)[:limit]]

    def clearable_jobs(
        self, lanes: Sequence[LaneId], *, max_id: JobId, after: Sequence[int], limit: int
    ) -> list[ClearableJob]:
        """Return the next waiting jobs of these lanes after a rank, in queue order, with ids up to `max_id`."""
        names = ("precedence", "position", "created_at", "job")
        rank = dict(zip(names, after, strict=True))
        rows = self._db.rows("clearable", lanes=list(lanes), max_id=max_id, limit=limit, **rank) if lanes else ()
        return [ClearableJob(rank=Rank(*row[:4]), chain=JobId(row[4])) for row in rows]

    def count_clearable(self, lanes: Sequence[LaneId]) -> tuple[int, JobId | None]:
        """Return the number of waiting jobs of these lanes, and the latest of them."""
        rows = self._db.rows("count_clearable", lanes=list(lanes)) if lanes else [(0, None)]
        count, last = rows[0]
        return count, None if last is None else JobId(last)

    def under_breaker(self, key: str) -> list[LaneId]:
        """Return the lanes whose jobs belong to this breaker."""
        return [lane.lane for lane in self.scopes() if key in lane.breaker_keys]

    def ready(self, limit: int) -> list[tuple[LaneId, bool]]:
        """Return the first lanes with ready jobs, and whether the jobs of each need facts before they start."""
        return [(LaneId(row[0]), bool(row[5])) for row in self._db.rows("lanes", limit=limit)]

    def heads(self, lane: LaneId, limit: int) -> list[JobId]:
        return [JobId(row[3]) for row in self._db.rows("heads", lane=lane, limit=limit)]


class Lanes(LaneRecords):
    def wake_contending(self, lanes: Sequence[LaneId]) -> None:
        """Wake the jobs of these lanes that are in lock queues, so that they leave them and other jobs can pass."""
        if lanes:
            self._db.run("wake_contending", lanes=list(lanes))

    def wake_parked(self, lanes: Sequence[LaneId], limit: int = NO_LIMIT) -> bool:
        """Wake parked jobs of these lanes. Return whether there were any."""
        return bool(lanes and self._db.run("wake_parked", lanes=list(lanes), limit=limit))


class PauseRecords:
    """Read access to pauses and the states of breakers."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def find(self, scope: str) -> Pause | None:
        rows = self._db.rows("pause_of", scope=scope)
        return Pause(actor=rows[0][0], at=from_micros(rows[0][1])) if rows else None

    def state(self, *, holds: Holds) -> PauseState:
        scopes, states = dict(holds.clearing), {}
        for scope, by, at, state, probe in self._db.rows("pauses"):
            if state is None:
                scopes[scope] = Pause(actor=by, at=from_micros(at))
            else:
                states[scope] = breaker_state(state, at, probe)
        return PauseState(scopes, BreakerStates(states), holds.hold_text)


class Pauses(PauseRecords):
    def __init__(self, database: Database, events: Events) -> None:
        super().__init__(database)
        self._events = events

    def add(self, scope: str, *, actor: str, now: datetime) -> None:
        self._db.run("add_pause", scope=scope, paused_by=actor, paused_at=to_micros(now))
        self._emit("paused", scope, actor, now)

    def remove(self, scope: str, *, actor: str, now: datetime) -> None:
        self._db.run("remove_pause", scope=scope)
        self._emit("resumed", scope, actor, now)

    def emit_cleared(self, scope: str, jobs: int, *, actor: str, now: datetime) -> None:
        self._emit("cleared", scope, actor, now, jobs=jobs)

    def _emit(self, kind: str, scope: str, actor: str, now: datetime, **data: object) -> None:
        event = Event(
            kind=f"scheduler.{kind}", at=to_micros(now), cause="control", actor=actor, data={"scope": scope, **data}
        )
        self._events.emit(event)
