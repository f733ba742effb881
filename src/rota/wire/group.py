"""A group as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.core.group import OVER, Group, GroupStatus, Tally, status_of
from rota.core.status import Status
from rota.ids import show_group

GroupState = Annotated[str, Meta(extra_json_schema={"enum": [status.value for status in GroupStatus]})]


class GroupForm(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that belong together."""

    id: str
    name: str | None
    """Its name, if it has one."""
    mode: str
    """`parallel` or `sequential`."""
    on_failure: str
    """The policy that says what becomes of the others when one fails."""
    status: GroupState
    """Of the group as a whole."""
    counts: dict[str, int]
    """Chains by the status of their last job, as shown; those that gc has removed are counted as they ended."""
    total: int
    """How many chains it has."""
    created_at: datetime
    closed_at: datetime | None
    """Since when it ends with its members; null while it is open to more."""
    cancelled_at: datetime | None
    """When it was cancelled as a whole."""
    finished_at: datetime | None
    """When it was over."""
    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The last job of each chain, in sequence; a list of groups goes without."""
    tag: str | msgspec.UnsetType = msgspec.UNSET
    """Another one as soon as something of it has changed."""

    @property
    def is_over(self) -> bool:
        return self.status in OVER


class GroupsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of groups."""

    groups: list[GroupForm]
    """The newest first."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


def group_form(group: Group, tally: Tally) -> GroupForm:
    counts: dict[str, int] = {}
    for status in Status:
        if count := tally.counts.get(status):
            counts[status.shown.value] = counts.get(status.shown.value, 0) + count
    return GroupForm(
        id=show_group(group.id),
        name=group.name,
        mode=group.mode.value,
        on_failure=group.on_failure,
        status=_group_status(group, tally).value,
        counts=counts,
        total=tally.total,
        created_at=group.created_at,
        closed_at=group.closed_at,
        cancelled_at=group.cancelled_at,
        finished_at=group.finished_at,
    )


def _group_status(group: Group, tally: Tally) -> GroupStatus:
    return status_of(tally, is_closed=group.closed_at is not None, is_cancelled=group.cancelled_at is not None)
