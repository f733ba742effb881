"""The graph over HTTP: nodes and edges, or the text; with `wait`, as soon as it is not the one that was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import blake2b

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import number
from rota.core.artifact import Outside
from rota.core.fact import Fact, Seen
from rota.errors import InvalidInput
from rota.ids import parse_job
from rota.store.session import Reader
from rota.view.graph import Adjacency, Picture, Wanted, adjacency, picture
from rota.view.job import Sight
from rota.wire import encode

_VIEWS: Mapping[str, Callable[[Reader, Wanted, Sight], Picture | Adjacency]] = {"dag": picture, "json": adjacency}
_DEEPEST = 1000
_LONGEST_WAIT = 60.0
_BREATH = 0.25
"""Seconds between two looks for somebody who watches, however much happens."""
_LOOK_OUTSIDE = 2.0


async def get_graph(request: Request) -> Response:
    context, wanted, form = context_of(request), _wanted(request), request.query_params.get("format", "json")
    if form not in _VIEWS:
        raise InvalidInput(f"no such format: {form!r}; the formats are {', '.join(_VIEWS)}")
    seconds = number(request, "wait", 0, least=0, most=_LONGEST_WAIT)
    seen = request.headers.get("if-none-match")
    due = 0.0

    async def look() -> bytes:
        nonlocal due
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + _BREATH
        return await _body(context, wanted, form)

    body = await context.hub.until(None, seconds, look, lambda body: _tag(body) != seen)
    headers = {"ETag": _tag(body)}
    if headers["ETag"] == seen:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _wanted(request: Request) -> Wanted:
    everything, focus = request.query_params.get("all", "0"), request.query_params.get("job")
    if everything not in ("0", "1"):
        raise InvalidInput(f"all is 0 or 1, not {everything!r}")
    return Wanted(
        with_ended=everything == "1",
        focus=None if focus is None else parse_job(focus),
        max_depth=int(number(request, "max_depth", Wanted().max_depth, least=0, most=_DEEPEST)),
    )


def _tag(body: bytes) -> str:
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


async def _body(context: Context, wanted: Wanted, form: str) -> bytes:
    sight = context.sight()
    view = await context.look(lambda reader: _VIEWS[form](reader, wanted, sight))
    outside = msgspec.structs.replace(sight.outside, seen=dict(sight.outside.seen))  # the engine goes on with its own
    return await asyncio.to_thread(_encoded, view, await look_further(context, view, outside))


async def look_further(context: Context, view: Picture | Adjacency, outside: Outside) -> Outside:
    """With all that the view is going to ask."""
    seen = await _look_outside(context, view.leaves.unseen(outside))
    return msgspec.structs.replace(outside, seen={**outside.seen, **seen})


def _encoded(view: Picture | Adjacency, outside: Outside) -> bytes:
    return encode(view.said(outside))


async def _look_outside(context: Context, facts: Collection[Fact]) -> dict[Fact, Seen]:
    """A file system that does not answer leaves it unknown, and holds up nobody."""
    if not facts:
        return {}
    try:
        return await context.asides.ask(["graph"], _LOOK_OUTSIDE, partial(context.probe.look, facts))
    except TimeoutError:
        return {}


ROUTES = [Route("/api/graph", get_graph, methods=["GET"])]
