"""A tick: evaluate the dirty jobs, then plan which ready jobs start.

    dirty jobs ──evaluate──▶ WAITING_ON_DEPS | WAITING_ON_LOCKS | ready in a lane | ended
    lanes ──plan──▶ claims, in queue order, while pools have room

Both functions are pure. `tick --dry-run` and `why` use the same code.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from math import inf
from typing import Literal

import msgspec

from rota.ids import JobId, LaneId, ReservationId
from rota.kernel.gates import BEFORE_LOCKS, BEFORE_PAUSED, LOCKS, Candidate, GateContext, first_verdict
from rota.kernel.holds import PauseState
from rota.kernel.lanes import Claim, Lane, Snapshot
from rota.kernel.locks import Lock, LockBoard
from rota.kernel.pools import PoolBoard
from rota.kernel.queue import Rank
from rota.kernel.reservations import ReservationClaim, admit_reservations
from rota.kernel.status import Status, advance
from rota.kernel.verdict import Block, Pass, SkipVerdict, Undecided, Verdict, Wait, WaitKind
from rota.naming import GLOBAL

_STORED_WAIT_KINDS = frozenset({WaitKind.DEPENDENCIES, WaitKind.PINNED_HEAD, WaitKind.LOCKS})

BoundBy = Literal["capacity", "batch", "ready", "none"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an evaluation for one job."""

    job: JobId
    chain: JobId
    old_status: Status
    new_status: Status
    wait_kind: WaitKind | None
    waited_on: tuple[WaitKind, ...]
    lane: LaneId
    was_ready: bool
    is_ready: bool
    joins_lock_queues: bool
    """Whether the job joins the queues of its locks."""
    leaves_lock_queues: bool
    """Whether the job leaves the queues of its locks."""
    has_changed: bool
    """Whether any field must be written; an unchanged job is not touched."""
    reason: str | None = None
    """Reason, if the evaluation ends the job as blocked or skipped."""
    has_delay_ended: bool = False
    """Whether another reason holds the job after its delay, so that no timer needs to wake it."""
    is_undecided: bool = False
    """Whether facts must be probed before the job is evaluated again."""


def _make_placement(job: Candidate, verdict: Verdict, *, is_contending: bool) -> Placement:
    status, kind, reason = Status.QUEUED, None, None
    match verdict:
        case Wait():
            status = verdict.status
            kind = verdict.kind if verdict.kind in _STORED_WAIT_KINDS else None
        case Block():
            status, reason = Status.BLOCKED_BY_DEPENDENCY, verdict.detail
        case SkipVerdict():
            status, reason = Status.SKIPPED, verdict.reason
        case Pass():
            pass
        case Undecided():
            return _unchanged_placement(job)
    is_ready = isinstance(verdict, Pass)
    return Placement(
        job=job.rank.job,
        chain=job.chain,
        old_status=job.status,
        new_status=status if status is job.status else advance(job.status, status),
        wait_kind=kind,
        waited_on=job.waited_on if kind is None or kind in job.waited_on else (*job.waited_on, kind),
        lane=job.lane,
        was_ready=job.is_ready,
        is_ready=is_ready,
        joins_lock_queues=is_contending and not job.is_contending and bool(job.locks),
        leaves_lock_queues=job.is_contending and not is_contending,
        has_changed=(status, kind, is_ready) != (job.status, job.wait_kind, job.is_ready),
        reason=reason,
        has_delay_ended=job.not_before is not None
        and isinstance(verdict, Wait)
        and (verdict.kind is WaitKind.PAUSED or verdict.cannot_start),
    )


def _unchanged_placement(job: Candidate) -> Placement:
    """Leave the job unchanged until its facts have been probed."""
    return Placement(
        job=job.rank.job,
        chain=job.chain,
        old_status=job.status,
        new_status=job.status,
        wait_kind=job.wait_kind,
        waited_on=job.waited_on,
        lane=job.lane,
        was_ready=job.is_ready,
        is_ready=job.is_ready,
        joins_lock_queues=False,
        leaves_lock_queues=False,
        has_changed=False,
        is_undecided=True,
    )


