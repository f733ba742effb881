"""Pause, resume and clear over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.command import control
from rota.names import SCOPE_SHOWN
from rota.wire.control import ClearForm, PauseForm, ResumeForm


class ScopeWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is meant."""

    scope: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": SCOPE_SHOWN})] | None = None
    """`global`, or a pool's name such as `flow/review`; null or left out, everything."""


def _scope(wanted: ScopeWanted | None) -> str:
    return control.check_scope(None if wanted is None else wanted.scope)


async def pause(call: Call[Nothing, ScopeWanted | None]) -> Reply[PauseForm]:
    """Pause everything, or what stands under a scope. What runs goes on, and nothing new starts."""
    act = partial(control.pause, scope=_scope(call.body), actor=call.context.actor)
    return Reply(await call.context.perform(act))


async def resume(call: Call[Nothing, ScopeWanted | None]) -> Reply[ResumeForm]:
    """Resume what was paused under a scope. Other pauses go on, and so do breakers."""
    act = partial(control.resume, scope=_scope(call.body), actor=call.context.actor)
    return Reply(await call.context.perform(act))


async def clear(call: Call[Nothing, ScopeWanted | None]) -> Reply[ClearForm]:
    """Cancel all that waits under a scope. Answered when it is done; who does not wait for that stops nothing."""
    context, scope = call.context, _scope(call.body)
    clearing = await context.perform(partial(control.clear, scope=scope, actor=context.actor))
    cleared = await asyncio.shield(asyncio.wrap_future(clearing.ended))
    return Reply(ClearForm(scope=scope, cleared=cleared))


_SENT = {"scope": "flow/review"}
_PAUSED = {"result": True, "scope": "flow/review", "paused_by": "root", "paused_at": "2026-11-16T08:20:00Z"}

ENDPOINTS = [
    Endpoint("POST", "/api/scheduler/pause", pause, sends=_SENT, shows={**_PAUSED, "warning": None}),
    Endpoint("POST", "/api/scheduler/resume", resume, sends=_SENT, shows=_PAUSED),
    Endpoint("POST", "/api/scheduler/clear", clear, sends=_SENT, shows={"scope": "flow/review", "cleared": 12}),
]
