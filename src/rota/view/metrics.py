"""The figures that are states, asked for when somebody looks: never a walk over the queue, however long it is."""

from __future__ import annotations

from collections import Counter

from rota.core.breaker import Open
from rota.core.pool import Limits
from rota.core.status import ACTIVE
from rota.core.wait import WaitKind
from rota.metric import Gauge, Metric
from rota.store.session import Reader
from rota.view.job import Sight

_SHOWN = sorted({status.shown.value for status in ACTIVE})
_REASONS = (
    WaitKind.DEPENDENCIES, WaitKind.PINNED_HEAD, WaitKind.LOCKS, WaitKind.DELAY, WaitKind.PAUSED, WaitKind.CAPACITY
)  # fmt: skip


def figures(reader: Reader, sight: Sight) -> list[Metric]:
    return [*_jobs(reader, sight), *_pools(reader, sight.limits), *_rest(reader)]


def _jobs(reader: Reader, sight: Sight) -> list[Metric]:
    by_status: Counter[str] = Counter()
    counts, reasons = reader.active_counts()
    for status, count in counts.items():
        by_status[status.shown.value] += count
    pauses = reader.pauses(holds=sight.holds)
    in_lanes, parked = reader.count_paused(pauses)
    waiting = {
        **reasons,
        WaitKind.PAUSED: in_lanes + parked,
        WaitKind.CAPACITY: reader.depth().total - in_lanes,
    }
    return [
        Gauge(
            "rota_jobs", "Jobs that have not ended, by status.", ("status",),
            {(status,): by_status[status] for status in _SHOWN},
        ),
        Gauge(
            "rota_jobs_waiting",
            "Jobs that wait, by what for; paused are also those behind a breaker, capacity those that only want room.",
            ("reason",), {(reason.value,): waiting.get(reason, 0) for reason in _REASONS},
        ),
        Gauge("rota_pauses", "Pools that are paused, everything counted as one.", (), {(): len(pauses.scopes)}),
        Gauge("rota_held", "Whether the hold file holds everything.", (), {(): int(pauses.held is not None)}),
    ]  # fmt: skip


def _pools(reader: Reader, limits: Limits) -> list[Metric]:
    """Those that have a limit by their own name: of others there are as many as somebody thinks up."""
    sizes = {name: size for name, size in limits.sizes.items() if size >= 0 and not name.endswith("/*")}
    used, _ = reader.used()
    queued: Counter[str] = Counter()
    for draws, ready in reader.lanes():
        for name in draws.keys() & sizes.keys():
            queued[name] += ready
    return [
        Gauge("rota_pool_size", "Limits of pools.", ("pool",), {(name,): size for name, size in sizes.items()}),
        Gauge(
            "rota_pool_used", "What running jobs and direct executions draw from pools that have a limit.", ("pool",),
            {(name,): used.get(name, 0) for name in sizes},
        ),
        Gauge(
            "rota_pool_queued", "Jobs that only want room, by pools that have a limit and that they draw from.",
            ("pool",), {(name,): queued[name] for name in sizes},
        ),
    ]  # fmt: skip


def _rest(reader: Reader) -> list[Metric]:
    slots = Counter(slot.shown.lower() for slot in reader.open_slots())
    states = Counter("open" if isinstance(each.state, Open) else "half_open" for each in reader.breakers())
    _, enabled = reader.count_schedules()
    return [
        Gauge(
            "rota_slots", "Direct executions that wait or run.", ("state",),
            {(state,): slots[state] for state in ("waiting", "running")},
        ),
        Gauge(
            "rota_breakers", "Breakers that are not closed, by state.", ("state",),
            {(state,): states[state] for state in ("open", "half_open")},
        ),
        Gauge("rota_schedules_enabled", "Schedules that are enabled.", (), {(): enabled}),
        Gauge(
            "rota_webhook_deliveries_pending", "Messages that are still to be delivered.", (),
            {(): sum(reader.count_pending().values())},
        ),
    ]  # fmt: skip
