"""A tick by hand over HTTP: look at all that waiting jobs hang on outside, then take a turn, or only rehearse one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, read
from rota.command.tick import tick
from rota.engine.outside import look_at, watched
from rota.engine.work import Work
from rota.errors import Unavailable
from rota.view.tick import report

_PATIENCE = 20.0
"""Seconds for the look outside."""


class TickWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None


async def post_tick(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, TickWanted) if await request.body() else TickWanted()
    context.control.look_at_config()
    facts = await context.look(partial(watched, places=context.control.settings.places))
    try:
        sighting = await context.asides.ask(["tick"], _PATIENCE, partial(look_at, facts, context.probe, context.known))
    except TimeoutError:
        raise Unavailable("the file system does not answer; what hangs on it is tried again by itself") from None
    await context.control.look_at_hold_file(wakes=False)  # the turn that follows is this one
    act = partial(tick, sighting=sighting, batch=wanted.batch)
    ask = context.rehearse if wanted.dry_run else context.perform_and_see
    return answer(await ask(act, _seen))


def _seen(work: Work, asked: Sequence[None]) -> list[dict[str, Any]]:
    return [report(work)] * len(asked)


ROUTES = [Route("/api/scheduler/tick", post_tick, methods=["POST"])]