def can_skip_evaluation(
    *, unmet: int, not_before: datetime | None, locks: Sequence[Lock], needs_facts: bool = False
) -> bool:
    """Return whether every stored gate would pass, so that an evaluation would only find the job ready."""
    return unmet == 0 and not_before is None and not locks and not needs_facts


def evaluate(jobs: Sequence[Candidate], context: GateContext) -> list[Placement]:
    """Evaluate the stored gates of each job.

    All jobs that pass the gates before locks join the lock queues first, so that within one evaluation the queue order
    decides, not the order of the calls. A job without locks stays in its lane during a pause, because the plan skips a
    held lane as a whole. A job with locks leaves the lock queues during a pause.
    """
    early = [(job, first_verdict(job, context, BEFORE_LOCKS if job.locks else BEFORE_PAUSED)) for job in jobs]
    for job, verdict in early:
        if isinstance(verdict, Pass):
            context.locks.enqueue(job.rank, job.locks)
    return [
        _make_placement(job, LOCKS.judge(job, context), is_contending=True)
        if isinstance(verdict, Pass)
        else _make_placement(job, verdict, is_contending=False)
        for job, verdict in early
    ]


def compute_bound(capacity: int | None, batch_size: int | None, ready_count: int) -> tuple[int, int, BoundBy]:
    """Return how many jobs start, how many ready jobs do not, and the limiting factor. On a tie, batch takes precedence
    over capacity, and capacity over ready. `None` is no limit."""
    if ready_count <= 0:
        return 0, 0, "none"
    if capacity is not None and capacity <= 0:
        return 0, ready_count, "capacity"
    limit: float
    reason: BoundBy
    limit, reason = (inf, "ready") if batch_size is None else (batch_size, "batch")
    if capacity is not None and capacity < limit:
        limit, reason = capacity, "capacity"
    if ready_count < limit:
        limit, reason = ready_count, "ready"
    return int(limit), ready_count - int(limit), reason


class StartPlan(msgspec.Struct, frozen=True, kw_only=True):
    claims: tuple[Claim, ...]
    bound_by: BoundBy
    """Factor that limited the number of claims; see `compute_bound`."""
    pools: PoolBoard
    """Pools after these claims, with the pools that were closed."""
    pauses: PauseState
    """Pauses and breakers after these claims."""
    is_truncated: bool = False
    """Whether the snapshot or the batch ended before the queue did: another tick should follow."""
    needs_more_lanes: bool = False
    """Whether the next job in the order is in a lane outside the snapshot."""
    reservations: tuple[ReservationClaim, ...] = ()
    """Direct executions that start."""
    reservation_waits: Mapping[ReservationId, Wait] = {}
    """Reasons why the other direct executions wait."""


def free_worker_numbers(used: frozenset[int]) -> Iterator[int]:
    return (number for number in count(1) if number not in used)


def plan(snapshot: Snapshot) -> StartPlan:
    """Plan direct executions first, in order of arrival, then the queue with the remaining capacity."""
    pools, workers = PoolBoard(snapshot.pool_sizes, snapshot.pool_usage), free_worker_numbers(snapshot.busy_workers)
    if not snapshot.reservations:
        return _plan_queue(snapshot, pools, workers)
    started, waits = admit_reservations(snapshot.reservations, snapshot.pauses, LockBoard(snapshot.lock_fronts), pools)
    reservations = tuple(ReservationClaim(reservation=reservation, worker=next(workers)) for reservation in started)
    return msgspec.structs.replace(
        _plan_queue(snapshot, pools, workers), reservations=reservations, reservation_waits=waits
    )


