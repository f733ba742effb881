"""Gauges of the current state, read on each scrape. The cost does not depend on the length of the queue."""

from __future__ import annotations

from collections import Counter

from rota.core.breaker import OpenState
from rota.core.pool import PoolSizes
from rota.core.status import ACTIVE
from rota.core.wait import WaitKind
from rota.metric import Gauge, Metric
from rota.store.session import Reader
from rota.view.job import ViewContext

_SHOWN_STATUSES = sorted({status.public.value for status in ACTIVE})
_REASONS = (
    WaitKind.DEPENDENCIES,
    WaitKind.PINNED_HEAD,
    WaitKind.LOCKS,
    WaitKind.DELAY,
    WaitKind.PAUSED,
    WaitKind.CAPACITY,
)


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
        Gauge("rota_held", "1 while the hold file exists, otherwise 0.", (), {(): int(pauses.hold_text is not None)}),
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
