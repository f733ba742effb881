"""Groups as the API shows them, and their progress: the running members, and those that ended since a cursor."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from rota.db.session import AnyReader, Reader
from rota.errors import InvalidInput
from rota.groups.schemas import EndedMemberView, GroupPage, GroupProgress, GroupView, RunningMemberView, render_group
from rota.ids import GroupId, JobId, format_job_id

_MAX_ENDED = 500
_MAX_RUNNING = 20


def show_group(reader: AnyReader, group: str) -> GroupView:
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


def show_progress(reader: Reader, group: str, cursor: str | None) -> GroupProgress:
    record = reader.groups.find(group)
    view = render_group(record, reader.groups.counts([record])[record.id])
    since = _parse_progress_cursor(cursor)
    ended = reader.groups.ended_members(record.id, since, limit=_MAX_ENDED)
    running = reader.groups.running_members(record.id, limit=_MAX_RUNNING)
    at, job = ended[-1].cursor if ended else since
    return GroupProgress(
        id=view.id,
        name=view.name,
        status=view.status,
        counts=view.counts,
        total=view.total,
        running=[
            RunningMemberView(id=format_job_id(member.job), name=member.name, started_at=member.started_at)
            for member in running
        ],
        ended=[
            EndedMemberView(
                id=format_job_id(member.job),
                name=member.name,
                status=member.status.public.value,
                reason=member.reason,
                exit_code=member.exit_code,
                retried_as=_format_job(member.retried_as),
            )
            for member in ended
        ],
        cursor=".".join(map(str, (at, job, *(member.job for member in running)))),
    )


def _format_job(job: JobId | None) -> str | None:
    return None if job is None else format_job_id(job)


def _parse_progress_cursor(cursor: str | None) -> tuple[int, int]:
    try:
        at, job = (0, 0) if cursor is None else (int(part) for part in cursor.split(".")[:2])
    except ValueError:
        raise _invalid_cursor(cursor) from None
    if not (0 <= at < 2**62 and 0 <= job < 2**62):
        raise _invalid_cursor(cursor)
    return at, job


def _invalid_cursor(cursor: str | None) -> InvalidInput:
    return InvalidInput(f"invalid cursor {cursor!r}; use the `cursor` of the previous response").at_path(".cursor")
