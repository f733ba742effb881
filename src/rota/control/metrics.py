"""`GET /metrics`: counters of this process, and gauges of the current state (docs/reference/metrics.md).

Gauges are read on each scrape. The cost does not depend on the length of the queue. Metrics of the scheduler process
have the standard Prometheus names.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import time
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path

from starlette.responses import Response

from rota import __version__
from rota.control.health import find_blockers
from rota.db.session import Reader
from rota.engine.metrics import OPEN_METRICS_FORMAT, TEXT_FORMAT, ExternalCounter, Gauge, Info, Metric, render_metrics
from rota.errors import StorageFull, StoreError
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, NoQuery
from rota.jobs.queries import ViewContext
from rota.kernel.breaker import OpenState
from rota.kernel.pools import PoolSizes
from rota.kernel.status import ACTIVE
from rota.kernel.verdict import WaitKind

_SHOWN_STATUSES = sorted({status.public.value for status in ACTIVE})
_REASONS = (
    WaitKind.DEPENDENCIES,
    WaitKind.PINNED_HEAD,
    WaitKind.LOCKS,
    WaitKind.DELAY,
    WaitKind.PAUSED,
    WaitKind.CAPACITY,
)
_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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


def read_gauges(reader: Reader, context: ViewContext) -> list[Metric]:
    return [*_job_gauges(reader, context), *_pool_gauges(reader, context.limits), *_other_gauges(reader)]


def _job_gauges(reader: Reader, context: ViewContext) -> list[Metric]:
    by_status: Counter[str] = Counter()
    counts, reasons = reader.jobs.count_active()
    for status, count in counts.items():
        by_status[status.public.value] += count
    pauses = reader.pauses.state(holds=context.holds)
    in_lanes, parked = reader.lanes.count_paused(pauses)
    waiting = {**reasons, WaitKind.PAUSED: in_lanes + parked, WaitKind.CAPACITY: reader.queue.depth().total - in_lanes}
    return [
        Gauge(
            "rota_jobs",
            "Jobs that have not ended, by status.",
            ("status",),
            {(status,): by_status[status] for status in _SHOWN_STATUSES},
        ),
        Gauge(
            "rota_jobs_waiting",
            "Waiting jobs by reason; `paused` includes jobs that a breaker holds.",
            ("reason",),
            {(reason.value,): waiting.get(reason, 0) for reason in _REASONS},
        ),
        Gauge("rota_pauses", "Paused scopes. A pause of everything counts as one.", (), {(): len(pauses.scopes)}),
        Gauge(
            "rota_held",
            "1 while the hold file exists, otherwise 0; pauses and breakers do not count.",
            (),
            {(): int(pauses.hold_text is not None)},
        ),
    ]


def _pool_gauges(reader: Reader, limits: PoolSizes) -> list[Metric]:
    """Return the gauges of pools with a limit of their own. The number of other pools is unbounded."""
    sizes = {name: size for name, size in limits.sizes.items() if size >= 0 and not name.endswith("/*")}
    used, _ = reader.queue.pool_usage()
    queued: Counter[str] = Counter()
    for demand, ready in reader.lanes.depths():
        for name in demand.keys() & sizes.keys():
            queued[name] += ready
    return [
        Gauge(
            "rota_pool_size", "Sizes of pools with a limit.", ("pool",), {(name,): size for name, size in sizes.items()}
        ),
        Gauge(
            "rota_pool_used",
            "Capacity taken by running jobs and direct executions, for pools with a limit.",
            ("pool",),
            {(name,): used.get(name, 0) for name in sizes},
        ),
        Gauge(
            "rota_pool_queued",
            "Jobs that wait only for capacity, by each pool with a limit that they take from.",
            ("pool",),
            {(name,): queued[name] for name in sizes},
        ),
    ]


def _other_gauges(reader: Reader) -> list[Metric]:
    reservations = Counter(reservation.display_status.lower() for reservation in reader.reservations.list_open())
    states = Counter(
        "open" if isinstance(breaker.state, OpenState) else "half_open" for breaker in reader.breakers.list_all()
    )
    _, enabled = reader.schedules.count()
    return [
        Gauge(
            "rota_reservations",
            "Direct executions that wait or run.",
            ("state",),
            {(state,): reservations[state] for state in ("waiting", "running")},
        ),
        Gauge(
            "rota_breakers",
            "Breakers that are not closed, by state.",
            ("state",),
            {(state,): states[state] for state in ("open", "half_open")},
        ),
        Gauge("rota_schedules_enabled", "Schedules that are enabled.", (), {(): enabled}),
        Gauge(
            "rota_webhook_deliveries_pending",
            "Messages to deliver.",
            (),
            {(): sum(reader.webhooks.count_pending_by_receiver().values())},
        ),
    ]


def read_process_metrics() -> list[Metric]:
    pages = [int(count) for count in (_PROC / "self/statm").read_text().split()]
    with os.scandir(_PROC / "self/fd") as entries:
        descriptors = sum(1 for _ in entries) - 1  # without the descriptor of this scan
    return [
        Info(
            "rota_build_info",
            "Version of Rota and Python. Always 1.",
            ("version", "python"),
            {(__version__, platform.python_version()): 1},
        ),
        Gauge("process_start_time_seconds", "Start time of the process since the Unix epoch.", (), {(): _start_time()}),
        ExternalCounter("process_cpu_seconds", "CPU time that the process has used.", (), {(): time.process_time()}),
        Gauge("process_virtual_memory_bytes", "Virtual memory size.", (), {(): pages[0] * _PAGE_BYTES}),
        Gauge("process_resident_memory_bytes", "Resident memory size.", (), {(): pages[1] * _PAGE_BYTES}),
        Gauge("process_open_fds", "Open file descriptors.", (), {(): descriptors}),
        Gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            (),
            {(): resource.getrlimit(resource.RLIMIT_NOFILE)[0]},
        ),
    ]


@lru_cache(maxsize=1)
def _start_time() -> float:
    """Return the start time: field 22 of `stat`, counted from boot. The name before it can contain spaces."""
    after_name = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    booted = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    return int(booted.split()[1]) + int(after_name[19]) / os.sysconf("SC_CLK_TCK")


_EXAMPLE = Gauge("rota_jobs", "Jobs that have not ended, by status.", ("status",), {("QUEUED",): 3, ("RUNNING",): 1})


ENDPOINTS = [Endpoint("GET", "/metrics", get_metrics, media=_MEDIA, response_example=render_metrics([_EXAMPLE]))]