def _plan_queue(snapshot: Snapshot, pools: PoolBoard, workers: Iterator[int]) -> StartPlan:
    """Go down the queue order over all lanes at once and claim the jobs that fit. Jobs that a pause or a breaker holds
    are not ready. With several pools, capacity is the number of jobs that could be claimed."""
    pauses = snapshot.pauses
    claims: list[Claim] = []
    is_refused = not snapshot.lanes and _is_full(snapshot)
    queue = [(lane.heads[0], 0, lane) for lane in snapshot.lanes if lane.heads]
    heapq.heapify(queue)
    is_truncated, is_batched = False, False
    while queue:
        rank, index, lane = queue[0]
        if snapshot.horizon is not None and rank >= snapshot.horizon:
            is_truncated = True
            break
        if snapshot.frontier is not None and rank >= snapshot.frontier:
            break
        if _is_held(lane, pauses) or snapshot.pool_sizes.find_oversized_pool(lane.demand) is not None:
            heapq.heappop(queue)
            continue
        if not _fits(lane, pools, rank):
            is_refused = True
            heapq.heappop(queue)
            continue
        if len(claims) == snapshot.batch_size:
            is_truncated = is_batched = True
            break
        pools.allocate(lane.demand)
        probes = pauses.breakers.find_half_open(lane.breaker_keys)
        if probes:
            pauses = msgspec.structs.replace(pauses, breakers=pauses.breakers.with_probe(probes, rank.job))
        claims.append(
            Claim(job=rank.job, lane=lane.id, worker=next(workers), probes=probes, needs_facts=lane.needs_facts)
        )
        if index + 1 < len(lane.heads):
            heapq.heapreplace(queue, (lane.heads[index + 1], index + 1, lane))
        elif lane.has_more:
            is_truncated = is_batched = True
            break
        else:
            heapq.heappop(queue)
    # Dirty jobs beyond the horizon still need an evaluation, even if no ready job precedes them.
    needs_more_lanes = not is_truncated and snapshot.frontier is not None
    is_truncated = is_truncated or snapshot.horizon is not None or needs_more_lanes
    bound_by = _bound_by(snapshot, pools, pauses, len(claims), is_refused=is_refused, is_batched=is_batched)
    return StartPlan(
        claims=tuple(claims),
        bound_by=bound_by,
        pools=pools,
        pauses=pauses,
        is_truncated=is_truncated,
        needs_more_lanes=needs_more_lanes,
    )


def _bound_by(
    snapshot: Snapshot, pools: PoolBoard, pauses: PauseState, claimed: int, *, is_refused: bool, is_batched: bool
) -> BoundBy:
    if is_batched or claimed == snapshot.batch_size:
        return compute_bound(None, claimed, claimed + 1)[2]
    lanes = [
        lane
        for lane in snapshot.lanes
        if not _is_held(lane, pauses) and snapshot.pool_sizes.find_oversized_pool(lane.demand) is None
    ]
    has_room = not is_refused and (not lanes or any(isinstance(pools.judge(lane.demand), Pass) for lane in lanes))
    return compute_bound(claimed + has_room, snapshot.batch_size, claimed + is_refused)[2]


def _is_full(snapshot: Snapshot) -> bool:
    """Return whether the global pool is full while a job is ready. Every job draws from global, so a full pool means
    that the snapshot has no lanes."""
    is_full = not isinstance(PoolBoard(snapshot.pool_sizes, snapshot.pool_usage).judge({GLOBAL: 1}), Pass)
    return snapshot.has_ready and is_full and not snapshot.pauses.is_paused_globally


def _is_held(lane: Lane, pauses: PauseState) -> bool:
    return pauses.is_paused(lane.scopes, lane.breaker_keys)


def _fits(lane: Lane, pools: PoolBoard, rank: Rank) -> bool:
    """Return whether the next job of the lane fits. If it does not, close the pools in which it lacks room."""
    if pools.is_closed(lane.demand):
        return False
    if isinstance(pools.judge(lane.demand), Pass) and not pools.is_reserved(lane.demand):
        return True
    pools.close(lane.demand, rank)
    return False
