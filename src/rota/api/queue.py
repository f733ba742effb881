"""The queue over HTTP: what waits, and other places for it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, number, read
from rota.command.move import Move, move, reorder
from rota.core.queue import Rank
from rota.errors import InvalidInput
from rota.ids import parse_job, show_job
from rota.view import queue as view

_MOST_LISTED = 1000
_NUMBERS = 4


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    order: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10_000)]


async def move_job(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    wanted = await read(request, Move)
    told = await context.perform(partial(move, job=job, wanted=wanted, actor=context.actor))
    placed = await context.look(partial(view.placed, job=job, sight=context.sight()))
    return answer({**placed, "moved": told.has_moved})


async def reorder_queue(request: Request) -> Response:
    context, wanted = context_of(request), await read(request, Order)
    told = await context.perform(partial(reorder, order=wanted.order, actor=context.actor))
    return answer({"order": [show_job(job) for job in told.jobs], "moved": told.has_moved})


def _cursor(request: Request) -> Rank:
    """The rank where the page before ended: that job may have started or moved since."""
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return view.FRONT
    numbers = cursor.split(".")
    if len(numbers) != _NUMBERS or not all(each.removeprefix("-").isdecimal() and len(each) < 19 for each in numbers):
        raise InvalidInput(f"not a cursor: {cursor!r}; use the `next` of the page before")
    return Rank._make(int(each) for each in numbers)


async def list_queue(request: Request) -> Response:
    context, behind = context_of(request), _cursor(request)
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    page = await context.look(partial(view.queue, sight=context.sight(), behind=behind, limit=limit))
    mark = None if page.last is None else ".".join(str(each) for each in page.last)
    return answer({"jobs": page.jobs, "next": mark})


ROUTES = [
    Route("/api/jobs/{job}/move", move_job, methods=["POST"]),
    Route("/api/queue", list_queue, methods=["GET"]),
    Route("/api/queue/reorder", reorder_queue, methods=["POST"]),
]
