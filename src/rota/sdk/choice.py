"""Requests whose answers have more than one form."""

from __future__ import annotations

import msgspec

from rota.client.ask.graph import get_graph
from rota.client.ask.scheduler import get_metrics, get_scheduler, reset_breaker
from rota.sdk.verb import Line
from rota.wire.breaker import BreakerResetForm, StartsResetForm
from rota.wire.graph import GraphForm, PictureForm
from rota.wire.scheduler import AboutForm, SchedulerForm


async def status(line: Line) -> SchedulerForm | AboutForm:
    """The scheduler at a glance: its mode, depth and pools, and why nothing starts if nothing does. `AboutForm` says
    what it is and what troubles it, where its store cannot be read."""
    body = (await line.carrier.ask(get_scheduler())).body
    try:
        return msgspec.json.decode(body, type=SchedulerForm)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=AboutForm)


async def reset(line: Line, key: str) -> BreakerResetForm | StartsResetForm:
    """Close a breaker, or forget the failed starts of a job."""
    body = (await line.carrier.ask(reset_breaker(key))).body
    try:
        return msgspec.json.decode(body, type=BreakerResetForm)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=StartsResetForm)


async def graph(
    line: Line, *, all: bool = False, job: str | None = None, max_depth: int | None = None  # noqa: A002
) -> GraphForm:  # fmt: skip
    """The graph of jobs, as nodes and edges: of those that are active or blocked, of all, or around one."""
    return await line.ask(get_graph(all=all, job=job, max_depth=max_depth), GraphForm)


async def drawing(
    line: Line, *, all: bool = False, job: str | None = None, max_depth: int | None = None  # noqa: A002
) -> PictureForm:  # fmt: skip
    """The same as text."""
    return await line.ask(get_graph(format="dag", all=all, job=job, max_depth=max_depth), PictureForm)


async def metrics(line: Line) -> str:
    """What a Prometheus would be told."""
    return (await line.carrier.ask(get_metrics())).body.decode()
