"""Groups over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from rota.api.context import Context, Topic
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.once import carry_out
from rota.api.page import LONGEST_WAIT, PageSize, Seconds, begins_at
from rota.command.group import add, cancel, close
from rota.command.submission import GroupWanted
from rota.engine.work import Work
from rota.errors import within
from rota.ids import GroupId, parse_group, show_group
from rota.view import group as view
from rota.wire.group import GroupForm, GroupsForm
from rota.wire.text import GroupText

_BREATH = 0.1
"""Seconds between two looks at a group, however much happens to its members."""


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    open: bool = False
    """Only those that are not over."""
    limit: PageSize = 100
    cursor: GroupText | None = None
    """The `next` of the page before."""


async def list_groups(call: Call[GroupsQuery, None]) -> Reply[GroupsForm]:
    """List groups, the newest first. Which jobs they have is said where one is looked at alone."""
    query = call.query
    below = begins_at(query.cursor, parse_group, None)
    return Reply(
        await call.context.look(partial(view.groups, limit=query.limit, below=below, with_ended=not query.open))
    )


async def add_group(call: Call[Nothing, GroupWanted]) -> Reply[GroupForm]:
    """Add a group without members, which stays open until it is closed. Jobs join it by the `group` of their submit."""
    act = partial(add, wanted=call.body, actor=call.context.actor)
    with within("", instead_of=".group"):  # here it is the request itself
        return (await carry_out(call, act, _see, partial(Reply, status=201))).reply


def _see(work: Work, results: Sequence[GroupId]) -> list[GroupForm]:
    return [view.show(work.session, show_group(group)) for group in results]


class GroupQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: Seconds = 0
    """Answer when it is over, or when so many seconds are."""
    seen: str | None = None
    """With `wait`, answer as soon as its tag is another than this."""


async def get_group(call: Call[GroupQuery, None]) -> Reply[GroupForm]:
    """Show a group with its jobs, by id or name. A name that several have is that of the one that is not over, else of
    the newest; of several that are not over each has to be named by its id (409)."""
    return Reply(await _awaited(call.context, call.path["group"], call.query.wait, call.query.seen))


async def _awaited(context: Context, group: str, seconds: float, seen: str | None) -> GroupForm:
    form = await context.look(partial(view.show, group=group))

    def is_enough(form: GroupForm) -> bool:
        return form.is_over or (seen is not None and form.tag != seen)

    if seconds == 0 or is_enough(form):
        return form
    # Its own events tell of its end; of what happens to its members only theirs do.
    topic: Topic | None = ("group", parse_group(form.id)) if seen is None else None
    look = partial(view.show, group=form.id)
    return await context.hub.until(topic, seconds, lambda: context.look(look), is_enough, breath=_BREATH)


async def close_group(call: Call[Nothing, None]) -> Reply[GroupForm]:
    """Close a group: from now on it ends with its members. To close it again changes nothing."""
    act = partial(close, text=call.path["group"], actor=call.context.actor)
    return Reply(await call.context.perform_and_see(act, _see))


async def cancel_group(call: Call[Nothing, None]) -> Reply[GroupForm]:
    """Cancel all of a group. Answered when its members are gone; a tree that needs SIGKILL takes a while."""
    context = call.context
    group = await context.perform(partial(cancel, text=call.path["group"], actor=context.actor))
    return Reply(await _awaited(context, show_group(group), LONGEST_WAIT, None))


_LISTED = {
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
}
_SHOWN = {**_LISTED, "jobs": ["job-24", "job-25"], "tag": "5f0c1ea2b7d94c36"}
_NEW = {
    **_LISTED,
    "status": "QUEUED",
    "counts": {},
    "total": 0,
    "closed_at": None,
    "jobs": [],
    "tag": "0b9a6c2f81d3e745",
}
_CANCELLED = {
    **_SHOWN,
    "status": "CANCELLED",
    "counts": {"CANCELLED": 2},
    "cancelled_at": "2026-11-16T09:41:07.031200Z",
    "finished_at": "2026-11-16T09:41:08.004172Z",
}

_ONE = "/api/job-groups/{group}"
ENDPOINTS = [
    Endpoint("GET", "/api/job-groups", list_groups, shows={"groups": [_LISTED], "next": None}),
    Endpoint(
        "POST", "/api/job-groups", add_group, statuses=(201,), is_keyed=True,
        sends={"name": "release", "mode": "sequential", "on_failure": "stop"}, shows=_NEW,
    ),
    Endpoint("GET", _ONE, get_group, refuses=(409,), shows=_SHOWN),
    Endpoint("POST", f"{_ONE}/cancel", cancel_group, refuses=(409,), shows=_CANCELLED),
    Endpoint("POST", f"{_ONE}/close", close_group, refuses=(409,), shows=_SHOWN),
]  # fmt: skip
