"""`GET /metrics`: what is counted along the way, and what is so now (docs/metrics.md)."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from rota.api.accept import best_of
from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing
from rota.api.health import obstacles
from rota.errors import StorageFull, StoreError
from rota.metric import OPEN_METRICS, TEXT, Gauge, Metric, exposition
from rota.view.metrics import figures
from rota.view.process import process

_MEDIA = tuple(media.partition(";")[0] for media in (TEXT, OPEN_METRICS))


async def get_metrics(call: Call[Nothing, None]) -> Response:
    """Give the figures of the scheduler in the form of Prometheus. In that of OpenMetrics to who accepts
    `application/openmetrics-text`. What is counted starts from zero with the scheduler."""
    is_open = best_of(call.request, _MEDIA) == _MEDIA[1]
    metrics = await collected(call.context)
    return Response(exposition(metrics, is_open=is_open), media_type=OPEN_METRICS if is_open else TEXT)


async def collected(context: Context) -> list[Metric]:
    """Where the store cannot be read its figures are missing, and the rest is there: that is when it is looked at."""
    ready = Gauge("rota_ready", "Whether jobs can be started.", (), {(): int(not await obstacles(context))})
    try:
        states = await context.look(partial(figures, sight=context.sight()))
    except (StorageFull, StoreError):
        states = []
    own = await asyncio.to_thread(process)
    return [ready, *states, *context.meter.metrics, *own]


_EXAMPLE = Gauge("rota_jobs", "Jobs that have not ended, by status.", ("status",), {("QUEUED",): 3, ("RUNNING",): 1})

ENDPOINTS = [Endpoint("GET", "/metrics", get_metrics, media=_MEDIA, shows=exposition([_EXAMPLE]))]
