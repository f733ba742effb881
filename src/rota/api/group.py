"""Groups over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, Topic, context_of
from rota.api.problem import answer, number, read
from rota.command.group import add, cancel, close
from rota.command.submission import GroupWanted
from rota.ids import parse_group, show_group
from rota.view import group as view
from rota.wire.group import GroupForm

_LONGEST_WAIT = 60.0
_BREATH = 0.1
"""Seconds between two looks at a group, however much happens to its members."""
_MOST_LISTED = 1000


async def list_groups(request: Request) -> Response:
    """The newest first; with `open`, only those that are not over."""
    context = context_of(request)
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    cursor = request.query_params.get("cursor")
    below = None if cursor is None else parse_group(cursor)
    with_ended = request.query_params.get("open") not in ("1", "true")
    look = partial(view.groups, limit=limit, below=below, with_ended=with_ended)
    groups, following = await context.look(look)
    return answer({"groups": groups, "next": following})


async def add_group(request: Request) -> Response:
    context, wanted = context_of(request), await read(request, GroupWanted)
    group = await context.perform(partial(add, wanted=wanted, actor=context.actor))
    return answer(await context.look(partial(view.show, group=show_group(group))), 201)


async def get_group(request: Request) -> Response:
    """With `wait`, when it is over or, with `seen`, when its tag is another."""
    context, group = context_of(request), request.path_params["group"]
    seconds = number(request, "wait", 0, least=0, most=_LONGEST_WAIT)
    return answer(await _awaited(context, group, seconds, request.query_params.get("seen")))


async def _awaited(context: Context, group: str, seconds: float, seen: str | None) -> GroupForm:
    form = await context.look(partial(view.show, group=group))

    def is_enough(form: GroupForm) -> bool:
        return form.is_over or (seen is not None and form.tag != seen)

    if seconds == 0 or is_enough(form):
        return form
    # Its own events tell of its end; of what happens to its members only theirs do.
    topic: Topic | None = ("group", parse_group(form.id)) if seen is None else None
    look = partial(view.show, group=form.id)
    return await context.hub.until(topic, seconds, lambda: context.look(look), is_enough, breath=_BREATH)


async def close_group(request: Request) -> Response:
    context = context_of(request)
    group = await context.perform(partial(close, text=request.path_params["group"], actor=context.actor))
    return answer(await context.look(partial(view.show, group=show_group(group))))


async def cancel_group(request: Request) -> Response:
    """Answers when its members are gone; a tree that needs SIGKILL takes a while."""
    context = context_of(request)
    group = await context.perform(partial(cancel, text=request.path_params["group"], actor=context.actor))
    return answer(await _awaited(context, show_group(group), _LONGEST_WAIT, None))


ROUTES = [
    Route("/api/job-groups", list_groups, methods=["GET"]),
    Route("/api/job-groups", add_group, methods=["POST"]),
    Route("/api/job-groups/{group}", get_group, methods=["GET"]),
    Route("/api/job-groups/{group}/cancel", cancel_group, methods=["POST"]),
    Route("/api/job-groups/{group}/close", close_group, methods=["POST"]),
]
