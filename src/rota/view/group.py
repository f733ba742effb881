"""Groups as the API shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rota.ids import GroupId, format_job_id
from rota.store.session import AnyReader, Reader
from rota.wire.group import GroupPage, GroupView, render_group


def show(reader: AnyReader, group: str) -> GroupView:
    """Return a group by id or name."""
    record = reader.groups.find(group)
    jobs = [format_job_id(member.job) for member in reader.groups.members(record.id)]
    view = render_group(record, reader.groups.counts([record])[record.id])
    state = msgspec.json.encode((view, jobs))
    return msgspec.structs.replace(view, jobs=jobs, etag=hashlib.sha256(state).hexdigest()[:16])


def list_groups(reader: Reader, *, limit: int, before_id: GroupId | None, with_ended: bool) -> GroupPage:
    """Return a page of groups, newest first."""
    ids = reader.groups.list_ids(limit=limit + 1, before_id=before_id, with_ended=with_ended)
    groups = _render_groups(reader, ids[:limit])
    return GroupPage(groups=groups, next=groups[-1].id if len(ids) > limit else None)


def _render_groups(reader: Reader, ids: Sequence[GroupId]) -> list[GroupView]:
    groups = reader.groups.find_all(ids)
    counts = reader.groups.counts(groups)
    return [render_group(group, counts[group.id]) for group in groups]
