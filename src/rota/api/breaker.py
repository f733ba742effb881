"""Breakers over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer
from rota.command.breaker import reset
from rota.view.breaker import breakers


async def list_breakers(request: Request) -> Response:
    context = context_of(request)
    return answer({"breakers": await context.look(partial(breakers, sight=context.sight()))})


async def reset_breaker(request: Request) -> Response:
    """By the breaker's key, or by the id of a job that could not be started."""
    context = context_of(request)
    return answer(await context.perform(partial(reset, name=request.path_params["key"], actor=context.actor)))


ROUTES = [
    Route("/api/breakers", list_breakers, methods=["GET"]),
    Route("/api/breakers/{key:path}/reset", reset_breaker, methods=["POST"]),
]
