"""The scheduler itself over HTTP: status, pools, reload, stop."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, read
from rota.duration import parse_duration
from rota.errors import StorageFull, StoreError
from rota.view.log import oversize
from rota.view.status import pools, status
from rota.view.template import lost_routes


class PoolSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int


class StopWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    grace: str | None = None
    kill: bool = False


async def get_scheduler(request: Request) -> Response:
    context = context_of(request)
    about = context.control.about()
    try:
        said = await context.look(partial(status, sight=context.sight()))
        about["trouble"] += await _oversize(context)
        if routes := context.control.config.routes:
            about["trouble"] += await context.look(partial(lost_routes, routes=routes.items()))
        return answer({**said, **about})
    except (StorageFull, StoreError) as error:
        # Whoever asks what is wrong is to be told, also when the counts cannot be.
        about["trouble"] = about["trouble"] or [error.message]
        return answer(about)


async def _oversize(context: Context) -> list[str]:
    """Of what runs: what has ended says so itself."""
    most = context.control.config.log.max_bytes
    if most is None:
        return []
    return await context.look(lambda reader: oversize(context.home.jobs, reader.running_jobs(), most))


async def list_pools(request: Request) -> Response:
    """`each` has the size of every pool of a kind that has no line of its own."""
    context = context_of(request)
    limits = context.sight().limits
    each = {name.removesuffix("/*"): size for name, size in limits.sizes.items() if name.endswith("/*")}
    return answer({"pools": await context.look(partial(pools, limits=limits)), "each": each})


async def set_pool(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, PoolSize)
    await asyncio.to_thread(context.control.set_pool, request.path_params["name"], wanted.size)
    return await list_pools(request)


async def reload(request: Request) -> Response:
    await asyncio.to_thread(context_of(request).control.reload)
    return answer({})


async def stop(request: Request) -> Response:
    wanted = await read(request, StopWanted) if await request.body() else StopWanted()
    grace = None if wanted.grace is None else parse_duration(wanted.grace)
    context_of(request).control.stop(grace, kills=wanted.kill)
    return answer({}, 202)


ROUTES = [
    Route("/api/scheduler", get_scheduler, methods=["GET"]),
    Route("/api/scheduler/reload", reload, methods=["POST"]),
    Route("/api/scheduler/stop", stop, methods=["POST"]),
    Route("/api/pools", list_pools, methods=["GET"]),
    Route("/api/pools/{name:path}", set_pool, methods=["PUT"]),
]
