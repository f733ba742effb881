"""Breakers over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.page import PageSize
from rota.command.breaker import reset
from rota.view.breaker import read_breakers
from rota.wire.breaker import BreakerPage, BreakerResetResult, StartFailureResetResult


class BreakersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: str | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_breakers(call: Invocation[BreakersQuery, None]) -> JsonReply[BreakerPage]:
    """List breakers, by key. The list has all breakers that are not closed, and closed breakers with counted
    failures."""
    context, after, limit = call.context, call.query.cursor or "", call.query.limit
    breakers = await context.read(partial(read_breakers, context=context.view_context()))
    rest = [breaker for breaker in breakers if breaker.key > after]
    return JsonReply(BreakerPage(breakers=rest[:limit], next=rest[limit - 1].key if len(rest) > limit else None))


async def reset_breaker(
    call: Invocation[NoQuery, None],
) -> JsonReply[BreakerResetResult] | JsonReply[StartFailureResetResult]:
    """Reset a breaker, or the start failures of a job. The key is that of the breaker, or the id of the job."""
    context = call.context
    return JsonReply[Any](await context.run_in_turn(partial(reset, name=call.path_values["key"], actor=context.actor)))


_EXAMPLE = {
    "key": "type/story",
    "state": "open",
    "failures": 20,
    "opened_at": "2026-11-16T08:20:00Z",
    "probe_at": "2026-11-16T08:30:00Z",
    "probe_job": None,
}

ENDPOINTS = [
    Endpoint("GET", "/api/breakers", list_breakers, response_example={"breakers": [_EXAMPLE], "next": None}),
    Endpoint(
        "POST",
        "/api/breakers/{key:path}/reset",
        reset_breaker,
        other_response_types={200: StartFailureResetResult},
        errors=(409,),
        response_example={"key": "type/story", "state": "closed", "failures_cleared": 20},
    ),
]
