"""Graph over HTTP: nodes and edges, or text. With `wait`, the response is sent when the graph has changed."""

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

from rota.db.session import Reader
from rota.errors import error_path
from rota.graph.queries import DrawingDraft, GraphDraft, GraphOptions, draft_drawing, draft_graph
from rota.graph.schemas import GraphDrawing, GraphView
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, JsonReply, WaitSeconds, parse_field
from rota.ids import parse_job_id
from rota.jobs.queries import ViewContext
from rota.kernel.artifacts import Observations
from rota.kernel.facts import Fact, FactValue
from rota.schema_types import JobIdText, encode

_VIEWS: Mapping[str, Callable[[Reader, GraphOptions, ViewContext], DrawingDraft | GraphDraft]] = {
    "dag": draft_drawing,
    "json": draft_graph,
}
_MIN_READ_INTERVAL = 0.25
"""Minimum seconds between two reads for a request that waits."""
_PROBE_TIMEOUT = 2.0


class GraphQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["json", "dag"] = "json"
    """Format: `json` for nodes and edges, `dag` for text."""
    all: bool = False
    """Include ended jobs. By default, only active and blocked jobs are included."""
    job: JobIdText | None = None
    """Only this job, its dependencies and its dependents."""
    max_depth: Annotated[int, Meta(ge=0, le=1000)] = GraphOptions().max_depth
    """Maximum number of steps from `job`."""
    wait: WaitSeconds = 0
    """With `If-None-Match`, maximum seconds to wait until the graph has changed; then the response is 304."""


async def get_graph(call: Invocation[GraphQuery, None]) -> JsonReply[GraphView] | JsonReply[GraphDrawing] | Response:
    """Show which jobs wait for which. The response has an `ETag`. A request that sends it as `If-None-Match` gets 304
    if the graph has not changed."""
    context, query, known_etag = call.context, call.query, call.request.headers.get("if-none-match")
    options = GraphOptions(
        with_ended=query.all, focus=parse_field("job", query.job, parse_job_id), max_depth=query.max_depth
    )
    due = 0.0

    async def read_graph() -> bytes:
        nonlocal due
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + _MIN_READ_INTERVAL
        return await _render_body(context, options, query.format)

    body = await context.hub.wait_until(None, query.wait, read_graph, lambda body: _make_etag(body) != known_etag)
    headers = {"ETag": _make_etag(body)}
    if headers["ETag"] == known_etag:
        return Response(status_code=304, headers=headers)
    return JsonReply[Any](msgspec.Raw(body), headers=headers)


def _make_etag(body: bytes) -> str:
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


async def _render_body(context: Context, options: GraphOptions, view_format: str) -> bytes:
    view_context = context.view_context()
    with error_path(".job"):
        draft = await context.read(lambda reader: _VIEWS[view_format](reader, options, view_context))
    observed = dict(view_context.observations.observed)  # a copy: the engine changes its own
    observations = msgspec.structs.replace(view_context.observations, observed=observed)
    return await asyncio.to_thread(_encode_graph, draft, await probe_leaves(context, draft, observations))


async def probe_leaves(context: Context, draft: DrawingDraft | GraphDraft, observations: Observations) -> Observations:
    """Return the observations with all facts that the draft needs."""
    observed = await _probe_facts(context, draft.unproduced.facts_to_probe(observations))
    return msgspec.structs.replace(observations, observed={**observations.observed, **observed})


def render_graph(draft: DrawingDraft | GraphDraft, observations: Observations) -> GraphView | GraphDrawing:
    return draft.render(observations)


def _encode_graph(draft: DrawingDraft | GraphDraft, observations: Observations) -> bytes:
    return encode(draft.render(observations))


async def _probe_facts(context: Context, facts: Collection[Fact]) -> dict[Fact, FactValue]:
    """Probe facts. If the file system does not answer, they stay unknown, and the request continues."""
    if not facts:
        return {}
    try:
        return await context.blocking_calls.run(["graph"], _PROBE_TIMEOUT, partial(context.probe.observe, facts))
    except TimeoutError:
        return {}


_EXAMPLE = {
    "nodes": [
        {"id": "job-21", "status": "RUNNING", "command": "./plan.sh", "wait": None},
        {"id": "job-24", "status": "WAITING_ON_DEPS", "command": "./build.sh", "wait": "waiting on job-21"},
    ],
    "edges": [{"from": "job-24", "to": "job-21", "after": {"policy": "success"}}],
}

ENDPOINTS = [
    Endpoint(
        "GET",
        "/api/graph",
        get_graph,
        statuses=(200, 304),
        other_response_types={200: GraphDrawing, 304: None},
        errors=(404,),
        response_example=_EXAMPLE,
        response_headers={"ETag": "Version of the graph: it changes whenever the graph changes."},
    )
]
