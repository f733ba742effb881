"""Status of the queue: what is running, and if nothing is, the reason."""

from __future__ import annotations

from collections import Counter

from rota.core.control import PauseState
from rota.core.pool import PoolSizes
from rota.core.reservation import ReservationState
from rota.core.status import ACTIVE, STARTED, TERMINAL, WAITING, Status
from rota.core.wait import WaitKind
from rota.ids import format_job_id, format_reservation_id
from rota.naming import GLOBAL
from rota.store.session import Reader
from rota.store.timestamp import from_micros
from rota.view import schedule, webhook
from rota.view.breaker import read_tripped_breakers
from rota.view.gc import last_retention
from rota.view.idle_reason import idle_reason
from rota.view.job import ViewContext
from rota.wire.depth import render_depth
from rota.wire.scheduler import PausedScope, Pool, QueueStatus, ReservationCounts

_MAX_UNSTARTABLE = 10
_MAX_COUNTED = 10_000
_MAX_CHECKED = 500
"""Maximum number of jobs to check for damaged records in one status request."""


def read_pools(reader: Reader, limits: PoolSizes) -> dict[str, Pool]:
    """Return the pools that are configured or in use. The size is -1 if there is no limit."""
    used, _ = reader.queue.pool_usage()
    waiting = {name for demand, _ in reader.lanes.depths() for name in demand}
    names = [name for name in limits.sizes if not name.endswith("/*")]
    names += sorted((used.keys() | waiting) - set(names))
    sizes = {name: limits.size(name) for name in names}
    return {name: Pool(size=-1 if size is None else size, used=used.get(name, 0)) for name, size in sizes.items()}


def list_unstartable(reader: Reader, limits: PoolSizes) -> list[str]:
    """List the jobs and direct executions that a pool is too small for, limited to fit on a screen."""
    reasons = reader.lanes.oversized(limits)
    unstartable = reader.lanes.queued_jobs(reasons, _MAX_UNSTARTABLE + 1)
    lines = [f"{format_job_id(job)} cannot start: {reasons[lane]}" for job, lane in unstartable[:_MAX_UNSTARTABLE]]
    if len(unstartable) > _MAX_UNSTARTABLE:
        count = len(reader.lanes.queued_jobs(reasons, _MAX_COUNTED))
        more = f"{'at least ' if count == _MAX_COUNTED else ''}{count - _MAX_UNSTARTABLE:,} more"
        lines.append(f"{more} cannot start because a pool is too small")
    return lines + _list_unstartable_reservations(reader, limits)


def _list_unstartable_reservations(reader: Reader, limits: PoolSizes) -> list[str]:
    """List the direct executions that a pool is too small for."""
    waiting = [each for each in reader.reservations.list_open() if each.state is ReservationState.WAITING]
    details = [(reservation.id, limits.describe_oversize(reservation.demand)) for reservation in waiting]
    lines = [f"{format_reservation_id(id_)} cannot start: {detail}" for id_, detail in details if detail is not None]
    return lines[:_MAX_UNSTARTABLE]


def list_unreadable(reader: Reader) -> list[str]:
    """List unreadable jobs, limited to fit on a screen: jobs with an unknown status, and active jobs with a damaged
    record."""
    damaged = reader.jobs.record_errors(reader.jobs.list_ids(ACTIVE, limit=_MAX_CHECKED))
    ids = sorted({*reader.jobs.unreadable(_MAX_CHECKED), *damaged})
    shown = reader.jobs.find_all(ids[:_MAX_UNSTARTABLE])
    lines = [
        f"{format_job_id(job.id)} is unreadable: {job.unreadable}; `rota cancel {format_job_id(job.id)}` ends it"
        for job in shown
    ]
    more = len(ids) - _MAX_UNSTARTABLE
    return [*lines, f"{more} more {'job is' if more == 1 else 'jobs are'} unreadable"] if more > 0 else lines


def show_status(reader: Reader, context: ViewContext) -> QueueStatus:
    active, reasons = reader.jobs.count_active()
    counts = reader.jobs.count_ended() | active
    depth = reader.queue.depth()
    running = sum(counts.get(status, 0) for status in STARTED)
    waiting = {kind.value: count for kind, count in reasons.items()}
    pauses = reader.pauses.state(holds=context.holds)
    pause = pauses.scopes.get(GLOBAL)
    in_lanes, parked = reader.lanes.count_paused(pauses)
    if in_lanes + parked:
        waiting[WaitKind.PAUSED.value] = in_lanes + parked
    last = reader.jobs.last_dispatch()
    reservations = Counter(each.display_status.lower() for each in reader.reservations.list_open())
    is_idle = not running and not reservations["running"] and any(counts.get(status) for status in WAITING)
    return QueueStatus(
        mode="direct" if context.limits.size(GLOBAL) is None else "deferred",
        paused=pause is not None,
        paused_by=None if pause is None else pause.actor,
        paused_at=None if pause is None else pause.at,
        pauses=_render_pauses(pauses),
        hold_reason=pauses.hold_text,
        depth=render_depth(depth, context.queue_limits.resolve_total(context.limits)),
        queued=counts.get(Status.QUEUED, 0),
        ready=depth.total - in_lanes - reader.lanes.count_oversized(context.limits, pauses),
        waiting=waiting,
        breakers=read_tripped_breakers(reader, context),
        running=running,
        reservations=ReservationCounts(waiting=reservations["waiting"], running=reservations["running"]),
        webhooks=webhook.summarize_webhooks(reader),
        finished=sum(counts.get(status, 0) for status in TERMINAL),
        pools=read_pools(reader, context.limits),
        last_dispatch_at=None if last is None else from_micros(last),
        last_gc=last_retention(reader),
        schedules=schedule.summarize_schedules(reader, context.now),
        idle_reason=idle_reason(reader, context) if is_idle else None,
    )


def _render_pauses(pauses: PauseState) -> list[PausedScope]:
    """Render the pauses, `global` first."""
    scopes = sorted(pauses.scopes, key=lambda scope: (scope != GLOBAL, scope))
    return [PausedScope(scope=scope, by=pauses.scopes[scope].actor, at=pauses.scopes[scope].at) for scope in scopes]
