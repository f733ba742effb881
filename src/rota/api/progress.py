"""Following a group over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, number
from rota.view.progress import ProgressForm, progress

_LONGEST_WAIT = 60.0
_BREATH = 0.1
"""Seconds between two looks, however much happens."""


async def get_progress(request: Request) -> Response:
    """With `wait`, as soon as something of it has ended or begun since `seen`, or when it is over."""
    context, group = context_of(request), request.path_params["group"]
    seconds = number(request, "wait", 0, least=0, most=_LONGEST_WAIT)
    seen = request.query_params.get("seen")
    look = partial(progress, group=group, seen=seen)

    def is_enough(form: ProgressForm) -> bool:
        return form.is_over or form.seen != seen

    form = await context.hub.until(None, seconds, lambda: context.look(look), is_enough, breath=_BREATH)
    return answer(form)


ROUTES = [Route("/api/job-groups/{group}/progress", get_progress, methods=["GET"])]
