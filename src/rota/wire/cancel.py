"""JSON representations of dry runs of cancel and clear."""

from __future__ import annotations

import msgspec


class CancelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A job that would be cancelled."""

    id: str
    """Id of the job."""
    name: str
    """Name of the job, or its command if it has no name."""
    status: str
    """Current status of the job."""


class CancelledDependent(CancelTarget, frozen=True, kw_only=True):
    """A waiting job that would end because a job it depends on is cancelled."""

    outcome: str
    """Status in which the job would end: `BLOCKED_BY_DEPENDENCY` or `SKIPPED`."""


class CancelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that would be cancelled. Nothing is changed."""

    dry_run: bool = True
    """Always `true`."""
    jobs: list[CancelTarget]
    """Jobs, in the order in which they would be cancelled."""
    dependents: list[CancelledDependent] = []
    """Other waiting jobs that would end as a consequence."""


class ClearPlan(CancelPlan, frozen=True, kw_only=True):
    """The jobs that would be cancelled by a clear. Nothing is changed. A clear of more than 10,000 jobs lists no
    dependents."""

    total: int
    """Number of jobs that would be cancelled, including jobs beyond `limit`."""
    up_to: str | None
    """Id of the latest of these jobs. A clear with this `up_to` does not cancel jobs submitted later. `null` if there
    are no jobs."""
