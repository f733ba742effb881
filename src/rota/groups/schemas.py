"""JSON representations of groups and of their progress."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.ids import format_group_id
from rota.jobs.schemas import JobStatusText
from rota.kernel.groups import FINISHED_STATUSES, Group, GroupCounts, GroupStatus, group_status
from rota.kernel.status import Status

GroupStatusText = Annotated[str, Meta(extra_json_schema={"enum": [status.value for status in GroupStatus]})]


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group of jobs."""

    id: str
    """Id of the group."""
    name: str | None
    """Name of the group; `null` if it has none."""
    mode: str
    """Mode of the group: `parallel` or `sequential`."""
    on_failure: str
    """Name of the policy for the other members when one fails."""
    status: GroupStatusText
    """Status of the group as a whole."""
    counts: dict[str, int]
    """Number of chains by the status of their last job. Chains that were removed by gc count with their final
    status."""
    total: int
    """Number of chains in the group."""
    created_at: datetime
    closed_at: datetime | None
    """Time at which the group was closed to new members; `null` while it is open."""
    cancelled_at: datetime | None
    """Time at which the group was cancelled; `null` if it was not."""
    finished_at: datetime | None
    """Time at which the group finished; `null` until then."""
    unreadable: str | None
    """Error in the stored record; `null` if the record is valid. A group of unknown mode is treated as sequential."""
    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Ids of the last job of each chain, in sequence. Absent in a list of groups."""
    etag: str | msgspec.UnsetType = msgspec.UNSET
    """Version of the group: it changes whenever the group or its list of jobs changes. Absent in a list of groups."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED_STATUSES


class GroupPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of groups, newest first."""

    groups: list[GroupView]
    """Groups, newest first."""
    next: str | None


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


def render_group(group: Group, counts_by_status: GroupCounts) -> GroupView:
    counts: dict[str, int] = {}
    for status in Status:
        if count := counts_by_status.counts.get(status):
            counts[status.public.value] = counts.get(status.public.value, 0) + count
    return GroupView(
        id=format_group_id(group.id),
        name=group.name,
        mode=group.mode.value,
        on_failure=group.on_failure,
        status=_group_view_status(group, counts_by_status).value,
        counts=counts,
        total=counts_by_status.total,
        created_at=group.created_at,
        closed_at=group.closed_at,
        cancelled_at=group.cancelled_at,
        finished_at=group.finished_at,
        unreadable=group.unreadable,
    )


def _group_view_status(group: Group, counts_by_status: GroupCounts) -> GroupStatus:
    if group.finished_at is not None and (unreadable := counts_by_status.counts.get(Status.UNREADABLE)):
        known = {status: count for status, count in counts_by_status.counts.items() if status is not Status.UNREADABLE}
        failed = known.get(Status.FAILED, 0) + unreadable  # they ended, with an unknown outcome
        counts_by_status = msgspec.structs.replace(counts_by_status, counts={**known, Status.FAILED: failed})
    return group_status(
        counts_by_status, is_closed=group.closed_at is not None, is_cancelled=group.cancelled_at is not None
    )
