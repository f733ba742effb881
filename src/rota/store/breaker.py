"""Stores breakers: the few that are not closed, and of each key the latest failures.

Times are wall time, for both have to outlast the process: a window that was half over before a restart is half over
after it. What is held is not written to each job (`store/control.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from rota.core.breaker import CLOSED, Closed, Open, Probed, State, keys_of
from rota.core.control import Pauses, scopes_of
from rota.core.event import Event
from rota.ids import JobId, LaneId, show_job
from rota.store.control import Pausing
from rota.store.database import Database
from rota.store.moment import from_stored, to_stored
from rota.store.snapshot import breaker_state, decode_draws


class BreakerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One that is not closed."""

    key: str
    state: State
    opened_at: datetime


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    others: int
    """Failures since a given time, without the one just added."""
    state: State


class BreakerRecords:
    _db: Database

    def breakers(self) -> list[BreakerRecord]:
        return [
            BreakerRecord(key=key, state=breaker_state(state, until, probe), opened_at=from_stored(opened_at))
            for key, state, until, probe, opened_at in self._db.rows("breakers")
        ]

    def recent_failures(self, since: datetime) -> Mapping[str, int]:
        """How many of each key that has any."""
        counts: dict[str, int] = {}
        for key, _at in self._db.rows("recent_failures", since=to_stored(since)):
            counts[key] = counts.get(key, 0) + 1
        return counts


class Breaking(Pausing, BreakerRecords):
    def add_failure(self, keys: tuple[str, ...], at: datetime, *, since: datetime, most: int) -> list[Tally]:
        """Remember that a run under these failed; `most` are kept of each, enough to open it. Their slots have gaps
        where old ones were forgotten, and more than `most` are taken where it was lowered meanwhile."""
        first, second = (*keys, None)[:2]
        return [
            Tally(key=key, others=others, state=CLOSED if state is None else breaker_state(state, until, probe))
            for key, others, state, until, probe in self._db.rows(
                "add_failure", first=first, second=second, at=to_stored(at), since=to_stored(since), most=most
            )
        ]

    def forget_old_failures(self, until: datetime) -> None:
        self._db.run("forget_old_failures", until=to_stored(until))

    def set_breaker(
        self, key: str, state: State, *, now: datetime, cause: str, actor: str | None = None, job: JobId | None = None
    ) -> None:
        """`job` is the one whose end or turn it was."""
        data: dict[str, object] = {"key": key}
        match state:
            case Open():
                kind = "opened"
                data["until"] = state.until.isoformat()
                self._db.run("open_breaker", key=key, opened_at=to_stored(now), until=to_stored(state.until))
            case Closed():
                kind = "closed"
                self._db.run("close_breaker", key=key)
                self._db.run("forget_failures", key=key)
            case _:
                probe = state.by if isinstance(state, Probed) else None
                kind = "half_opened" if probe is None else "probed"
                self._db.run("half_open_breaker", key=key, probe=probe)
        if job is not None:
            data["job"] = show_job(job)
        self.emit(Event(kind=f"breaker.{kind}", at=to_stored(now), cause=cause, actor=actor, data=data))

    def lanes_of(self, key: str) -> list[LaneId]:
        """Those whose jobs stand under this breaker."""
        return [place.lane for place in self.places() if key in place.keys]

    def stir_idle(self, keys: tuple[str, ...], pauses: Pauses, limit: int) -> bool:
        """Mark the next parked jobs under these that nothing else holds; whether there were any. None of them is parked
        any more once it has had its look, so this comes to an end."""
        lanes = [
            LaneId(lane)
            for lane, draws, type_, flow, target in self._db.rows("idle_lanes", keys=list(keys))
            if not pauses.are_over(scopes_of(decode_draws(draws) or {}, type_, flow, target), keys_of(type_, target))
        ]
        return self.stir_parked(lanes, limit)

    def reset_starts(self, job: JobId, *, now: datetime, actor: str | None) -> bool:
        """Forget its failed starts, and do not let it wait on account of them; false where there are none."""
        if not self._db.run("reset_starts", job=job):
            return False
        event = Event(kind="job.starts_reset", at=to_stored(now), cause="breaker", actor=actor, job=job)
        self.emit(event)
        return True
