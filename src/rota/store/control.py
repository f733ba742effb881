"""Stores pauses, and finds whom a pause, a breaker or a clearing concerns.

What is held is not written to each job. A job without locks stands in its lane, which the plan passes over as a whole;
one with locks is parked (queued, in no lane), for it must not stand in the queues of its locks, and is marked when what
held it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.breaker import keys_of
from rota.core.control import Pause, Pauses, scopes_of
from rota.core.event import Event
from rota.core.queue import Rank
from rota.ids import JobId, LaneId
from rota.store.database import Database
from rota.store.event import Emitting
from rota.store.moment import from_stored, to_stored
from rota.store.snapshot import decode_draws

ALL = 2**31


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A lane, by what its jobs stand under."""

    lane: LaneId
    scopes: tuple[str, ...]
    keys: tuple[str, ...]
    flow: str
    ready: int


class ControlRecords:
    _db: Database

    def places(self) -> list[Place]:
        """Every lane there is: they are few, however many jobs there are."""
        return [
            Place(
                lane=LaneId(lane),
                scopes=scopes_of(decode_draws(draws) or {}, type_, flow, target),
                keys=keys_of(type_, target),
                flow=flow,
                ready=ready,
            )
            for lane, draws, type_, flow, target, ready in self._db.rows("places")
        ]

    def lanes_under(self, scope: str) -> list[LaneId]:
        return [place.lane for place in self.places() if scope in place.scopes]

    def pause_of(self, scope: str) -> Pause | None:
        rows = self._db.rows("pause_of", scope=scope)
        return Pause(by=rows[0][0], at=from_stored(rows[0][1])) if rows else None

    def count_paused(self, pauses: Pauses) -> tuple[int, int]:
        """Jobs that a pause or a breaker holds: those in lanes, and those that are parked."""
        if not pauses.scopes and not pauses.breakers.states and pauses.held is None:
            return 0, 0
        in_lanes = sum(place.ready for place in self.places() if pauses.are_over(place.scopes, place.keys))
        return in_lanes, int(self._db.rows("count_parked")[0][0])

    def nearest(self) -> JobId | None:
        """Of the jobs that wait, the one that is nearest to its start: the first that is ready or held where it
        reserves nothing, else the one whose delay is over first, else the first in the queue."""
        rows = self._db.rows("first_queued") or self._db.rows("first_due") or self._db.rows("first_waiting")
        return JobId(rows[0][0]) if rows else None


class Pausing(Emitting, ControlRecords):
    def pause(self, scope: str, *, by: str, now: datetime) -> None:
        self._db.run("add_pause", scope=scope, by=by, at=to_stored(now))
        self._tell("paused", scope, by, now)

    def resume(self, scope: str, *, by: str, now: datetime) -> None:
        self._db.run("remove_pause", scope=scope)
        self._tell("resumed", scope, by, now)

    def cleared(self, scope: str, jobs: int, *, by: str, now: datetime) -> None:
        self._tell("cleared", scope, by, now, jobs=jobs)

    def _tell(self, what: str, scope: str, by: str, now: datetime, **data: object) -> None:
        event = Event(
            kind=f"scheduler.{what}", at=to_stored(now), cause="control", actor=by, data={"scope": scope, **data}
        )
        self.emit(event)

    def stir_contending(self, lanes: Sequence[LaneId]) -> None:
        """What is held gives up its turn in the queues of its locks, so that others pass it."""
        if lanes:
            self._db.run("stir_contending", lanes=list(lanes))

    def stir_parked(self, lanes: Sequence[LaneId], limit: int = ALL) -> bool:
        """Whether there were any."""
        return bool(lanes and self._db.run("stir_parked", lanes=list(lanes), limit=limit))

    def clearable(self, lanes: Sequence[LaneId], *, upto: JobId, behind: Sequence[int], limit: int) -> list[Clearable]:
        """The next jobs of these lanes that wait, in queue order behind a rank; none that came later than `upto`."""
        names = ("precedence", "position", "created_at", "job")
        rank = dict(zip(names, behind, strict=True))
        rows = self._db.rows("clearable", lanes=list(lanes), upto=upto, limit=limit, **rank) if lanes else ()
        return [Clearable(rank=Rank(*row[:4]), chain=JobId(row[4])) for row in rows]


class Clearable(msgspec.Struct, frozen=True, kw_only=True):
    rank: Rank
    chain: JobId
