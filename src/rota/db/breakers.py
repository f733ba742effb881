"""Storage of breakers that are not closed, and of the latest failures of each key.

Times are wall time, because both outlast the process: a window that was half over before a restart is half over after
it. A breaker does not mark the jobs that it holds (`db/lanes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from rota.db.database import Database
from rota.db.decoding import breaker_state, decode_demand, from_micros, to_micros
from rota.db.events import Events
from rota.db.lanes import Lanes
from rota.ids import JobId, LaneId, format_job_id
from rota.kernel.breaker import CLOSED, BreakerState, ClosedState, OpenState, ProbingState, breaker_keys
from rota.kernel.events import Event
from rota.kernel.holds import PauseState, scopes_of


class BreakerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Breaker that is not closed."""

    key: str
    state: BreakerState
    opened_at: datetime


class BreakerFailureCount(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    other_failures: int
    """Number of failures in the window, without the one just added."""
    state: BreakerState


class BreakerRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def list_all(self) -> list[BreakerRecord]:
        return [
            BreakerRecord(key=key, state=breaker_state(state, until, probe), opened_at=from_micros(opened_at))
            for key, state, until, probe, opened_at in self._db.rows("breakers")
        ]

    def recent_failures(self, since: datetime) -> Mapping[str, int]:
        """Return the number of failures since `since` of each key that has any."""
        counts: dict[str, int] = {}
        for key, _at in self._db.rows("recent_failures", since=to_micros(since)):
            counts[key] = counts.get(key, 0) + 1
        return counts


class Breakers(BreakerRecords):
    def __init__(self, database: Database, events: Events, lanes: Lanes) -> None:
        super().__init__(database)
        self._events = events
        self._lanes = lanes

    def add_failure(
        self, keys: tuple[str, ...], at: datetime, *, since: datetime, max_kept: int
    ) -> list[BreakerFailureCount]:
        """Record a failed run under these keys. Each key keeps `max_kept` failures, as many as open its breaker.

        The indexes of the ring have gaps after old entries were deleted, and the ring is longer than `max_kept` after
        that number was lowered.
        """
        first, second = (*keys, None)[:2]
        return [
            BreakerFailureCount(
                key=key, other_failures=others, state=CLOSED if state is None else breaker_state(state, until, probe)
            )
            for key, others, state, until, probe in self._db.rows(
                "add_failure",
                first_key=first,
                second_key=second,
                at=to_micros(at),
                since=to_micros(since),
                max_kept=max_kept,
            )
        ]

    def delete_old_failures(self, until: datetime) -> None:
        self._db.run("delete_old_failures", until=to_micros(until))

    def set(
        self,
        key: str,
        state: BreakerState,
        *,
        now: datetime,
        cause: str,
        actor: str | None = None,
        job: JobId | None = None,
    ) -> None:
        """Store the state of a breaker. `job` is the job that caused the change, by its end or as the probe."""
        data: dict[str, object] = {"key": key}
        match state:
            case OpenState():
                kind = "opened"
                data["until"] = state.until.isoformat()
                self._db.run("open_breaker", key=key, opened_at=to_micros(now), until=to_micros(state.until))
            case ClosedState():
                kind = "closed"
                self._db.run("close_breaker", key=key)
                self._db.run("delete_failures", key=key)
            case _:
                probe = state.job if isinstance(state, ProbingState) else None
                kind = "half_opened" if probe is None else "probe_started"
                self._db.run("half_open_breaker", key=key, probe=probe)
        if job is not None:
            data["job"] = format_job_id(job)
        self._events.emit(Event(kind=f"breaker.{kind}", at=to_micros(now), cause=cause, actor=actor, data=data))

    def wake_idle(self, keys: tuple[str, ...], pauses: PauseState, limit: int) -> bool:
        """Wake the next parked jobs of these keys that nothing else holds. Return whether there were any. An evaluation
        unparks each of them, so repeated calls terminate."""
        lanes = [
            LaneId(lane)
            for lane, demand, type_, flow, target in self._db.rows("idle_lanes", keys=list(keys))
            if not pauses.is_paused(
                scopes_of(decode_demand(demand) or {}, type_, flow, target), breaker_keys(type_, target)
            )
        ]
        return self._lanes.wake_parked(lanes, limit)
