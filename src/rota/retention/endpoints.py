"""Retention over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.retention.commands import DAYS_SCHEMA, collect_garbage, last_retention, render_progress, render_result
from rota.retention.schemas import RetentionResultView, RetentionStatus


class RetentionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a retention run."""

    days: Annotated[int, msgspec.Meta(extra_json_schema=DAYS_SCHEMA)] | None = None
    """Remove records that ended at least this many days ago. 0 removes all ended records. `[gc] days` by default."""
    dry_run: bool = False
    """Return what would be removed, without removing it."""


async def run_gc(call: Invocation[NoQuery, RetentionRequest | None]) -> JsonReply[RetentionResultView]:
    """Remove records that ended long ago, unless a record that is kept refers to them. The response is sent when the
    run is done. A repeated request has nothing left to remove."""
    context, request = call.context, call.body or RetentionRequest()
    days = context.control.config.gc.days if request.days is None else request.days
    run = partial(collect_garbage, context.control.collector, days, is_dry_run=request.dry_run, actor=context.actor)
    return JsonReply(render_result(await asyncio.to_thread(run)))


async def get_gc(call: Invocation[NoQuery, None]) -> JsonReply[RetentionStatus]:
    """Show the progress of the current retention run, and the result of the last one."""
    in_progress = render_progress(call.context.control.collector.in_progress)
    return JsonReply(RetentionStatus(in_progress=in_progress, last=await call.context.read(last_retention)))


_REMOVED = {
    "jobs": 12,
    "runs": 13,
    "events": 96,
    "idempotency_keys": 12,
    "environments": 1,
    "lanes": 2,
    "reservations": 0,
    "groups": 1,
    "templates": 0,
    "deliveries": 4,
    "fires": 7,
    "bytes": 48_231,
}
_EXAMPLE = {
    "dry_run": False,
    "older_than": "2026-11-09T08:00:00Z",
    "removed": _REMOVED,
    "abandoned": 0,
    "kept_counts": {"referenced": 1, "worktree": 1, "files": 0},
    "jobs": ["job-2", "job-3"],
    "kept": [{"job": "job-7", "reason": "worktree", "detail": "/srv/web/.rota/worktrees/7 is still there"}],
    "remaining": [],
}
_LAST = {"at": "2026-11-16T08:00:00Z", **_REMOVED, "kept": 2, "abandoned": 0}

ENDPOINTS = [
    Endpoint(
        "POST", "/api/scheduler/gc", run_gc, request_example={"days": 7, "dry_run": False}, response_example=_EXAMPLE
    ),
    Endpoint("GET", "/api/scheduler/gc", get_gc, response_example={"in_progress": None, "last": _LAST}),
]
