"""`move` and `reorder`: change the places of waiting jobs among those of their priority (DEC-005)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from rota.db.queue_reads import QueuedJobRank
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import JobId, format_job_id, parse_job_id
from rota.jobs.edit import make_unreadable_error, suggest_alternative
from rota.kernel.queue import Rank, has_distinct_positions, position_after, position_between, priority_bounds
from rota.kernel.status import STARTED, WAITING, Status
from rota.schema_types import JobIdText


class MoveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Target of a move: exactly one of the fields."""

    first: bool = False
    """Before all other jobs of its priority."""
    last: bool = False
    """After all other jobs of its priority."""
    to: Annotated[int, msgspec.Meta(le=2**53)] | None = None
    """Place among the waiting jobs of its priority, counted from 1."""
    before: JobIdText | None = None
    """Waiting job to place it directly before."""
    after: JobIdText | None = None
    """Waiting job to place it directly after."""


class MoveOutcome(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobId]
    has_moved: bool
    """False if the jobs were in this order already."""


MoveBounds = tuple[Rank | None, Rank | None]
"""Ranks before and after the new place; None if no job waits on that side."""


def move(tx: Transaction, job: JobId, request: MoveRequest, *, actor: str) -> MoveOutcome:
    find = _make_bounds_finder(job, request)
    mover = _find_waiting(tx, job, "moved")
    lower, upper = find(tx, mover)
    if (lower is None or lower < mover.rank) and (upper is None or mover.rank < upper):
        return MoveOutcome(jobs=[job], has_moved=False)
    position = _choose_position(tx, lower, upper)
    if position is None:
        tx.queue.respace(mover.rank.precedence, now=tx.now)
        mover = tx.queue.ranks([job])[job]
        position = _choose_position(tx, *find(tx, mover))
    if position is None:
        raise Conflict(f"there is no room for {format_job_id(job)}; nothing was moved")
    _store_positions(tx, [mover.rank._replace(position=position)], [mover.rank.position], actor)
    return MoveOutcome(jobs=[job], has_moved=True)


def reorder(tx: Transaction, order: Sequence[str], *, actor: str) -> MoveOutcome:
    """Put these jobs into this order, on the places that they have; all other jobs keep their places."""
    jobs = _parse_order(order)
    queued = tx.queue.ranks(jobs)
    for n, job in enumerate(jobs):
        with error_path(f".order[{n}]"):
            _refuse_unless_waiting(tx, job, queued, "reordered")
            _refuse_other_priority(queued[jobs[0]], queued[job])
    ranks = [queued[job].rank for job in jobs]
    if ranks == sorted(ranks):
        return MoveOutcome(jobs=jobs, has_moved=False)
    precedence, positions = ranks[0].precedence, [rank.position for rank in ranks]
    if not has_distinct_positions(positions) or tx.queue.has_duplicate_positions(precedence, positions):
        tx.queue.respace(precedence, now=tx.now)
        queued = tx.queue.ranks(jobs)
        ranks = [queued[job].rank for job in jobs]
        positions = [rank.position for rank in ranks]
    moved = [
        (rank._replace(position=position), rank.position)
        for rank, position in zip(ranks, sorted(positions), strict=True)
        if rank.position != position
    ]
    _store_positions(tx, [rank for rank, _ in moved], [previous for _, previous in moved], actor)
    return MoveOutcome(jobs=jobs, has_moved=True)


def _parse_order(order: Sequence[str]) -> list[JobId]:
    """Parse the job ids of an order; refuse repeats."""
    jobs: dict[JobId, None] = {}
    for n, text in enumerate(order):
        with error_path(f".order[{n}]"):
            job = parse_job_id(text)
            if job in jobs:
                raise InvalidInput(f"{format_job_id(job)} is named more than once; name each job once")
        jobs[job] = None
    return list(jobs)


def _store_positions(tx: Transaction, ranks: Sequence[Rank], previous: Sequence[int], actor: str) -> None:
    if not tx.queue.move(ranks, previous, now=tx.now, actor=actor):
        raise Conflict("a job was changed by another request; nothing was moved, try again")


def _find_waiting(tx: Transaction, job: JobId, verb: str) -> QueuedJobRank:
    """Return the rank of a waiting job; refuse any other."""
    queued = tx.queue.ranks([job])
    _refuse_unless_waiting(tx, job, queued, verb)
    return queued[job]


