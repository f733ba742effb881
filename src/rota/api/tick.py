"""A tick by hand over HTTP: look at everything that waiting jobs hang on outside, then take a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer
from rota.engine.outside import look_at, observe, watched
from rota.engine.work import Work
from rota.errors import Unavailable
from rota.ids import show_job

_PATIENCE = 20.0
"""Seconds for the look outside."""


async def tick(request: Request) -> Response:
    context = context_of(request)
    context.control.look_at_config()
    facts = await context.look(partial(watched, places=context.control.settings.places))
    try:
        sighting = await asyncio.wait_for(asyncio.to_thread(look_at, facts, context.probe, context.known), _PATIENCE)
    except TimeoutError:
        raise Unavailable("the file system does not answer; what hangs on it is tried again by itself") from None
    await context.control.look_at_hold_file(wakes=False)  # the turn that follows is this one
    return answer(await context.perform_and_see(partial(observe, sighting=sighting), _seen))


def _seen(work: Work, asked: Sequence[None]) -> list[dict[str, Any]]:
    started = [] if work.plan is None else [show_job(claim.job) for claim in work.plan.claims]
    said = {
        "dispatched": started,
        "would_dispatch": [],
        "skipped": sum(ready for _, ready in work.session.lanes()),
        "reason": "none" if work.plan is None else work.plan.bound_by,
    }
    return [said] * len(asked)


ROUTES = [Route("/api/scheduler/tick", tick, methods=["POST"])]
