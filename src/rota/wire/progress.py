"""JSON representation of the progress of a group."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.group import FINISHED_STATUSES
from rota.wire.group import GroupStatusText
from rota.wire.job import JobStatusText


class EndedMemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group that has ended."""

    id: str
    """Id of the job."""
    name: str | None
    """Name of the job; `null` if it has none."""
    status: JobStatusText
    """Final status of the job."""
    reason: str | None
    """Reason for the outcome."""
    exit_code: int | None
    """Exit code of the job; `null` if there is none."""
    retried_as: str | None
    """Id of the job that retries this one; `null` if there is none."""


class RunningMemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group that is running."""

    id: str
    """Id of the job."""
    name: str | None
    """Name of the job; `null` if it has none."""
    started_at: datetime
    """Time at which the job started."""


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group."""

    id: str
    """Id of the group."""
    name: str | None
    """Name of the group; `null` if it has none."""
    status: GroupStatusText
    """Status of the group as a whole."""
    counts: dict[str, int]
    """Number of chains by the status of their last job."""
    total: int
    """Number of chains in the group."""
    running: list[RunningMemberView]
    """Running members in the order of the group. The list is limited."""
    ended: list[EndedMemberView]
    """Members that ended since the requested `cursor`, in the order of their ends. A long list is split: pass `cursor`
    to get the rest."""
    cursor: str
    """Value of `cursor` for the next request, which returns later changes."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED_STATUSES
