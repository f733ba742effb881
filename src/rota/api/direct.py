"""`POST /api/direct`: one request that waits for its turn, runs, and has the result as its answer (DEC-004)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, request_response
from starlette.types import Receive, Scope, Send

from rota.api.context import context_of
from rota.api.presence import Hold
from rota.api.problem import answer, problem, read
from rota.api.slot import NOBODY, SlotAsked, reserve, until_ended, while_there
from rota.config.section import is_route
from rota.errors import Conflict, InvalidInput, NotFound, Unavailable, WaitOver
from rota.view.log import STREAMS, path_in, pieces, size_of
from rota.wire.slot import SlotForm

MOST = 64 * 1024
"""Bytes of each stream in an answer: its end, which says what came of it."""
RETRY_AFTER = 10
"""Seconds after which it may be worth another try."""


async def direct(request: Request) -> Response:
    asked = await read(request, SlotAsked)
    if asked.command is None and asked.template is None:
        raise InvalidInput(
            "a direct execution needs a command or a template; to do the work yourself reserve with POST /api/slots"
        )
    return await _direct(request, asked)


async def by_route(request: Request) -> Response:
    """What `[direct.routes]` says: the body has the params of the template that the path stands for."""
    path = request.url.path
    name = context_of(request).control.config.routes[path]
    params = await read(request, dict[str, Any]) if await request.body() else {}
    try:
        return await _direct(request, SlotAsked(template=name, params=params))
    except (NotFound, Conflict) as refused:
        raise type(refused)(f"{path} runs the template {name}: {refused.message}") from None


class Routes(BaseRoute):
    """The paths of `[direct.routes]`, as they are at the moment of the request."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not is_route(scope["path"]):
            return Match.NONE, {}
        control = scope["app"].state.context.control
        control.look_at_config()
        if scope["path"] not in control.config.routes:
            return Match.NONE, {}
        return Match.FULL if scope["method"] == "POST" else Match.PARTIAL, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        await request_response(by_route)(scope, receive, send)


async def _direct(request: Request, asked: SlotAsked) -> Response:
    context = context_of(request)
    reserved = await reserve(context, asked, is_attended=True)
    hold = Hold()
    with context.presence.attending(reserved.slot, hold):
        form = await while_there(request, until_ended(context, reserved.slot, math.inf))
        hold.is_over = form is not None and form.finished_at is not None
    if form is None:
        return Response(status_code=NOBODY)
    if form.finished_at is None:
        raise Unavailable(
            f"the scheduler is stopping; {form.id} goes on when it is back, if you say within 30 s of that that you are"
            f" there: POST /api/slots/{form.id}/renew"
        )
    if form.exit_code == WaitOver.exit_code and form.started_at is None:
        return _wait_over(form)
    return answer(await asyncio.to_thread(_result, form, context.home.slots / str(reserved.slot), reserved.warnings))


def _wait_over(form: SlotForm) -> Response:
    refused = problem(WaitOver.code, WaitOver.http_status, f"{form.id}: {form.reason}; nothing of it ran")
    refused.headers["Retry-After"] = str(RETRY_AFTER)
    return refused


def _result(form: SlotForm, directory: Path, warnings: list[str]) -> dict[str, object]:
    """What is not UTF-8 is replaced here; the files have it as it was written."""
    sizes = {name: size_of(path_in(directory, name)) for name in STREAMS}
    ends = {
        name: b"".join(pieces(path_in(directory, name), max(0, size - MOST), MOST)).decode("utf-8", "replace")
        for name, size in sizes.items()
    }
    return {
        "slot": form,
        **ends,
        "truncated": {name: size > MOST for name, size in sizes.items()},
        "warning": "; ".join(warnings) or None,
    }


ROUTES = [Route("/api/direct", direct, methods=["POST"]), Routes()]
