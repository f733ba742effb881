"""JSON representation of the result of a rewind."""

from __future__ import annotations

import msgspec


class RewindResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rewind."""

    requested_job: str
    """Id of the requested job."""
    root: str
    """Id of the first job of the rewind set; the other jobs are downstream of it."""
    last_successful_point: list[str]
    """Ids of the successful jobs directly upstream, whose results are kept."""
    rewind_set: list[str]
    """Ids of the rewound job and all jobs downstream of it, nearest to the root first."""
    reset: list[str]
    """Ids of the jobs that were put back into the queue."""
    restarted: list[str]
    """Ids of the jobs that have already started again."""
    cancelled: list[str]
    """Ids of the jobs that had been cancelled."""
    dry_run: bool
    """Whether this is a dry run that changed nothing."""
    warning: str | None
    """Warning about the rewind; `null` if there is none."""
