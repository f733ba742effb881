"""Groups and their progress over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from rota.engine.transaction import Transaction
from rota.errors import error_path
from rota.events.hub import Topic
from rota.groups import queries
from rota.groups.commands import cancel, close, create_group
from rota.groups.schemas import GroupPage, GroupProgress, GroupView
from rota.http.context import Context
from rota.http.endpoint import (
    CancelQuery,
    Endpoint,
    Invocation,
    JsonReply,
    NoQuery,
    PageSize,
    WaitSeconds,
    parse_cursor,
)
from rota.http.idempotency import run_call
from rota.ids import GroupId, format_group_id, parse_group_id
from rota.jobs.cancel import plan_cancel
from rota.jobs.result_schemas import CancelPlan
from rota.jobs.submission import GroupRequest
from rota.schema_types import GroupIdText

_MIN_READ_INTERVAL = 0.1
"""Minimum seconds between two reads of a group, however often its members change."""


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    open: bool = False
    """Only groups that have not finished."""
    limit: PageSize = 100
    cursor: GroupIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_groups(call: Invocation[GroupsQuery, None]) -> JsonReply[GroupPage]:
    """List groups, newest first. The list does not have the jobs of the groups."""
    query = call.query
    before_id = parse_cursor(query.cursor, parse_group_id, None)
    return JsonReply(
        await call.context.read(
            partial(queries.list_groups, limit=query.limit, before_id=before_id, with_ended=not query.open)
        )
    )


async def add_group(call: Invocation[NoQuery, GroupRequest]) -> JsonReply[GroupView]:
    """Add a group without members. It stays open until it is closed. Jobs join it by the `group` of their submit."""
    operation = partial(create_group, request=call.body, actor=call.context.actor)
    with error_path("", replaced_prefix=".group"):  # the group is the request itself
        return (await run_call(call, operation, _render_groups, partial(JsonReply, status=201))).reply


def _render_groups(tx: Transaction, results: Sequence[GroupId]) -> list[GroupView]:
    return [queries.show_group(tx, format_group_id(group)) for group in results]


class GroupQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds = 0
    """Maximum seconds to wait until the group has finished."""
    last_seen: str | None = None
    """With `wait`, the last known `etag`. A different one ends the wait."""


async def get_group(call: Invocation[GroupQuery, None]) -> JsonReply[GroupView]:
    """Show a group with its jobs, by id or name. A name that several groups have selects the one that has not finished,
    or else the newest. If several have not finished, only an id selects one (409)."""
    return JsonReply(
        await _wait_for_group(call.context, call.path_values["group"], call.query.wait, call.query.last_seen)
    )


async def _wait_for_group(context: Context, group: str, seconds: float, last_seen: str | None) -> GroupView:
    group_view = await context.read(partial(queries.show_group, group=group))

    def is_done(group_view: GroupView) -> bool:
        return group_view.is_finished or (last_seen is not None and group_view.etag != last_seen)

    if seconds == 0 or is_done(group_view):
        return group_view
    # The events of a group announce its end, but not the changes of its members.
    topic: Topic | None = ("group", parse_group_id(group_view.id)) if last_seen is None else None
    read_group = partial(queries.show_group, group=group_view.id)
    return await context.hub.wait_until(
        topic, seconds, lambda: context.read(read_group), is_done, min_interval=_MIN_READ_INTERVAL
    )


async def close_group(call: Invocation[NoQuery, None]) -> JsonReply[GroupView]:
    """Close a group: it finishes when its members have ended. To close a closed group has no effect."""
    operation = partial(close, reference=call.path_values["group"], actor=call.context.actor)
    return JsonReply(await call.context.run_and_render(operation, _render_groups))


async def cancel_group(call: Invocation[CancelQuery, None]) -> JsonReply[GroupView | CancelPlan]:
    """Cancel all members of a group. The response is sent when their processes are gone. A process tree that needs
    SIGKILL takes longer."""
    context = call.context
    if call.query.dry_run:
        operation = partial(_plan_cancel, text=call.path_values["group"], actor=context.actor)
        return JsonReply(await context.dry_run(operation, lambda _, plans: plans))
    group = await context.run_in_turn(partial(cancel, reference=call.path_values["group"], actor=context.actor))
    return JsonReply(await _wait_for_group(context, format_group_id(group), call.query.wait, None))


def _plan_cancel(tx: Transaction, text: str, actor: str) -> CancelPlan:
    members = tx.groups.members(tx.groups.find(text).id)
    plan = plan_cancel(tx, [member.job for member in members])
    cancel(tx, text, actor=actor)
    return plan


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds = 0
    """Maximum seconds to wait until a member has started or ended since `cursor`."""
    cursor: str | None = None
    """Position of the client: the `cursor` of the previous response."""


async def get_progress(call: Invocation[ProgressQuery, None]) -> JsonReply[GroupProgress]:
    """Show the progress of a group. The response has the running members, and those that have ended since `cursor`."""
    context, cursor = call.context, call.query.cursor
    read_progress = partial(queries.show_progress, group=call.path_values["group"], cursor=cursor)

    def is_done(progress: GroupProgress) -> bool:
        return progress.is_finished or progress.cursor != cursor

    progress = await context.hub.wait_until(
        None, call.query.wait, lambda: context.read(read_progress), is_done, min_interval=_MIN_READ_INTERVAL
    )
    return JsonReply(progress)


_LIST_EXAMPLE = {
    "id": "group-3",
    "name": "release",
    "mode": "sequential",
    "on_failure": "stop",
    "status": "RUNNING",
    "counts": {"WAITING_ON_DEPS": 1, "RUNNING": 1},
    "total": 2,
    "created_at": "2026-11-16T09:30:00.125480Z",
    "closed_at": "2026-11-16T09:30:00.125480Z",
    "cancelled_at": None,
    "finished_at": None,
    "unreadable": None,
}
_EXAMPLE = {**_LIST_EXAMPLE, "jobs": ["job-24", "job-25"], "etag": "5f0c1ea2b7d94c36"}
_NEW_EXAMPLE = {
    **_LIST_EXAMPLE,
    "status": "QUEUED",
    "counts": {},
    "total": 0,
    "closed_at": None,
    "jobs": [],
    "etag": "0b9a6c2f81d3e745",
}
_CANCELLED_EXAMPLE = {
    **_EXAMPLE,
    "status": "CANCELLED",
    "counts": {"CANCELLED": 2},
    "cancelled_at": "2026-11-16T09:41:07.031200Z",
    "finished_at": "2026-11-16T09:41:08.004172Z",
}
_PATH = "/api/job-groups/{group}"
_PROGRESS_EXAMPLE = {
    "id": "group-3",
    "name": "release",
    "status": "RUNNING",
    "counts": {"RUNNING": 1, "FAILED": 1},
    "total": 2,
    "running": [{"id": "job-25", "name": "publish", "started_at": "2026-11-16T09:31:12.400711Z"}],
    "ended": [
        {
            "id": "job-24",
            "name": "build",
            "status": "FAILED",
            "reason": "exit code 2",
            "exit_code": 2,
            "retried_as": None,
        }
    ],
    "cursor": "1772443871998310.24.25",
}

ENDPOINTS = [
    Endpoint("GET", "/api/job-groups", list_groups, response_example={"groups": [_LIST_EXAMPLE], "next": None}),
    Endpoint(
        "POST",
        "/api/job-groups",
        add_group,
        statuses=(201,),
        accepts_key=True,
        request_example={"name": "release", "mode": "sequential", "on_failure": "stop"},
        response_example=_NEW_EXAMPLE,
    ),
    Endpoint("GET", _PATH, get_group, errors=(409,), response_example=_EXAMPLE),
    Endpoint("POST", f"{_PATH}/cancel", cancel_group, errors=(409,), response_example=_CANCELLED_EXAMPLE),
    Endpoint("POST", f"{_PATH}/close", close_group, errors=(409,), response_example=_EXAMPLE),
    Endpoint("GET", f"{_PATH}/progress", get_progress, errors=(409,), response_example=_PROGRESS_EXAMPLE),
]
