"""Breakers over HTTP."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.page import PageSize
from rota.command.breaker import reset
from rota.view.breaker import breakers
from rota.wire.breaker import BreakerResetForm, BreakersForm, StartsResetForm


class BreakersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: str | None = None
    """The `next` of the page before."""


async def list_breakers(call: Call[BreakersQuery, None]) -> Reply[BreakersForm]:
    """List the breakers. By key: those that are not closed, and closed ones whose failures count."""
    context, after, limit = call.context, call.query.cursor or "", call.query.limit
    found = [form for form in await context.look(partial(breakers, sight=context.sight())) if form.key > after]
    return Reply(BreakersForm(breakers=found[:limit], next=found[limit - 1].key if len(found) > limit else None))


async def reset_breaker(call: Call[Nothing, None]) -> Reply[BreakerResetForm] | Reply[StartsResetForm]:
    """Let a type or target begin anew, or a job that could not be started. The key is the breaker's, or the job's
    id."""
    context = call.context
    return Reply[Any](await context.perform(partial(reset, name=call.path["key"], actor=context.actor)))


_OPEN = {
    "key": "type/story",
    "state": "open",
    "failures": 20,
    "opened_at": "2026-11-16T08:20:00Z",
    "until": "2026-11-16T08:30:00Z",
    "probe": None,
}

ENDPOINTS = [
    Endpoint("GET", "/api/breakers", list_breakers, shows={"breakers": [_OPEN], "next": None}),
    Endpoint(
        "POST", "/api/breakers/{key:path}/reset", reset_breaker, or_gives={200: StartsResetForm}, refuses=(409,),
        shows={"key": "type/story", "state": "closed", "failures_forgotten": 20},
    ),
]  # fmt: skip
