"""`breaker reset`: close the breaker of a type or target, or clear the failed starts of a job."""

from __future__ import annotations

from rota.core.status import WAITING
from rota.engine import breaker
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, escape_unprintable
from rota.ids import JobId, format_job_id, parse_job_id
from rota.wire.breaker import BreakerResetResult, StartFailureResetResult


def reset(tx: Transaction, name: str, *, actor: str) -> BreakerResetResult | StartFailureResetResult:
    """Reset the breaker or job of this name; return how many failures were cleared."""
    try:
        job = parse_job_id(name)
    except InvalidInput:
        return _reset_key(tx, name, actor)
    return _reset_job(tx, job, actor)


def _reset_key(tx: Transaction, key: str, actor: str) -> BreakerResetResult:
    failures = tx.breakers.recent_failures(tx.now - tx.settings.breaker.window)
    known = sorted({*failures, *(record.key for record in tx.breakers.list_all())})
    if key not in known:
        hint = f"known breakers: {', '.join(known)}" if known else "no type or target has failed recently"
        raise NotFound(f"no such breaker: {escape_unprintable(key)}; {hint}")
    breaker.close(tx, key, actor=actor)
    return BreakerResetResult(key=key, state="closed", failures_cleared=failures.get(key, 0))


def _reset_job(tx: Transaction, job: JobId, actor: str) -> StartFailureResetResult:
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
