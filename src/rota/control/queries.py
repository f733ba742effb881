"""State of the scheduler as the API shows it: status, pools, breakers, locks, and the result of a tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from rota.control.schemas import (
    BreakerView,
    LockOwner,
    LockStatus,
    PausedScope,
    Pool,
    QueueStatus,
    ReservationCounts,
    TickResult,
    render_depth,
)
from rota.db.decoding import from_micros
from rota.db.session import Reader
from rota.engine.transaction import Transaction
from rota.ids import JobId, format_job_id, format_reservation_id
from rota.jobs.explain import idle_reason
from rota.jobs.queries import ViewContext
from rota.kernel.breaker import CLOSED, BreakerState, ClosedState, OpenState, ProbingState
from rota.kernel.holds import PauseState
from rota.kernel.lanes import Claim
from rota.kernel.locks import LockMode
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import ReservationState, format_owner
from rota.kernel.status import ACTIVE, STARTED, TERMINAL, WAITING, Status
from rota.kernel.tick import BoundBy
from rota.kernel.verdict import WaitKind
from rota.naming import GLOBAL
from rota.retention.commands import last_retention
from rota.schedules import queries as schedule_queries
from rota.webhooks import queries as webhook_queries

_MAX_LISTED = 10
_MAX_COUNTED = 10_000
_MAX_CHECKED = 500
"""Maximum number of jobs to check for damaged records in one status request."""
_MAX_WAITERS = 20


def show_status(reader: Reader, context: ViewContext) -> QueueStatus:
    """Return what is running and waiting, and the reason if nothing is running."""
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
        webhooks=webhook_queries.summarize_webhooks(reader),
        finished=sum(counts.get(status, 0) for status in TERMINAL),
        pools=read_pools(reader, context.limits),
        last_dispatch_at=None if last is None else from_micros(last),
        last_gc=last_retention(reader),
        schedules=schedule_queries.summarize_schedules(reader, context.now),
        idle_reason=idle_reason(reader, context) if is_idle else None,
    )


def _render_pauses(pauses: PauseState) -> list[PausedScope]:
    """Render the pauses, `global` first."""
    scopes = sorted(pauses.scopes, key=lambda scope: (scope != GLOBAL, scope))
    return [PausedScope(scope=scope, by=pauses.scopes[scope].actor, at=pauses.scopes[scope].at) for scope in scopes]


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
    unstartable = reader.lanes.queued_jobs(reasons, _MAX_LISTED + 1)
    lines = [f"{format_job_id(job)} cannot start: {reasons[lane]}" for job, lane in unstartable[:_MAX_LISTED]]
    if len(unstartable) > _MAX_LISTED:
        count = len(reader.lanes.queued_jobs(reasons, _MAX_COUNTED))
        more = f"{'at least ' if count == _MAX_COUNTED else ''}{count - _MAX_LISTED:,} more"
        lines.append(f"{more} cannot start because a pool is too small")
    return lines + _list_unstartable_reservations(reader, limits)


def _list_unstartable_reservations(reader: Reader, limits: PoolSizes) -> list[str]:
    """List the direct executions that a pool is too small for."""
    waiting = [each for each in reader.reservations.list_open() if each.state is ReservationState.WAITING]
    details = [(reservation.id, limits.describe_oversize(reservation.demand)) for reservation in waiting]
    lines = [f"{format_reservation_id(id_)} cannot start: {detail}" for id_, detail in details if detail is not None]
    return lines[:_MAX_LISTED]


def list_unreadable(reader: Reader) -> list[str]:
    """List unreadable jobs, limited to fit on a screen: jobs with an unknown status, and active jobs with a damaged
    record."""
    damaged = reader.jobs.record_errors(reader.jobs.list_ids(ACTIVE, limit=_MAX_CHECKED))
    ids = sorted({*reader.jobs.unreadable(_MAX_CHECKED), *damaged})
    shown = reader.jobs.find_all(ids[:_MAX_LISTED])
    lines = [
        f"{format_job_id(job.id)} is unreadable: {job.unreadable}; `rota cancel {format_job_id(job.id)}` ends it"
        for job in shown
    ]
    more = len(ids) - _MAX_LISTED
    return [*lines, f"{more} more {'job is' if more == 1 else 'jobs are'} unreadable"] if more > 0 else lines


def read_breakers(reader: Reader, context: ViewContext) -> list[BreakerView]:
    """Return the breakers that are not closed, and closed breakers with recent failures."""
    failures = reader.breakers.recent_failures(context.now - context.breaker_policy.window)
    records = {record.key: record for record in reader.breakers.list_all()}
    return [
        _render_breaker(
            key,
            records[key].state if key in records else CLOSED,
            failures=failures.get(key, 0),
            opened_at=records[key].opened_at if key in records else None,
        )
        for key in sorted({*records, *failures})
    ]


def read_tripped_breakers(reader: Reader, context: ViewContext) -> list[BreakerView]:
    """Return the breakers that are not closed."""
    return [breaker for breaker in read_breakers(reader, context) if breaker.state != "closed"]


def _render_breaker(key: str, state: BreakerState, *, failures: int, opened_at: datetime | None) -> BreakerView:
    return BreakerView(
        key=key,
        state="closed" if isinstance(state, ClosedState) else "open" if isinstance(state, OpenState) else "half-open",
        failures=failures,
        opened_at=opened_at,
        probe_at=state.until if isinstance(state, OpenState) else None,
        probe_job=format_job_id(state.job) if isinstance(state, ProbingState) else None,
    )


def render_tick(tx: Transaction, blocker: str | None = None) -> TickResult:
    """Return the result of the tick, at the end of its turn. Planned jobs that have not started are in
    `would_dispatch`: a spawn delay or a fact that is being probed holds them, or this is a dry run. `blocker`: reason
    that no job starts, whatever the gates decide."""
    plan, tick_plan = tx.effects.plan, tx.effects.tick_plan
    planned = () if tick_plan is None else tick_plan.claims
    started = [] if plan is None or tx.is_dry_run else [claim.job for claim in plan.claims]
    pending = [claim for claim in planned if claim.job not in set(started)]
    skipped = _count_startable(tx, pending) - len(pending)
    reason: BoundBy | Literal["blocked"] = "none"
    if tick_plan is not None:
        reason = tick_plan.bound_by
    elif skipped:
        reason = "capacity" if blocker is None else "blocked"
    return TickResult(
        dispatched=[format_job_id(job) for job in started],
        would_dispatch=[format_job_id(claim.job) for claim in pending],
        skipped=skipped,
        reason=reason,
        blocker=blocker if reason == "blocked" else None,
    )


def _count_startable(tx: Transaction, pending_claims: Sequence[Claim]) -> int:
    """Return the number of jobs that are ready, fit in their pools and are not held by a pause or a breaker.

    `count_paused` counts every job of a half-open breaker as held, including a probe that is planned and has not
    started, so planned probes are added back.
    """
    tick_plan = tx.effects.tick_plan
    pauses = tx.pauses.state(holds=tx.holds) if tick_plan is None else tick_plan.pauses
    held, _parked = tx.lanes.count_paused(pauses)
    held += tx.lanes.count_oversized(tx.settings.pool_sizes, pauses)
    return sum(ready for _, ready in tx.lanes.depths()) - held + sum(1 for claim in pending_claims if claim.probes)


def list_locks(reader: Reader, *, after: str, limit: int) -> tuple[list[LockStatus], str | None]:
    """Return the locks that are held or requested, sorted by key, and the last key if there are more."""
    keys = reader.locks.keys(after=after, limit=limit + 1)
    return _render_locks(reader, keys[:limit]), keys[limit - 1] if len(keys) > limit else None


def show_lock(reader: Reader, key: str) -> LockStatus:
    """Return the lock with this key, even if it is free."""
    return _render_locks(reader, [key])[0]


def _render_locks(reader: Reader, keys: Sequence[str]) -> list[LockStatus]:
    owners = reader.locks.owners(keys)
    locks = []
    for key in keys:
        holders = owners.get(key, [])
        waiters, waiting = reader.locks.queue(key, _MAX_WAITERS)
        locks.append(
            LockStatus(
                key=key,
                mode=_held_mode(mode for _, mode in holders),
                holders=_render_owners(holders),
                waiters=_render_owners(waiters),
                waiting=waiting,
            )
        )
    return locks


def _held_mode(modes: Iterable[LockMode]) -> str | None:
    first = next(iter(modes), None)
    return None if first is None else first.value


def _render_owners(owners: Sequence[tuple[JobId, LockMode]]) -> list[LockOwner]:
    return [LockOwner(id=format_owner(owner), mode=mode.value) for owner, mode in owners]
