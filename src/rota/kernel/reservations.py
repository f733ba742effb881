"""Reservations: starts of direct executions, which are not jobs (DEC-004).

A reservation is the record; a direct execution is the work done under it.

    running jobs ─▶ direct executions, in order of arrival ─▶ the queue

A reservation draws from pools and takes locks like a job. While it waits, it precedes the whole queue: in the queues of
its locks by a rank that no job has, and in the pools by reserved room, so it holds back only jobs that share a limited
pool with it. It never preempts a running job. A pause that holds a job holds a reservation too; a paused reservation
reserves no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.ids import JobId, ReservationId, RunId, format_job_id, format_reservation_id
from rota.kernel.holds import PauseState, judge_pause
from rota.kernel.locks import Lock, LockBoard
from rota.kernel.pools import PoolBoard, PoolDemand
from rota.kernel.queue import Rank
from rota.kernel.status import Status
from rota.kernel.trace import Trace
from rota.kernel.verdict import PASS, Pass, Verdict, Wait, WaitKind
from rota.naming import GLOBAL

RESERVATION_PRECEDENCE = -(2**61)
"""Precedence of a reservation, below the precedence of every job."""


class ReservationState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A direct execution with its state."""

    id: ReservationId
    state: ReservationState
    name: str | None
    command: tuple[str, ...] | None
    """Command to run; `None` if the client does the work itself and only waits for the start."""
    cwd: str | None
    environment: int | None
    type: str | None
    flow: str | None
    target: str | None
    demand: PoolDemand
    locks: tuple[Lock, ...]
    timeout: timedelta | None
    idle_timeout: timedelta | None
    has_client: bool
    """Whether the reservation depends on a connection of its client. Otherwise the client renews it at intervals."""
    actor: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    run: RunId | None
    """Id by which the executor knows the child. It is not the id of a stored run."""
    pid: int | None
    stop_requested: str | None
    status: Status | None
    """Final status."""
    exit_code: int | None
    reason: str | None
    trace: Trace = {}

    @property
    def display_status(self) -> str:
        """Status to display."""
        if self.status is not None:
            return self.status.value
        return "WAITING" if self.state is ReservationState.WAITING else "RUNNING"


class ReservationCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting reservation, as input of the gates."""

    id: ReservationId
    demand: PoolDemand
    scopes: tuple[str, ...] = (GLOBAL,)
    """Pause scopes that cover the reservation."""
    locks: tuple[Lock, ...] = ()
    is_client_absent: bool = False
    """Whether the client has not reconnected since the scheduler restarted: the reservation keeps its place but does
    not start."""
    is_contending: bool = True
    """Whether the reservation is in the queues of its locks, if it has any."""


class ReservationClaim(msgspec.Struct, frozen=True, kw_only=True):
    reservation: ReservationId
    worker: int


def lock_owner(reservation: ReservationId) -> JobId:
    """Return the lock owner of a reservation. Reservations and jobs share one queue for each key."""
    return JobId(-reservation)


def format_owner(owner: JobId) -> str:
    """Format the holder of a lock, or a contender for it."""
    return format_job_id(owner) if owner > 0 else format_reservation_id(ReservationId(-owner))


def reservation_rank(reservation: ReservationId) -> Rank:
    return Rank(RESERVATION_PRECEDENCE, reservation, 0, lock_owner(reservation))


def judge_reservation_gate(pools: PoolBoard, demand: PoolDemand) -> Verdict:
    """Return the verdict of the reservation gate: wait if a direct execution needs the room first."""
    if not pools.is_reserved(demand):
        return PASS
    detail = "direct execution has the next slot"
    return Wait(status=Status.QUEUED, kind=WaitKind.RESERVATION, detail=detail, on=("reservation",))


_LOCK_QUEUE_WAIT = Wait(status=Status.WAITING_ON_LOCKS, kind=WaitKind.LOCKS, detail="waiting on locks")
"""Verdict for a reservation that has not joined the queues of its locks yet."""


_CLIENT_WAIT = Wait(
    status=Status.QUEUED, kind=WaitKind.RESERVATION, detail="its client has not reconnected yet", on=("reservation",)
)


def judge_reservation(
    reservation: ReservationCandidate, pauses: PauseState, locks: LockBoard, pools: PoolBoard
) -> Verdict:
    """Return the verdict of the gates for a reservation, in order. The dependency gates do not apply."""
    for verdict in (
        judge_pause(pauses, reservation.scopes),
        pools.judge_size(reservation.demand),
        locks.judge(reservation_rank(reservation.id), reservation.locks)
        if reservation.is_contending
        else _LOCK_QUEUE_WAIT,
        judge_reservation_gate(pools, reservation.demand),
        _CLIENT_WAIT if reservation.is_client_absent else PASS,
        pools.judge(reservation.demand),
    ):
        if not isinstance(verdict, Pass):
            return verdict
    return PASS


def admit_reservations(
    reservations: Sequence[ReservationCandidate], pauses: PauseState, locks: LockBoard, pools: PoolBoard
) -> tuple[list[ReservationId], dict[ReservationId, Wait]]:
    """Return the reservations that may start, in order of arrival, and the reasons why the others wait. The pools are
    updated with the demand and the reserved room."""
    started: list[ReservationId] = []
    waits: dict[ReservationId, Wait] = {}
    for reservation in reservations:
        verdict = judge_reservation(reservation, pauses, locks, pools)
        if not isinstance(verdict, Wait):
            pools.allocate(reservation.demand)
            started.append(reservation.id)
            continue
        waits[reservation.id] = verdict
        if verdict.kind is not WaitKind.PAUSED and pools.can_ever_fit(reservation.demand):
            pools.reserve(reservation.demand)
    return started, waits
