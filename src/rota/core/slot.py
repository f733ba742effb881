"""Slots: places for direct executions, which are no jobs (DEC-004).

    running jobs ─▶ direct requests, in order of arrival ─▶ the queue

A slot draws from pools and takes locks as a job does. While it waits it stands before the whole queue: in the queues
of its locks by a rank that no job has, and in the pools by a reservation, so that it holds back only jobs that share
a limited pool with it. It preempts nobody. What holds a job at the paused gate holds a slot too, and then it reserves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.core.control import Pauses, judge_pause
from rota.core.lock import Lock, LockBoard
from rota.core.pool import Draws, PoolBoard
from rota.core.queue import Rank
from rota.core.status import Status
from rota.core.trace import Trace
from rota.core.verdict import PASS, Pass, Verdict, Wait
from rota.core.wait import WaitKind
from rota.ids import JobId, RunId, SlotId, show_job, show_slot
from rota.names import GLOBAL

BEFORE_ALL = -(2**61)
"""The precedence of a slot: no job has such a priority."""


class SlotState(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One direct execution, with what has become of it."""

    id: SlotId
    state: SlotState
    name: str | None
    command: tuple[str, ...] | None
    """None where a program does the work itself, and only has its turn here."""
    cwd: str | None
    surroundings: int | None
    type: str | None
    flow: str | None
    target: str | None
    draws: Draws
    locks: tuple[Lock, ...]
    timeout: timedelta | None
    idle_timeout: timedelta | None
    is_attended: bool
    """It hangs on a connection of its client; else its client says a word from time to time."""
    actor: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    run: RunId | None
    """The number under which the executor knows it: that of no run."""
    pid: int | None
    stop_requested: str | None
    status: Status | None
    """How it ended."""
    exit_code: int | None
    reason: str | None
    trace: Trace = {}

    @property
    def shown(self) -> str:
        """Its status, as every surface names it."""
        if self.status is not None:
            return self.status.value
        return "WAITING" if self.state is SlotState.WAITING else "RUNNING"


class SlotStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting slot as the gates see it."""

    id: SlotId
    draws: Draws
    scopes: tuple[str, ...] = (GLOBAL,)
    """What it stands under."""
    locks: tuple[Lock, ...] = ()
    is_absent: bool = False
    """Its client has not come back after the scheduler was started anew: its place is kept, and it does not begin."""
    contends: bool = True
    """It stands in the queues of its locks, if it has any."""


class SlotClaim(msgspec.Struct, frozen=True, kw_only=True):
    slot: SlotId
    worker: int


def owner_of(slot: SlotId) -> JobId:
    """As the owner of locks: slots and jobs stand in one queue for each key."""
    return JobId(-slot)


def show_owner(owner: JobId) -> str:
    """Who holds a lock, or waits for it."""
    return show_job(owner) if owner > 0 else show_slot(SlotId(-owner))


def rank_of(slot: SlotId) -> Rank:
    return Rank(BEFORE_ALL, slot, 0, owner_of(slot))


def judge_turn(pools: PoolBoard, draws: Draws) -> Verdict:
    """The slot gate: whether a direct execution that waits has the room first."""
    if not pools.is_reserved(draws):
        return PASS
    detail = "direct execution has the next slot"
    return Wait(status=Status.QUEUED, kind=WaitKind.SLOT, detail=detail, on=("slot",))


_ABSENT = Wait(status=Status.WAITING_ON_LOCKS, kind=WaitKind.LOCKS, detail="waiting on locks")
"""Who does not stand in the queues of his locks yet cannot have them."""


_AWAY = Wait(status=Status.QUEUED, kind=WaitKind.SLOT, detail="its client has not come back yet", on=("slot",))


def judge_slot(slot: SlotStanding, pauses: Pauses, locks: LockBoard, pools: PoolBoard) -> Verdict:
    """The gates of a slot, in their order. Nothing comes after a slot but time, so there is no other."""
    for verdict in (
        judge_pause(pauses, slot.scopes),
        locks.judge(rank_of(slot.id), slot.locks) if slot.contends else _ABSENT,
        judge_turn(pools, slot.draws),
        _AWAY if slot.is_absent else PASS,
        pools.judge(slot.draws),
    ):
        if not isinstance(verdict, Pass):
            return verdict
    return PASS


def serve(
    slots: Sequence[SlotStanding], pauses: Pauses, locks: LockBoard, pools: PoolBoard
) -> tuple[list[SlotId], dict[SlotId, Wait]]:
    """Who may begin, in order of arrival, and why the others may not; the board is left with what they took and with
    what they reserve."""
    begun: list[SlotId] = []
    waits: dict[SlotId, Wait] = {}
    for slot in slots:
        verdict = judge_slot(slot, pauses, locks, pools)
        if not isinstance(verdict, Wait):
            pools.take(slot.draws)
            begun.append(slot.id)
            continue
        waits[slot.id] = verdict
        if verdict.kind is not WaitKind.PAUSED and pools.could_hold(slot.draws):
            pools.reserve(slot.draws)
    return begun, waits
