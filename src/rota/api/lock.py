"""Locks over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer, number
from rota.view import lock as view

_MOST_LISTED = 1000


async def list_locks(request: Request) -> Response:
    """With `key` that one alone; the cursor is a key too."""
    context, key = context_of(request), request.query_params.get("key")
    if key is not None:
        return answer({"locks": [await context.look(partial(view.lock, key=key))], "next": None})
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    after = request.query_params.get("cursor", "")
    locks, following = await context.look(partial(view.locks, after=after, limit=limit))
    return answer({"locks": locks, "next": following})


ROUTES = [Route("/api/locks", list_locks, methods=["GET"])]
