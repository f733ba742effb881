"""`GET /metrics`: counters of this process, and gauges of the current state (docs/reference/metrics.md)."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from rota.api.context import Context
from rota.api.endpoint import Endpoint, Invocation, NoQuery
from rota.api.health import find_blockers
from rota.errors import StorageFull, StoreError
from rota.metric import OPEN_METRICS_FORMAT, TEXT_FORMAT, Gauge, Metric, render_metrics
from rota.view.metrics import read_gauges
from rota.view.process import read_process_metrics

_MEDIA = tuple(media.partition(";")[0] for media in (TEXT_FORMAT, OPEN_METRICS_FORMAT))


async def get_metrics(call: Invocation[NoQuery, None]) -> Response:
    """Return the metrics of the scheduler in the format of Prometheus. A client that accepts
    `application/openmetrics-text` gets the format of OpenMetrics. Counters start from zero when the scheduler
    starts."""
    is_open = call.names_media_type(_MEDIA[1])
    metrics = await collect_metrics(call.context)
    return Response(
        render_metrics(metrics, is_open_metrics=is_open), media_type=OPEN_METRICS_FORMAT if is_open else TEXT_FORMAT
    )


async def collect_metrics(context: Context) -> list[Metric]:
    """Collect all metrics. If the store cannot be read, only its gauges are missing, because metrics matter most at
    such times."""
    ready = Gauge("rota_ready", "Whether jobs can be started.", (), {(): int(not await find_blockers(context))})
    try:
        gauges = await context.read(partial(read_gauges, context=context.view_context()))
    except (StorageFull, StoreError):
        gauges = []
    process_metrics = await asyncio.to_thread(read_process_metrics)
    return [ready, *gauges, *context.metrics.metrics, *process_metrics]


_EXAMPLE = Gauge("rota_jobs", "Jobs that have not ended, by status.", ("status",), {("QUEUED",): 3, ("RUNNING",): 1})

ENDPOINTS = [Endpoint("GET", "/metrics", get_metrics, media=_MEDIA, response_example=render_metrics([_EXAMPLE]))]
