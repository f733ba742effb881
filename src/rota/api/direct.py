"""`POST /api/direct`: one request that waits for its turn, runs, and has the result as its answer (DEC-004)."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.presence import Hold
from rota.api.problem import answer, problem, read
from rota.api.slot import NOBODY, SlotAsked, reserve, until_ended, while_there
from rota.errors import InvalidInput, Unavailable, WaitOver
from rota.view.log import STREAMS, path_in, pieces, size_of
from rota.view.slot import SlotForm

MOST = 64 * 1024
"""Bytes of each stream in an answer: its end, which says what came of it."""
RETRY_AFTER = 10
"""Seconds after which it may be worth another try."""


async def direct(request: Request) -> Response:
    context = context_of(request)
    asked = await read(request, SlotAsked)
    if asked.command is None:
        raise InvalidInput("a direct execution needs a command; to do the work yourself reserve with POST /api/slots")
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


ROUTES = [Route("/api/direct", direct, methods=["POST"])]
