"""Pause, resume and clear over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.page import parse_field
from rota.command import control
from rota.ids import parse_job_id
from rota.naming import SCOPE_PATTERN
from rota.view.cancel import plan_clear
from rota.wire.cancel import ClearPlan
from rota.wire.control import ClearResult, PauseResult, ResumeResult
from rota.wire.schema_types import JobIdText


class ScopeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Scope of an operation."""

    scope: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": SCOPE_PATTERN})] | None = None
    """`global`, or the name of a pool such as `flow/review`; everything by default."""


def _parse_scope(request: ScopeRequest | None) -> str:
    return control.check_scope(None if request is None else request.scope)


async def pause(call: Invocation[NoQuery, ScopeRequest | None]) -> JsonReply[PauseResult]:
    """Pause everything, or everything in a scope. Running jobs continue; no new jobs start."""
    operation = partial(control.pause, scope=_parse_scope(call.body), actor=call.context.actor)
    return JsonReply(await call.context.run_in_turn(operation))


async def resume(call: Invocation[NoQuery, ScopeRequest | None]) -> JsonReply[ResumeResult]:
    """Resume a paused scope. Other pauses and breakers stay in effect."""
    operation = partial(control.resume, scope=_parse_scope(call.body), actor=call.context.actor)
    return JsonReply(await call.context.run_in_turn(operation))


class ClearRequest(ScopeRequest, frozen=True, forbid_unknown_fields=True):
    """Jobs to cancel."""

    up_to: JobIdText | None = None
    """Id of a job: jobs that were submitted after it are not cancelled. A dry run returns the `up_to` of its jobs."""
    dry_run: bool = False
    """Return the jobs that would be cancelled, without cancelling them."""
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """With `dry_run`, maximum number of jobs to return; null returns all."""


async def clear(call: Invocation[NoQuery, ClearRequest | None]) -> JsonReply[ClearResult | ClearPlan]:
    """Cancel the waiting jobs of a scope. The response is sent when all are cancelled. A client that disconnects does
    not stop the operation."""
    context, scope, request = call.context, _parse_scope(call.body), call.body or ClearRequest()
    up_to = parse_field("up_to", request.up_to, parse_job_id)
    if request.dry_run:
        limits = context.view_context().limits
        await context.read(partial(control.refuse_unknown_scope, pool_sizes=limits, scope=scope))
        return JsonReply(await context.read(partial(plan_clear, scope=scope, limit=request.limit)))
    operation = await context.run_in_turn(partial(control.clear, scope=scope, actor=context.actor, max_job=up_to))
    cleared = await asyncio.shield(asyncio.wrap_future(operation.completion))
    return JsonReply(ClearResult(scope=scope, cleared=cleared))


_REQUEST_EXAMPLE = {"scope": "flow/review"}
_EXAMPLE = {"has_changed": True, "scope": "flow/review", "paused_by": "rota", "paused_at": "2026-11-16T08:20:00Z"}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/scheduler/pause",
        pause,
        request_example=_REQUEST_EXAMPLE,
        response_example={**_EXAMPLE, "warning": None},
    ),
    Endpoint(
        "POST",
        "/api/scheduler/resume",
        resume,
        errors=(404,),
        request_example=_REQUEST_EXAMPLE,
        response_example=_EXAMPLE,
    ),
    Endpoint(
        "POST",
        "/api/scheduler/clear",
        clear,
        errors=(404,),
        request_example=_REQUEST_EXAMPLE,
        response_example={"scope": "flow/review", "cleared": 12},
    ),
]
