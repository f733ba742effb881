"""Pause, resume and clear over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, read
from rota.command import control


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scope: str | None = None
    """`global`, or a pool's name; none is everything."""


async def _scope(request: Request) -> str:
    wanted = await read(request, Wanted) if await request.body() else Wanted()
    return control.check_scope(wanted.scope)


async def pause(request: Request) -> Response:
    context = context_of(request)
    act = partial(control.pause, scope=await _scope(request), actor=context.actor)
    return answer(await context.perform(act))


async def resume(request: Request) -> Response:
    context = context_of(request)
    act = partial(control.resume, scope=await _scope(request), actor=context.actor)
    return answer(await context.perform(act))


async def clear(request: Request) -> Response:
    """Answers when it is done. Who does not wait for it stops nothing."""
    context, scope = context_of(request), await _scope(request)
    clearing = await context.perform(partial(control.clear, scope=scope, actor=context.actor))
    cleared = await asyncio.shield(asyncio.wrap_future(clearing.ended))
    return answer({"scope": scope, "cleared": cleared})


ROUTES = [
    Route("/api/scheduler/pause", pause, methods=["POST"]),
    Route("/api/scheduler/resume", resume, methods=["POST"]),
    Route("/api/scheduler/clear", clear, methods=["POST"]),
]
