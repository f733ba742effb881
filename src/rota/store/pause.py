"""Storage of pauses. A pause does not mark the jobs that it holds (`store/lane.py`)."""

from __future__ import annotations

from datetime import datetime

from rota.core.breaker import BreakerStates
from rota.core.control import Holds, Pause, PauseState
from rota.core.event import Event
from rota.store.database import Database
from rota.store.decoding import breaker_state
from rota.store.event import Events
from rota.store.timestamp import from_micros, to_micros


class PauseRecords:
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
