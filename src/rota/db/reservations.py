"""Storage of reservations for direct executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.db.database import Database, Row
from rota.db.decoding import (
    RecordDecoder,
    decode_demand,
    decode_trace,
    duration_from_micros,
    duration_to_micros,
    from_micros,
    optional_from_micros,
    parse_lock_mode,
    to_micros,
)
from rota.db.events import Events
from rota.db.ids import Ids
from rota.db.locks import Locks
from rota.errors import NotFound
from rota.ids import ReservationId, RunId, format_reservation_id
from rota.kernel.events import Event
from rota.kernel.holds import scopes_of
from rota.kernel.locks import Lock
from rota.kernel.pools import PoolDemand
from rota.kernel.reservations import (
    RESERVATION_PRECEDENCE,
    Reservation,
    ReservationCandidate,
    ReservationClaim,
    ReservationState,
    lock_owner,
)
from rota.kernel.run import STOPPED_BY_SHUTDOWN, RunResult
from rota.kernel.status import parse_status
from rota.kernel.trace import Trace
from rota.naming import GLOBAL

CAUSE = "direct"


class NewReservation(msgspec.Struct, frozen=True, kw_only=True):
    """Validated reservation, ready to be stored."""

    name: str | None
    command: tuple[str, ...] | None
    cwd: str | None
    environment: int | None
    type: str | None
    flow: str | None
    target: str | None
    demand: PoolDemand
    locks: tuple[Lock, ...]
    trace: Trace = {}
    timeout: timedelta | None
    idle_timeout: timedelta | None
    has_client: bool


class ReservationRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def waiting(self) -> list[ReservationCandidate]:
        """Return the waiting reservations in order of arrival."""
        rows = self._db.rows("waiting_reservations")
        locks: dict[int, list[Lock]] = {}
        contending = set()
        for owner, key, mode, state in self._db.rows("locks_of", ids=[-row[0] for row in rows]) if rows else ():
            locks.setdefault(-owner, []).append(Lock(key=key, mode=parse_lock_mode(mode)))
            if state == "contending":
                contending.add(-owner)
        return [
            ReservationCandidate(
                id=ReservationId(reservation),
                demand=decode_demand(demand) or {GLOBAL: 1},
                scopes=scopes_of(decode_demand(demand) or {}, type_, flow, target),
                locks=tuple(locks.get(reservation, ())),
                is_contending=reservation in contending or reservation not in locks,
            )
            for reservation, demand, type_, flow, target in rows
        ]

    def find(self, reservation: ReservationId) -> Reservation | None:
        return next(iter(self._read(self._db.rows("reservations", ids=[reservation]))), None)

    def list_open(self) -> list[Reservation]:
        """Return the waiting and running reservations, in order of arrival."""
        return self._read(self._db.rows("open_reservations"))

    def list_open_after(self, after: int, limit: int) -> list[Reservation]:
        """Return a page of the waiting and running reservations."""
        return self._read(self._db.rows("open_reservations_after", after=after, limit=limit))

    def find_by_run(self, run: RunId) -> Reservation | None:
        """Return the open reservation whose process has this run id."""
        return next(iter(self._read(self._db.rows("reservation_of_run", run=run))), None)

    def not_found(self, reservation: ReservationId) -> NotFound:
        return NotFound(
            f"no such reservation: {format_reservation_id(reservation)};"
            " `rota reservation list` lists the waiting and running ones"
        )

    def running(self) -> list[ReservationId]:
        return [ReservationId(row[0]) for row in self._db.rows("running_reservations")]

    def using_pool(self, pool: str) -> list[ReservationId]:
        """Return the running reservations that use this pool."""
        return [
            ReservationId(reservation)
            for reservation, demand in self._db.rows("running_reservations")
            if pool in (decode_demand(demand) or {})
        ]

    def old(self, until: datetime, limit: int) -> list[ReservationId]:
        """Return reservations that ended before `until`."""
        return [ReservationId(row[0]) for row in self._db.rows("old_reservations", until=to_micros(until), limit=limit)]

    def recent(self, ids: Sequence[ReservationId], until: datetime) -> set[ReservationId]:
        """Return the reservations among these that are open or ended at `until` or later."""
        rows = self._db.rows("recent_reservations", ids=list(ids), until=to_micros(until)) if ids else []
        return {ReservationId(row[0]) for row in rows}

    def existing(self, ids: Sequence[ReservationId]) -> set[ReservationId]:
        """Return the reservations among these that exist."""
        return {ReservationId(row[0]) for row in self._db.rows("reservations", ids=list(ids))} if ids else set()

    def _read(self, rows: Sequence[Row]) -> list[Reservation]:
        if not rows:
            return []
        locks: dict[int, list[Lock]] = {}
        for owner, key, mode, _state in self._db.rows("locks_of", ids=[-row[0] for row in rows]):
            locks.setdefault(-owner, []).append(Lock(key=key, mode=parse_lock_mode(mode)))
        return [_reservation_from_row(row, tuple(locks.get(row[0], ()))) for row in rows]


class Reservations(ReservationRecords):
    def __init__(self, database: Database, ids: Ids, events: Events, locks: Locks) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events
        self._locks = locks

    def add(self, new_reservation: NewReservation, now: datetime, actor: str | None) -> ReservationId:
        """Store a reservation. It enters the queues of its locks with the next evaluation, before every job."""
        reservation = ReservationId(self._ids.allocate("reservation", 1))
        self._db.run(
            "add_reservation",
            id=reservation,
            name=new_reservation.name,
            command=None if new_reservation.command is None else _encode(new_reservation.command),
            cwd=new_reservation.cwd,
            environment=new_reservation.environment,
            trace=_encode(new_reservation.trace) if new_reservation.trace else None,
            type=new_reservation.type or "",
            flow=new_reservation.flow or "",
            target=new_reservation.target or "",
            demand=_encode(new_reservation.demand),
            timeout=duration_to_micros(new_reservation.timeout),
            idle_timeout=duration_to_micros(new_reservation.idle_timeout),
            has_client=int(new_reservation.has_client),
            actor=actor,
            now=to_micros(now),
        )
        rank = {"job": lock_owner(reservation), "precedence": RESERVATION_PRECEDENCE, "position": reservation, "now": 0}
        self._db.run_many(
            "add_lock", [{**rank, "key": lock.key, "mode": lock.mode.value} for lock in new_reservation.locks]
        )
        self._emit("created", reservation, now, actor=actor)
        return reservation

    def join_lock_queues(self, candidate: ReservationCandidate) -> None:
        """Enter the queues of its locks, and wake the ready jobs that may not pass it."""
        self._locks.join_queues(lock_owner(candidate.id))

    def yield_locks(self, reservation: ReservationId) -> None:
        """Release its locks and leave their queues."""
        self._locks.release(lock_owner(reservation))

    def start(self, claim: ReservationClaim, node: str, now: datetime) -> Reservation:
        """Start a reservation: it holds its locks and its room from this point on.

        A reservation with a command gets an id that no run has. Without a command, its client is notified to continue.
        """
        reservation = self.find(claim.reservation)
        if reservation is None:
            raise self.not_found(claim.reservation)
        run = None if reservation.command is None else RunId(self._ids.allocate("run", 1))
        if run is not None:
            self._ids.retire("run", run)
        worker = f"{node}/{claim.worker}"
        state = ReservationState.RUNNING if run is None else ReservationState.STARTING
        self._db.run(
            "start_reservation", id=reservation.id, state=state.value, worker=worker, run=run, now=to_micros(now)
        )
        self._db.run("hold_locks", job=lock_owner(reservation.id))
        self._emit("started", reservation.id, now, data={"worker": worker})
        return msgspec.structs.replace(reservation, state=state, worker=worker, run=run, started_at=now)

    def confirm_start(self, reservation: Reservation, pid: int, pid_started: int, now: datetime) -> None:
        """Record that the child process exists."""
        if self._db.run("confirm_reservation", id=reservation.id, pid=pid, pid_started=pid_started):
            self._emit("running", reservation.id, now, data={"pid": pid})

    def requeue(self, reservation: Reservation, now: datetime) -> None:
        """Put a reservation back at its place, because the executor started nothing and the cause is not the
        command."""
        if self._db.run("requeue_reservation", id=reservation.id):
            self.yield_locks(reservation.id)
            self._emit("requeued", reservation.id, now)

    def request_stop(self, reservation: ReservationId, reason: str, now: datetime, actor: str | None) -> bool:
        """Record that a reservation must be ended. Return false if a stop was requested before or it has ended."""
        if not self._db.run("stop_reservation", id=reservation, reason=reason, weaker=STOPPED_BY_SHUTDOWN):
            return False
        self._emit("stop_requested", reservation, now, actor=actor, data={"reason": reason})
        return True

    def end(self, reservation: ReservationId, result: RunResult, now: datetime, actor: str | None = None) -> bool:
        """End a reservation and free its room and its locks. Return false if it has ended before."""
        values = {"status": result.status.value, "exit_code": result.exit_code, "reason": result.reason}
        if not self._db.run("end_reservation", id=reservation, now=to_micros(now), **values):
            return False
        self.yield_locks(reservation)
        self._emit("ended", reservation, now, actor=actor, data=values)
        return True

    def remove(self, ids: Sequence[ReservationId]) -> int:
        """Remove the reservations among these that have ended."""
        removed = self._db.run("remove_reservations", ids=list(ids))
        if removed:
            self._db.run("remove_locks", ids=[lock_owner(reservation) for reservation in ids])
            self._ids.retire("reservation", max(ids))
        return removed

    def _emit(
        self,
        kind: str,
        reservation: ReservationId,
        now: datetime,
        *,
        actor: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        self._events.emit(
            Event(
                kind=f"reservation.{kind}",
                at=to_micros(now),
                cause=CAUSE,
                actor=actor,
                reservation=reservation,
                data=data or {},
            )
        )


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _decode_command(text: str) -> tuple[str, ...]:
    """Return the command, or an empty one if it is unreadable. Its start then fails with a reason."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError:
        return ()


