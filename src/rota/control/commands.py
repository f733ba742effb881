"""Changes by the operator: pause, resume and clear a scope, run a tick, reset a breaker, end all runs.

`pause`, `resume` and `clear` apply to the waiting jobs of a scope; running jobs continue.
"""

from __future__ import annotations

from rota.control.schemas import BreakerResetResult, PauseResult, ResumeResult, StartFailureResetResult
from rota.db.session import AnyReader
from rota.engine import breaker, control
from rota.engine.clear_operation import ClearOperation, ClearRecord
from rota.engine.facts import Observation, record_observation
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, escape_unprintable
from rota.executor.port import StopOrder
from rota.ids import JobId, format_job_id, parse_job_id
from rota.kernel.pacing import Tick, effective_batch_size
from rota.kernel.pools import PoolSizes
from rota.kernel.reservations import ReservationState
from rota.kernel.run import EXIT_CANCELLED, STOPPED_BY_SHUTDOWN, RunResult
from rota.kernel.status import WAITING, Status
from rota.naming import GLOBAL, is_pool_name


def pause(tx: Transaction, scope: str, *, actor: str) -> PauseResult:
    """Pause a scope. A scope that is paused already keeps the actor and time of its first pause."""
    before = tx.pauses.find(scope)
    if before is None:
        tx.pauses.add(scope, actor=actor, now=tx.now)
        control.hold_scope(tx, scope)
    by, at = (actor, tx.now) if before is None else (before.actor, before.at)
    warning = (
        None
        if _is_known_scope(tx, tx.settings.pool_sizes, scope)
        else f"no job has used {scope} so far; check the name"
    )
    return PauseResult(has_changed=before is None, scope=scope, paused_by=by, paused_at=at, warning=warning)


def resume(tx: Transaction, scope: str, *, actor: str) -> ResumeResult:
    """Resume a scope, and report the pause that ended, if any. Other pauses and breakers stay in effect."""
    before = tx.pauses.find(scope)
    if before is None:
        refuse_unknown_scope(tx, tx.settings.pool_sizes, scope)
        return ResumeResult(has_changed=False, scope=scope, paused_by=None, paused_at=None)
    tx.pauses.remove(scope, actor=actor, now=tx.now)
    control.release_scope(tx, scope)
    return ResumeResult(has_changed=True, scope=scope, paused_by=before.actor, paused_at=before.at)


def clear(tx: Transaction, scope: str, *, actor: str, max_job: JobId | None = None) -> ClearOperation:
    """Begin to clear a scope; this turn and the next ones continue. It ends with the newest job, or with `max_job`."""
    refuse_unknown_scope(tx, tx.settings.pool_sizes, scope)
    last = JobId(tx.ids.peek_job() - 1)
    until = last if max_job is None else min(last, max_job)
    return control.begin_clear(tx, ClearRecord(scope=scope, max_job=until, by=actor, at=tx.now))


def check_scope(scope: str | None) -> str:
    """Return the scope, or global for None; refuse a malformed scope."""
    if scope is None:
        return GLOBAL
    if not is_pool_name(scope):
        raise InvalidInput(
            f"unknown scope {scope!r}; use global, type/NAME, flow/NAME, target/NAME or resource/NAME"
        ).at_path(".scope")
    return scope


def _is_known_scope(reader: AnyReader, pool_sizes: PoolSizes, scope: str) -> bool:
    """Return whether the configuration names the scope, or a job has ever used it."""
    return scope == GLOBAL or scope in pool_sizes.sizes or bool(reader.lanes.under(scope))


def refuse_unknown_scope(reader: AnyReader, pool_sizes: PoolSizes, scope: str) -> None:
    """Refuse a scope that no job has used and that the configuration does not name."""
    if not _is_known_scope(reader, pool_sizes, scope):
        raise NotFound(
            f"no such scope: {escape_unprintable(scope)}; no job has used it, and the configuration does not name it; "
            "`rota pool list` shows the pools"
        ).at_path(".scope")


def request_tick(tx: Transaction, observation: Observation, *, batch_size: int | None) -> None:
    """Request a tick in this turn. Requests of the same turn are one tick, with the largest batch size."""
    record_observation(tx, observation)
    limit = (
        effective_batch_size(tx.settings.batch_size, tx.settings.dispatch_interval)
        if batch_size is None
        else batch_size
    )
    earlier = tx.effects.manual_tick
    if earlier is not None:
        limit = None if limit is None or earlier.batch_size is None else max(limit, earlier.batch_size)
    tx.effects.manual_tick = Tick(batch_size=limit)


def reset_breaker(tx: Transaction, name: str, *, actor: str) -> BreakerResetResult | StartFailureResetResult:
    """Reset the breaker or job of this name; return how many failures were cleared."""
    try:
        job = parse_job_id(name)
    except InvalidInput:
        return _reset_by_key(tx, name, actor)
    return _clear_failed_starts(tx, job, actor)


def _reset_by_key(tx: Transaction, key: str, actor: str) -> BreakerResetResult:
    failures = tx.breakers.recent_failures(tx.now - tx.settings.breaker.window)
    known = sorted({*failures, *(record.key for record in tx.breakers.list_all())})
    if key not in known:
        hint = f"known breakers: {', '.join(known)}" if known else "no type or target has failed recently"
        raise NotFound(f"no such breaker: {escape_unprintable(key)}; {hint}")
    breaker.close(tx, key, actor=actor)
    return BreakerResetResult(key=key, state="closed", failures_cleared=failures.get(key, 0))


def _clear_failed_starts(tx: Transaction, job: JobId, actor: str) -> StartFailureResetResult:
    before = tx.jobs.find(job)
    if before is None:
        raise tx.jobs.not_found(job)
    if not tx.jobs.reset_start_failures(job, now=tx.now, actor=actor):
        raise Conflict(
            f"{format_job_id(job)} has no failed starts to clear ({before.status.public}); nothing was changed"
        )
    return StartFailureResetResult(
        job=format_job_id(job),
        status=before.status.public.value,
        failures_cleared=before.dispatch_failures,
        starts_immediately=before.status in WAITING and before.not_before is not None and before.not_before > tx.now,
    )


def end_running(tx: Transaction) -> list[JobId]:
    """Stop every open run; each is FAILED `stopped by shutdown` when its whole process tree is gone. A run with an
    earlier stop request keeps it, so a cancelled job stays cancelled."""
    runs = tx.runs.list_open()
    for run in runs:
        if run.stop_requested is None:
            tx.jobs.request_stop(run.job, STOPPED_BY_SHUTDOWN, tx.now, None)
        tx.effects.orders.append(StopOrder(run=run.run, kill_after=tx.settings.kill_after.total_seconds()))
    for reservation in tx.reservations.list_open():
        if reservation.run is not None:
            tx.reservations.request_stop(reservation.id, STOPPED_BY_SHUTDOWN, tx.now, None)
            tx.effects.orders.append(StopOrder(run=reservation.run, kill_after=tx.settings.kill_after.total_seconds()))
        elif reservation.state is ReservationState.RUNNING:  # a client program holds it: no run to stop
            stopped = RunResult(status=Status.FAILED, exit_code=EXIT_CANCELLED, reason=STOPPED_BY_SHUTDOWN)
            tx.reservations.end(reservation.id, stopped, tx.now)
    return [run.job for run in runs]