def _refuse_unless_waiting(tx: Transaction, job: JobId, queued: Mapping[JobId, QueuedJobRank], verb: str) -> None:
    if job not in queued:
        raise tx.jobs.not_found(job)
    status = queued[job].status
    if status is Status.UNREADABLE:
        raise make_unreadable_error(job, "its status is unknown")
    if status in STARTED:
        raise Conflict(f"{format_job_id(job)} is {status.public}; only waiting jobs can be {verb}")
    if status not in WAITING:
        raise Conflict(
            f"{format_job_id(job)} has ended ({status}) and cannot be {verb}; {suggest_alternative(tx, job, status)}"
        )


def _refuse_other_priority(expected: QueuedJobRank, other: QueuedJobRank) -> None:
    if other.rank.precedence != expected.rank.precedence:
        raise Conflict(
            f"{format_job_id(other.job)} has priority {-other.rank.precedence} and {format_job_id(expected.job)} has"
            f" {-expected.rank.precedence}, but jobs only move within a priority;"
            f" `rota edit {format_job_id(expected.job)} --priority {-other.rank.precedence}` changes it first"
        )


def _choose_position(tx: Transaction, lower: Rank | None, upper: Rank | None) -> int | None:
    if upper is not None:
        return position_between(None if lower is None else lower.position, upper.position)
    if lower is None:
        raise AssertionError("a job that is alone in its priority is in place already")
    return position_after(lower.position, tx.ids.peek_job())


def _make_bounds_finder(job: JobId, request: MoveRequest) -> Callable[[Transaction, QueuedJobRank], MoveBounds]:
    """Return a function that finds the ranks around the new place."""
    targets = [
        name for name, value in msgspec.structs.asdict(request).items() if value is not None and value is not False
    ]
    if len(targets) != 1:
        message = "name exactly one target: first, last, to N, before JOB or after JOB"
        raise InvalidInput(message).at_path(f".{targets[1]}" if targets else "")
    if request.to is not None:
        if request.to < 1:
            message = f"places are counted from 1, so there is no place {request.to}; `first` is place 1"
            raise InvalidInput(message).at_path(".to")
        place = request.to
        return lambda tx, mover: _bounds_at(tx, mover, place)
    if request.before is not None or request.after is not None:
        is_before = request.before is not None
        with error_path(f".{targets[0]}"):
            other = parse_job_id(request.before or request.after or "")
            if other == job:
                raise InvalidInput(f"{format_job_id(job)} cannot move {targets[0]} itself; name another job")
        return lambda tx, mover: _bounds_next_to(tx, mover, other, is_before=is_before)
    if request.first:
        return lambda tx, mover: _bounds_at(tx, mover, 1)
    return lambda tx, mover: (
        tx.queue.previous_waiting(priority_bounds(mover.rank.precedence)[1], except_job=mover.job),
        None,
    )


def _bounds_at(tx: Transaction, mover: QueuedJobRank, place: int) -> MoveBounds:
    """Return the ranks around a place, counted without the moving job."""
    start, end = priority_bounds(mover.rank.precedence)
    upper = tx.queue.next_waiting(start, except_job=mover.job, offset=place - 1)
    if upper is not None:
        return tx.queue.previous_waiting(upper, except_job=mover.job), upper
    lower = tx.queue.previous_waiting(end, except_job=mover.job)
    places = 1 if lower is None else tx.queue.place_of(max(lower, mover.rank))
    if place > places:
        raise Conflict(
            f"there is no place {place}: {places} {'job waits' if places == 1 else 'jobs wait'} at priority"
            f" {-mover.rank.precedence}; `last` puts it last"
        ).at_path(".to")
    return lower, None


def _bounds_next_to(tx: Transaction, mover: QueuedJobRank, other: JobId, *, is_before: bool) -> MoveBounds:
    with error_path(".before" if is_before else ".after"):
        neighbor = _find_waiting(tx, other, "the target of a move")
        _refuse_other_priority(mover, neighbor)
    if is_before:
        return tx.queue.previous_waiting(neighbor.rank, except_job=mover.job), neighbor.rank
    return neighbor.rank, tx.queue.next_waiting(neighbor.rank, except_job=mover.job)
