"""JSON representations of the queue and of the results of moves."""

from __future__ import annotations

import msgspec

from rota.wire.job import JobStatusText, JobView, WaitReason


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job with its place in the queue."""

    id: str
    """Id of the job."""
    name: str | None
    """Name of the job; `null` if it has none."""
    status: JobStatusText
    """Status of the job."""
    priority: int
    """Priority of the job. Jobs with a higher priority start first."""
    position: int
    """Stored position of the job among the jobs of its priority."""
    place: int
    """Rank of the job among the waiting jobs of its priority, from 1. The `to` of a move takes this number."""
    wait: WaitReason | None
    """Reason that the job has not started; `null` if nothing holds it."""


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the queue."""

    jobs: list[QueuedJob]
    """Waiting jobs in the order in which they start if nothing else holds them."""
    next: str | None


class MoveResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a move."""

    job: JobView
    """The job after the move."""
    place: int | None
    """Rank of the job among the waiting jobs of its priority, from 1; `null` if it is not waiting."""
    moved: bool
    """Whether the job changed its place; `false` if it was already there."""


class ReorderResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a reorder."""

    order: list[str]
    """Ids of the jobs in their new order."""
    moved: bool
    """Whether the order changed; `false` if the jobs were already in this order."""
