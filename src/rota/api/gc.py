"""Collection over HTTP."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, read
from rota.command.gc import collect
from rota.view.gc import last_gc, progress, report


class GcWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    days: int | None = None
    """None: as configured."""
    dry_run: bool = False


async def post_gc(request: Request) -> Response:
    """Answers when it is done."""
    context = context_of(request)
    wanted = await read(request, GcWanted) if await request.body() else GcWanted()
    days = context.control.config.gc.days if wanted.days is None else wanted.days
    work = partial(collect, context.control.collector, days, is_dry=wanted.dry_run, actor=context.actor)
    return answer(report(await asyncio.to_thread(work)))


async def get_gc(request: Request) -> Response:
    context = context_of(request)
    under_way = progress(context.control.collector.under_way)
    return answer({"under_way": under_way, "last": await context.look(last_gc)})


ROUTES = [
    Route("/api/scheduler/gc", post_gc, methods=["POST"]),
    Route("/api/scheduler/gc", get_gc, methods=["GET"]),
]
