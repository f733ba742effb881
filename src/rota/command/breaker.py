"""`breaker reset`: let a type or target, or a job that could not be started, begin anew."""

from __future__ import annotations

from rota.core.status import WAITING
from rota.engine import breaker
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import JobId, parse_job, show_job
from rota.wire.breaker import BreakerResetForm, StartsResetForm


def reset(work: Work, name: str, *, actor: str) -> BreakerResetForm | StartsResetForm:
    """What was reset, and what it had come to."""
    try:
        job = parse_job(name)
    except InvalidInput:
        return _reset_key(work, name, actor)
    return _reset_job(work, job, actor)


def _reset_key(work: Work, key: str, actor: str) -> BreakerResetForm:
    failures = work.session.recent_failures(work.now - work.settings.breaker.window)
    known = sorted({*failures, *(record.key for record in work.session.breakers())})
    if key not in known:
        there = f"there are {', '.join(known)}" if known else "there are none: nothing has failed lately"
        raise NotFound(f"no such breaker: {key}; {there}")
    breaker.close(work, key, actor=actor)
    return BreakerResetForm(key=key, state="closed", failures_forgotten=failures.get(key, 0))


def _reset_job(work: Work, job: JobId, actor: str) -> StartsResetForm:
    found = work.session.job(job)
    if found is None:
        raise work.session.no_such_job(job)
    if not work.session.reset_starts(job, now=work.now, actor=actor):
        raise Conflict(f"{show_job(job)} has no failed start to forget ({found.status.shown}); nothing was changed")
    return StartsResetForm(
        job=show_job(job),
        status=found.status.shown.value,
        failures_forgotten=found.dispatch_failures,
        goes_at_once=found.status in WAITING and found.not_before is not None and found.not_before > work.now,
    )
