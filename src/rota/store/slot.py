"""Stores direct executions: where they stand, and what has become of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.core.event import Event
from rota.core.lock import Lock, LockMode
from rota.core.pool import Draws
from rota.core.run import STOPPED_BY_SHUTDOWN, Conclusion
from rota.core.slot import BEFORE_ALL, Slot, SlotClaim, SlotStanding, SlotState, owner_of
from rota.core.status import Status
from rota.core.trace import Trace
from rota.errors import NotFound
from rota.ids import RunId, SlotId, show_slot
from rota.names import GLOBAL
from rota.store.claim import Claiming
from rota.store.database import Row
from rota.store.moment import (
    duration_from_stored,
    duration_to_stored,
    from_stored,
    maybe_from_stored,
    to_stored,
)
from rota.store.record import decode_trace
from rota.store.snapshot import Snapshots, decode_draws

CAUSE = "direct"


class NewSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that has been checked and can be stored."""

    name: str | None
    command: tuple[str, ...] | None
    cwd: str | None
    surroundings: int | None
    type: str | None
    flow: str | None
    target: str | None
    draws: Draws
    locks: tuple[Lock, ...]
    trace: Trace = {}
    timeout: timedelta | None
    idle_timeout: timedelta | None
    is_attended: bool


class SlotRecords(Snapshots):
    def slot(self, slot: SlotId) -> Slot | None:
        return next(iter(self._slots(self._db.rows("slots", ids=[slot]))), None)

    def open_slots(self) -> list[Slot]:
        """Those that wait or run, in order of arrival."""
        return self._slots(self._db.rows("open_slots"))

    def open_slots_behind(self, slot: int, limit: int) -> list[Slot]:
        """The same, a page of them."""
        return self._slots(self._db.rows("open_slots_behind", slot=slot, limit=limit))

    def slot_of_run(self, run: RunId) -> Slot | None:
        """The one that the executor knows by this number, unless it has ended."""
        return next(iter(self._slots(self._db.rows("slot_of_run", run=run))), None)

    def no_such_slot(self, slot: SlotId) -> NotFound:
        return NotFound(f"no such slot: {show_slot(slot)}; `rota slot list` shows those that wait or run")

    def running_slots(self) -> list[SlotId]:
        return [SlotId(row[0]) for row in self._db.rows("slot_users")]

    def slots_drawing(self, pool: str) -> list[SlotId]:
        """The running ones that draw from this pool."""
        return [SlotId(slot) for slot, draws in self._db.rows("slot_users") if pool in (decode_draws(draws) or {})]

    def old_slots(self, until: datetime, limit: int) -> list[SlotId]:
        """Some that ended before that."""
        return [SlotId(row[0]) for row in self._db.rows("old_slots", until=to_stored(until), limit=limit)]

    def fresh_slots(self, ids: Sequence[SlotId], until: datetime) -> set[SlotId]:
        """Those of them that wait or run, or ended later."""
        rows = self._db.rows("fresh_slots", ids=list(ids), until=to_stored(until)) if ids else []
        return {SlotId(row[0]) for row in rows}

    def has_slots(self, ids: Sequence[SlotId]) -> set[SlotId]:
        """Those of them that there are."""
        return {SlotId(row[0]) for row in self._db.rows("slots", ids=list(ids))} if ids else set()

    def _slots(self, rows: Sequence[Row]) -> list[Slot]:
        if not rows:
            return []
        locks: dict[int, list[Lock]] = {}
        for owner, key, mode, _state in self._db.rows("locks_of", ids=[-row[0] for row in rows]):
            locks.setdefault(-owner, []).append(Lock(key=key, mode=LockMode(mode)))
        return [_slot(row, tuple(locks.get(row[0], ()))) for row in rows]


