"""Groups as people and programs see them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.group import OVER, Group, GroupStatus, Tally, status_of
from rota.core.status import Status
from rota.ids import GroupId, show_group, show_job
from rota.store.session import Reader


class GroupForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None
    mode: str
    on_failure: str
    status: str
    counts: dict[str, int]
    """Chains by the status of their last job, as shown; those that gc has removed are counted as they ended."""
    total: int
    created_at: datetime
    closed_at: datetime | None
    cancelled_at: datetime | None
    finished_at: datetime | None
    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The last job of each chain, in sequence; a list of groups goes without."""
    tag: str | msgspec.UnsetType = msgspec.UNSET
    """Another one as soon as something of it has changed."""

    @property
    def is_over(self) -> bool:
        return self.status in OVER


def show(reader: Reader, group: str) -> GroupForm:
    """By id or by name."""
    found = reader.group_called(group)
    jobs = [show_job(member.job) for member in reader.members(found.id)]
    form = _form(found, reader.tallies([found])[found.id])
    state = msgspec.json.encode((form, jobs))
    return msgspec.structs.replace(form, jobs=jobs, tag=hashlib.sha256(state).hexdigest()[:16])


def groups(
    reader: Reader, *, limit: int, below: GroupId | None, with_ended: bool
) -> tuple[list[GroupForm], str | None]:
    """The newest first, and where the next page begins."""
    ids = reader.list_groups(limit=limit + 1, below=below, with_ended=with_ended)
    forms = _forms(reader, ids[:limit])
    return forms, forms[-1].id if len(ids) > limit else None


def _forms(reader: Reader, ids: Sequence[GroupId]) -> list[GroupForm]:
    found = reader.groups(ids)
    tallies = reader.tallies(found)
    return [_form(group, tallies[group.id]) for group in found]


def _form(group: Group, tally: Tally) -> GroupForm:
    counts: dict[str, int] = {}
    for status in Status:
        if count := tally.counts.get(status):
            counts[status.shown.value] = counts.get(status.shown.value, 0) + count
    return GroupForm(
        id=show_group(group.id),
        name=group.name,
        mode=group.mode.value,
        on_failure=group.on_failure,
        status=_status(group, tally).value,
        counts=counts,
        total=tally.total,
        created_at=group.created_at,
        closed_at=group.closed_at,
        cancelled_at=group.cancelled_at,
        finished_at=group.finished_at,
    )


def _status(group: Group, tally: Tally) -> GroupStatus:
    return status_of(tally, is_closed=group.closed_at is not None, is_cancelled=group.cancelled_at is not None)