def _state_of(row: Row, decoder: RecordDecoder) -> ReservationState:
    """Return the state. If it is unknown, derive it from the other columns."""
    if row[15] is not None:
        return decoder.reservation_state(row[1], ReservationState.ENDED)
    if row[16] is None:
        return decoder.reservation_state(row[1], ReservationState.WAITING)
    is_starting = row[17] is not None and row[18] is None
    return decoder.reservation_state(row[1], ReservationState.STARTING if is_starting else ReservationState.RUNNING)


def _reservation_from_row(row: Row, locks: tuple[Lock, ...]) -> Reservation:
    decoder = RecordDecoder()
    return Reservation(
        id=ReservationId(row[0]),
        state=_state_of(row, decoder),
        name=row[2],
        command=None if row[3] is None else _decode_command(row[3]),
        cwd=row[4],
        environment=row[5],
        type=row[6] or None,
        flow=row[7] or None,
        target=row[8] or None,
        demand=decode_demand(row[9]) or {GLOBAL: 1},
        locks=locks,
        timeout=duration_from_micros(row[10]),
        idle_timeout=duration_from_micros(row[11]),
        actor=row[12],
        created_at=from_micros(row[13]),
        started_at=optional_from_micros(row[14]),
        finished_at=optional_from_micros(row[15]),
        worker=row[16],
        run=None if row[17] is None else RunId(row[17]),
        pid=row[18],
        stop_requested=row[19],
        status=None if row[20] is None else parse_status(row[20]),
        exit_code=row[21],
        reason=decoder.error or row[22],
        has_client=bool(row[23]),
        trace=decode_trace(row[24]),
    )
