"""Methods with several response types."""

from __future__ import annotations

import msgspec

from rota.client.requests.graph import get_graph
from rota.client.requests.scheduler import get_metrics, get_scheduler, reset_breaker
from rota.sdk.calls import Channel
from rota.wire.breaker import BreakerResetResult, StartFailureResetResult
from rota.wire.graph import GraphDrawing, GraphView
from rota.wire.scheduler import SchedulerProcess, SchedulerStatus


async def status(channel: Channel) -> SchedulerStatus | SchedulerProcess:
    """Return the status of the scheduler: its mode, queue depth and pools, and the reason if nothing is running. While
    the store cannot be read, return a `SchedulerProcess` with the errors."""
    body = (await channel.transport.request(get_scheduler())).body
    try:
        return msgspec.json.decode(body, type=SchedulerStatus)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=SchedulerProcess)


async def reset_breaker_or_starts(channel: Channel, key: str) -> BreakerResetResult | StartFailureResetResult:
    """Close a breaker, or clear the failed starts of a job."""
    body = (await channel.transport.request(reset_breaker(key))).body
    try:
        return msgspec.json.decode(body, type=BreakerResetResult)
    except msgspec.ValidationError:
        return msgspec.json.decode(body, type=StartFailureResetResult)


async def graph(
    channel: Channel,
    *,
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
) -> GraphView:
    """Return the dependency graph as nodes and edges: of active and blocked jobs, of all jobs, or around one job."""
    return await channel.request(get_graph(all=all, job=job, max_depth=max_depth), GraphView)


async def drawing(
    channel: Channel,
    *,
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
) -> GraphDrawing:
    """Return the dependency graph as text."""
    return await channel.request(get_graph(format="dag", all=all, job=job, max_depth=max_depth), GraphDrawing)


async def metrics(channel: Channel) -> str:
    """Return the metrics in the Prometheus text format."""
    return (await channel.transport.request(get_metrics())).body.decode()
