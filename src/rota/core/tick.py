"""One tick: look at the jobs that something has happened to, then choose which ready jobs start.

    marked jobs ──look──▶ WAITING_ON_DEPS | WAITING_ON_LOCKS | ready in a lane | ended
    lanes ──plan──▶ claims, in queue order, while pools have room

Both are pure. What `tick --dry-run` prints and what `why` says comes from here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from math import inf
from typing import Literal

import msgspec

from rota.core.control import Pauses
from rota.core.gate import BEFORE_LOCKS, BEFORE_PAUSED, LOCKS, Facts, Standing, first_verdict
from rota.core.lock import Lock, LockBoard
from rota.core.pool import PoolBoard
from rota.core.queue import Rank
from rota.core.slot import SlotClaim, serve
from rota.core.snapshot import Claim, Lane, Snapshot
from rota.core.status import Status, advance
from rota.core.verdict import Block, Pass, Skip, Unknown, Verdict, Wait
from rota.core.wait import WaitKind
from rota.ids import JobId, LaneId, SlotId
from rota.names import GLOBAL

_STORED_KINDS = frozenset({WaitKind.DEPENDENCIES, WaitKind.PINNED_HEAD, WaitKind.LOCKS})

BoundBy = Literal["capacity", "batch", "ready", "none"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a look puts a job."""

    job: JobId
    chain: JobId
    was: Status
    to: Status
    wait_kind: WaitKind | None
    waited_on: tuple[WaitKind, ...]
    lane: LaneId
    was_ready: bool
    is_ready: bool
    joins: bool
    """It takes its turn in the queues of its locks."""
    leaves: bool
    """It gives up its turn there."""
    has_changed: bool
    """Something of it is to be written: a job that stands where it stood is left alone."""
    reason: str | None = None
    """Set when the look ends the job: blocked, or not needed."""
    has_waited: bool = False
    """Its delay is over and it is held by something else: no timer is to wake it any more."""
    is_undecided: bool = False
    """Somebody has to look outside first, and then it is looked at again."""


def _place(job: Standing, verdict: Verdict, *, contends: bool) -> Placement:
    to, kind, reason = Status.QUEUED, None, None
    match verdict:
        case Wait():
            to = verdict.status
            kind = verdict.kind if verdict.kind in _STORED_KINDS else None
        case Block():
            to, reason = Status.BLOCKED_BY_DEPENDENCY, verdict.detail
        case Skip():
            to, reason = Status.SKIPPED, verdict.reason
        case Pass():
            pass
        case Unknown():
            return _stay(job)
    is_ready = isinstance(verdict, Pass)
    return Placement(
        job=job.rank.job,
        chain=job.chain,
        was=job.status,
        to=to if to is job.status else advance(job.status, to),
        wait_kind=kind,
        waited_on=job.waited_on if kind is None or kind in job.waited_on else (*job.waited_on, kind),
        lane=job.lane,
        was_ready=job.is_ready,
        is_ready=is_ready,
        joins=contends and not job.contends and bool(job.locks),
        leaves=job.contends and not contends,
        has_changed=(to, kind, is_ready) != (job.status, job.wait_kind, job.is_ready),
        reason=reason,
        has_waited=job.not_before is not None and isinstance(verdict, Wait) and verdict.kind is WaitKind.PAUSED,
    )


def _stay(job: Standing) -> Placement:
    """It stands where it stood until somebody has looked outside."""
    return Placement(
        job=job.rank.job, chain=job.chain, was=job.status, to=job.status, wait_kind=job.wait_kind,
        waited_on=job.waited_on, lane=job.lane, was_ready=job.is_ready, is_ready=job.is_ready, joins=False,
        leaves=False, has_changed=False, is_undecided=True,
    )  # fmt: skip


def is_free(*, unmet: int, not_before: datetime | None, locks: Sequence[Lock], asks: bool = False) -> bool:
    """No stored gate has anything to ask of a job like this: a look would only find it ready."""
    return unmet == 0 and not_before is None and not locks and not asks


def look(jobs: Sequence[Standing], facts: Facts) -> list[Placement]:
    """Ask the stored gates of each job. All that pass those before locks join the queues of their locks first,
    so that within one look the order of the queue decides, not the order of asking. A job without locks sits out a
    pause in its lane, which the plan passes over as a whole; one with locks must not stand in their queues."""
    early = [(job, first_verdict(job, facts, BEFORE_LOCKS if job.locks else BEFORE_PAUSED)) for job in jobs]
    for job, verdict in early:
        if isinstance(verdict, Pass):
            facts.locks.join(job.rank, job.locks)
    return [
        _place(job, LOCKS.judge(job, facts), contends=True)
        if isinstance(verdict, Pass)
        else _place(job, verdict, contends=False)
        for job, verdict in early
    ]


