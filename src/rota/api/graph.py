"""The graph over HTTP: nodes and edges, or the text; with `wait`, as soon as it is not the one that was seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Reply
from rota.api.page import Seconds, parsed
from rota.core.artifact import Outside
from rota.core.fact import Fact, Seen
from rota.errors import within
from rota.ids import parse_job
from rota.store.session import Reader
from rota.view.graph import Adjacency, Picture, Wanted, adjacency, picture
from rota.view.job import Sight
from rota.wire import encode
from rota.wire.graph import GraphForm, PictureForm
from rota.wire.text import JobText

_VIEWS: Mapping[str, Callable[[Reader, Wanted, Sight], Picture | Adjacency]] = {"dag": picture, "json": adjacency}
_BREATH = 0.25
"""Seconds between two looks for somebody who watches, however much happens."""
_LOOK_OUTSIDE = 2.0


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["json", "dag"] = "json"
    """`json` is nodes and edges, `dag` the text."""
    all: bool = False
    """Also what has ended; else what is active or blocked."""
    job: JobText | None = None
    """Only this job, what it hangs on and what hangs on it."""
    max_depth: Annotated[int, Meta(ge=0, le=1000)] = Wanted().max_depth
    """How many steps away."""
    wait: Seconds = 0
    """With `If-None-Match`, answer as soon as the graph is another, or with 304 when so many seconds are over."""


async def get_graph(call: Call[GraphQuery, None]) -> Reply[GraphForm] | Reply[PictureForm] | Response:
    """Show who waits for what. The answer has an `ETag`; asked with it as `If-None-Match`, a graph that has not changed
    is answered with 304."""
    context, query, seen = call.context, call.query, call.request.headers.get("if-none-match")
    wanted = Wanted(with_ended=query.all, focus=parsed("job", query.job, parse_job), max_depth=query.max_depth)
    due = 0.0

    async def look() -> bytes:
        nonlocal due
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + _BREATH
        return await _body(context, wanted, query.format)

    body = await context.hub.until(None, query.wait, look, lambda body: _tag(body) != seen)
    headers = {"ETag": _tag(body)}
    if headers["ETag"] == seen:
        return Response(status_code=304, headers=headers)
    return Reply[Any](msgspec.Raw(body), headers=headers)  # encoded already, away from the event loop


def _tag(body: bytes) -> str:
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


async def _body(context: Context, wanted: Wanted, form: str) -> bytes:
    sight = context.sight()
    with within(".job"):
        view = await context.look(lambda reader: _VIEWS[form](reader, wanted, sight))
    outside = msgspec.structs.replace(sight.outside, seen=dict(sight.outside.seen))  # the engine goes on with its own
    return await asyncio.to_thread(_encoded, view, await look_further(context, view, outside))


async def look_further(context: Context, view: Picture | Adjacency, outside: Outside) -> Outside:
    """With all that the view is going to ask."""
    seen = await _look_outside(context, view.leaves.unseen(outside))
    return msgspec.structs.replace(outside, seen={**outside.seen, **seen})


def said_of(view: Picture | Adjacency, outside: Outside) -> GraphForm | PictureForm:
    return view.said(outside)


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


_GRAPH = {
    "nodes": [
        {"id": "job-21", "status": "RUNNING", "command": "./plan.sh", "wait": None},
        {"id": "job-24", "status": "WAITING_ON_DEPS", "command": "./build.sh", "wait": "waiting on job-21"},
    ],
    "edges": [{"from": "job-24", "to": "job-21", "after": {"policy": "success"}}],
}

ENDPOINTS = [
    Endpoint(
        "GET", "/api/graph", get_graph, statuses=(200, 304), or_gives={200: PictureForm, 304: None}, refuses=(404,),
        shows=_GRAPH,
        tells={"ETag": "Another one as soon as something of the graph has changed."},
    ),
]  # fmt: skip
