"""Collection over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.command.gc import AGE, collect
from rota.view.gc import last_gc, progress, report
from rota.wire.gc import CollectionForm, GcForm


class GcWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to collect."""

    days: Annotated[int, msgspec.Meta(extra_json_schema=AGE)] | None = None
    """What ended longer ago goes; 0 is all that has ended. Null or left out, as `[gc] days` says."""
    dry_run: bool = False
    """Only say what would go."""


async def post_gc(call: Call[Nothing, GcWanted | None]) -> Reply[CollectionForm]:
    """Remove what ended long ago, unless something that stays refers to it. Answered when it is done. Asked again, it
    finds nothing more to remove."""
    context, wanted = call.context, call.body or GcWanted()
    days = context.control.config.gc.days if wanted.days is None else wanted.days
    work = partial(collect, context.control.collector, days, is_dry=wanted.dry_run, actor=context.actor)
    return Reply(report(await asyncio.to_thread(work)))


async def get_gc(call: Call[Nothing, None]) -> Reply[GcForm]:
    """Say how far a collection has come that is under way, and what came of the last."""
    under_way = progress(call.context.control.collector.under_way)
    return Reply(GcForm(under_way=under_way, last=await call.context.look(last_gc)))


_REMOVED = {
    "jobs": 12, "runs": 13, "events": 96, "idempotency_keys": 12, "surroundings": 1, "lanes": 2, "slots": 0,
    "groups": 1, "templates": 0, "deliveries": 4, "fires": 7, "bytes": 48_231,
}  # fmt: skip
_COLLECTED = {
    "dry_run": False,
    "older_than": "2026-11-09T08:00:00Z",
    "removed": _REMOVED,
    "given_up": 0,
    "kept": {"referenced": 1, "worktree": 1, "files": 0},
    "jobs": ["job-2", "job-3"],
    "stays": [{"job": "job-7", "why": "worktree", "detail": "/srv/web/.rota/worktrees/7 is still there"}],
    "left": [],
}
_LAST = {"at": "2026-11-16T08:00:00Z", **_REMOVED, "kept": 2, "given_up": 0}

ENDPOINTS = [
    Endpoint("POST", "/api/scheduler/gc", post_gc, sends={"days": 7, "dry_run": False}, shows=_COLLECTED),
    Endpoint("GET", "/api/scheduler/gc", get_gc, shows={"under_way": None, "last": _LAST}),
]