def bound(capacity: int | None, batch: int | None, ready: int) -> tuple[int, int, BoundBy]:
    """How many start, how many that are ready do not, and what kept it from being more. Where two are equal, batch
    speaks before capacity and capacity before ready; none is no bound."""
    if ready <= 0:
        return 0, 0, "none"
    if capacity is not None and capacity <= 0:
        return 0, ready, "capacity"
    number: float
    reason: BoundBy
    number, reason = (inf, "ready") if batch is None else (batch, "batch")
    if capacity is not None and capacity < number:
        number, reason = capacity, "capacity"
    if ready < number:
        number, reason = ready, "ready"
    return int(number), ready - int(number), reason


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    claims: tuple[Claim, ...]
    bound_by: BoundBy
    """What kept the number of claims from being larger, by `bound`."""
    pools: PoolBoard
    """Room as it is after these claims, with the pools that were closed on the way."""
    pauses: Pauses
    """As they are after these claims."""
    is_cut_short: bool = False
    """The snapshot or the batch ended before the queue did: another tick should follow."""
    wants_more_lanes: bool = False
    """The next in the order stands in a lane that the snapshot does not have."""
    slots: tuple[SlotClaim, ...] = ()
    """Direct executions whose turn has come."""
    slot_waits: Mapping[SlotId, Wait] = {}
    """Why the others wait."""


def free_workers(taken: frozenset[int]) -> Iterator[int]:
    return (number for number in count(1) if number not in taken)


def plan(snapshot: Snapshot) -> Plan:
    """Direct executions first, in order of arrival, then the queue with what they leave."""
    pools, workers = PoolBoard(snapshot.limits, snapshot.used), free_workers(snapshot.workers)
    if not snapshot.slots:
        return _plan_queue(snapshot, pools, workers)
    begun, waits = serve(snapshot.slots, snapshot.pauses, LockBoard(snapshot.fronts), pools)
    slots = tuple(SlotClaim(slot=slot, worker=next(workers)) for slot in begun)
    return msgspec.structs.replace(_plan_queue(snapshot, pools, workers), slots=slots, slot_waits=waits)


def _plan_queue(snapshot: Snapshot, pools: PoolBoard, workers: Iterator[int]) -> Plan:
    """Go down the queue order over all lanes at once and claim what fits. A job that a pause or a breaker holds is not
    ready; with several pools, capacity is how many could be claimed."""
    pauses = snapshot.pauses
    claims: list[Claim] = []
    is_refused = not snapshot.lanes and _is_full(snapshot)
    queue = [(lane.heads[0], 0, lane) for lane in snapshot.lanes if lane.heads]
    heapq.heapify(queue)
    is_cut_short, is_batched = False, False
    while queue:
        rank, index, lane = queue[0]
        if snapshot.horizon is not None and rank >= snapshot.horizon:
            is_cut_short = True
            break
        if snapshot.frontier is not None and rank >= snapshot.frontier:
            break
        if _is_held(lane, pauses):
            heapq.heappop(queue)
            continue
        if not _fits(lane, pools, rank):
            is_refused = True
            heapq.heappop(queue)
            continue
        if len(claims) == snapshot.batch_size:
            is_cut_short = is_batched = True
            break
        pools.take(lane.draws)
        probes = pauses.breakers.awaiting(lane.keys)
        if probes:
            pauses = msgspec.structs.replace(pauses, breakers=pauses.breakers.probed(probes, rank.job))
        claims.append(Claim(job=rank.job, lane=lane.id, worker=next(workers), probes=probes, asks=lane.asks))
        if index + 1 < len(lane.heads):
            heapq.heapreplace(queue, (lane.heads[index + 1], index + 1, lane))
        elif lane.has_more:
            is_cut_short = is_batched = True
            break
        else:
            heapq.heappop(queue)
    # Marked jobs that have not had their look are owed one, even where nothing ready stands before them.
    wants_more = not is_cut_short and snapshot.frontier is not None
    is_cut_short = is_cut_short or snapshot.horizon is not None or wants_more
    bound_by = _bound_by(snapshot, pools, pauses, len(claims), is_refused=is_refused, is_batched=is_batched)
    return Plan(
        claims=tuple(claims), bound_by=bound_by, pools=pools, pauses=pauses, is_cut_short=is_cut_short,
        wants_more_lanes=wants_more,
    )  # fmt: skip


def _bound_by(
    snapshot: Snapshot, pools: PoolBoard, pauses: Pauses, claimed: int, *, is_refused: bool, is_batched: bool
) -> BoundBy:  # fmt: skip
    if is_batched or claimed == snapshot.batch_size:
        return bound(None, claimed, claimed + 1)[2]
    lanes = [lane for lane in snapshot.lanes if not _is_held(lane, pauses)]
    has_room = not is_refused and (not lanes or any(isinstance(pools.judge(lane.draws), Pass) for lane in lanes))
    return bound(claimed + has_room, snapshot.batch_size, claimed + is_refused)[2]


def _is_full(snapshot: Snapshot) -> bool:
    """Everybody draws from global: when it is full no lane is shown, and somebody is ready all the same."""
    is_full = not isinstance(PoolBoard(snapshot.limits, snapshot.used).judge({GLOBAL: 1}), Pass)
    return snapshot.has_ready and is_full and not snapshot.pauses.are_over_all


def _is_held(lane: Lane, pauses: Pauses) -> bool:
    return pauses.are_over(lane.scopes, lane.keys)


def _fits(lane: Lane, pools: PoolBoard, rank: Rank) -> bool:
    """Whether the next job of this lane fits now; if it lacks room somewhere, that pool is closed behind it."""
    if pools.is_closed(lane.draws):
        return False
    if isinstance(pools.judge(lane.draws), Pass) and not pools.is_reserved(lane.draws):
        return True
    pools.close(lane.draws, rank)
    return False