class Serving(Claiming, SlotRecords):
    def reserve(self, new: NewSlot, now: datetime, actor: str | None) -> SlotId:
        """It stands in the queues of its locks from the next look on, before every job."""
        slot = SlotId(self.take("slot", 1))
        self._db.run(
            "add_slot", id=slot, name=new.name, command=None if new.command is None else _encode(new.command),
            cwd=new.cwd, surroundings=new.surroundings, trace=_encode(new.trace) if new.trace else None,
            type=new.type or "", flow=new.flow or "",
            target=new.target or "", draws=_encode(new.draws), timeout=duration_to_stored(new.timeout),
            idle_timeout=duration_to_stored(new.idle_timeout), attended=int(new.is_attended), actor=actor,
            now=to_stored(now),
        )  # fmt: skip
        place = {"job": owner_of(slot), "precedence": BEFORE_ALL, "position": slot, "now": 0}
        self._db.run_many("add_lock", [{**place, "key": lock.key, "mode": lock.mode.value} for lock in new.locks])
        self._announce("reserved", slot, now, actor=actor)
        return slot

    def contend(self, slot: SlotStanding) -> None:
        """Stand in the queues of its locks; ready jobs that may not pass it look again."""
        self._contend(owner_of(slot.id))

    def step_aside(self, slot: SlotId) -> None:
        """Give up its locks, and its turn for them."""
        self.leave_locks(owner_of(slot))

    def begin_slot(self, claim: SlotClaim, node: str, now: datetime) -> Slot:
        """Its turn has come: it has its locks and its room from here on. One with a command is started under a number
        of its own, that no run has; to one without it is said that it may go on."""
        slot = self.slot(claim.slot)
        if slot is None:
            raise self.no_such_slot(claim.slot)
        run = None if slot.command is None else RunId(self.take("run", 1))
        if run is not None:
            self.spend("run", run)
        worker = f"{node}/{claim.worker}"
        state = SlotState.RUNNING if run is None else SlotState.STARTING
        self._db.run("start_slot", id=slot.id, state=state.value, worker=worker, run=run, now=to_stored(now))
        self._db.run("hold_locks", job=owner_of(slot.id))
        self._announce("started", slot.id, now, data={"worker": worker})
        return msgspec.structs.replace(slot, state=state, worker=worker, run=run, started_at=now)

    def confirm_slot(self, slot: Slot, pid: int, pid_started: int, now: datetime) -> None:
        """The child exists."""
        if self._db.run("confirm_slot", id=slot.id, pid=pid, pid_started=pid_started):
            self._announce("running", slot.id, now, data={"pid": pid})

    def return_slot(self, slot: Slot, now: datetime) -> None:
        """Nothing was started for it, through no fault of its own: it waits again, at its old place."""
        if self._db.run("return_slot", id=slot.id):
            self.step_aside(slot.id)
            self._announce("returned", slot.id, now)

    def stop_slot(self, slot: SlotId, reason: str, now: datetime, actor: str | None) -> bool:
        """Remember that it is to be ended; false when somebody asked before or it has ended."""
        if not self._db.run("stop_slot", id=slot, reason=reason, weaker=STOPPED_BY_SHUTDOWN):
            return False
        self._announce("stop_requested", slot, now, actor=actor, data={"reason": reason})
        return True

    def end_slot(self, slot: SlotId, end: Conclusion, now: datetime, actor: str | None = None) -> bool:
        """Its room and its locks are free; false when it has ended before."""
        values = {"status": end.status.value, "exit_code": end.exit_code, "reason": end.reason}
        if not self._db.run("end_slot", id=slot, now=to_stored(now), **values):
            return False
        self.step_aside(slot)
        self._announce("ended", slot, now, actor=actor, data=values)
        return True

    def remove_slots(self, ids: Sequence[SlotId]) -> int:
        """Those that have ended."""
        removed = self._db.run("remove_slots", ids=list(ids))
        if removed:
            self._db.run("remove_locks", ids=[owner_of(slot) for slot in ids])
            self.spend("slot", max(ids))
        return removed

    def _announce(
        self,
        what: str,
        slot: SlotId,
        now: datetime,
        *,
        actor: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        self.emit(Event(kind=f"slot.{what}", at=to_stored(now), cause=CAUSE, actor=actor, slot=slot, data=data or {}))


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _decode_command(text: str) -> tuple[str, ...]:
    """Empty where it cannot be read: that one cannot be started, and says so."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()


def _slot(row: Row, locks: tuple[Lock, ...]) -> Slot:
    return Slot(
        id=SlotId(row[0]),
        state=SlotState(row[1]),
        name=row[2],
        command=None if row[3] is None else _decode_command(row[3]),
        cwd=row[4],
        surroundings=row[5],
        type=row[6] or None,
        flow=row[7] or None,
        target=row[8] or None,
        draws=decode_draws(row[9]) or {GLOBAL: 1},
        locks=locks,
        timeout=duration_from_stored(row[10]),
        idle_timeout=duration_from_stored(row[11]),
        actor=row[12],
        created_at=from_stored(row[13]),
        started_at=maybe_from_stored(row[14]),
        finished_at=maybe_from_stored(row[15]),
        worker=row[16],
        run=None if row[17] is None else RunId(row[17]),
        pid=row[18],
        stop_requested=row[19],
        status=None if row[20] is None else Status(row[20]),
        exit_code=row[21],
        reason=row[22],
        is_attended=bool(row[23]),
        trace=decode_trace(row[24]),
    )
