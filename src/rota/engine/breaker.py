"""Breaker transitions inside a transaction, caused by ends, starts and time.

A run that is not a probe costs no statement when it succeeds, and one when it fails, unless it opens a breaker.
"""

from __future__ import annotations

from datetime import datetime

from rota.db.runs import OpenRun
from rota.engine.transaction import Transaction
from rota.ids import JobId
from rota.kernel.breaker import (
    BreakerState,
    ClosedState,
    HalfOpenState,
    OpenState,
    ProbingState,
    RunSignal,
    signal_of,
    state_after_run,
    state_after_time,
)
from rota.kernel.run import RunResult
from rota.kernel.tick import StartPlan

MAX_PROBE_CANDIDATES = 100
"""Parked jobs (held jobs with locks, which are in no lane) to evaluate at once when a breaker allows one probe. One
would not suffice: some may wait for locks."""


def record_end(tx: Transaction, run: OpenRun, result: RunResult, *, at: datetime) -> None:
    """Record the result of a run in its breakers."""
    signal = signal_of(result)
    failures = tx.settings.breaker.failures
    if signal is RunSignal.FAILURE and run.breaker_keys and failures is not None:
        since = tx.now - tx.settings.breaker.window
        for counts in tx.breakers.add_failure(run.breaker_keys, at, since=since, max_kept=failures):
            _record_signal(
                tx, counts.key, counts.state, run.job, signal, recent_failures=counts.other_failures + (at > since)
            )
    elif run.is_breaker_probe:
        _record_probe(tx, run.job, signal)


def record_unused_claim(tx: Transaction, run: OpenRun) -> None:
    """Record a claim that led to no run. If it was a probe, another job may probe."""
    if run.is_breaker_probe:
        _record_probe(tx, run.job, RunSignal.NEUTRAL)


def record_plan(tx: Transaction, plan: StartPlan) -> bool:
    """Record the probes among the claims. Return whether jobs were marked dirty, so that another turn should follow.

    When a probe starts, its breaker holds the other jobs again. Those in lock queues must leave them, so they are
    marked dirty. If no job could probe, the next parked jobs are evaluated."""
    probes = [(key, claim.job) for claim in plan.claims for key in claim.probes]
    for key, job in probes:
        _set_state(tx, key, ProbingState(job), cause="tick", job=job)
    unprobed = () if plan.is_truncated else plan.pauses.breakers.half_open_keys
    has_next = bool(unprobed) and tx.breakers.wake_idle(unprobed, plan.pauses, MAX_PROBE_CANDIDATES)
    return has_next or bool(probes)


def advance_breakers(tx: Transaction) -> None:
    """Apply the transitions that are due by time or by a changed policy."""
    for record in tx.breakers.list_all():
        after = state_after_time(record.state, tx.settings.breaker, tx.now)
        if after != record.state:
            _set_state(tx, record.key, after, cause="tick")


def close(tx: Transaction, key: str, *, actor: str) -> None:
    """Close a breaker on request of a client."""
    _set_state(tx, key, ClosedState(), cause="breaker", actor=actor)


def _record_probe(tx: Transaction, job: JobId, signal: RunSignal) -> None:
    for record in tx.breakers.list_all():
        if record.state == ProbingState(job):
            _record_signal(tx, record.key, record.state, job, signal, recent_failures=0)


def _record_signal(
    tx: Transaction, key: str, state: BreakerState, job: JobId, signal: RunSignal, *, recent_failures: int
) -> None:
    after = state_after_run(state, job, signal, recent_failures=recent_failures, policy=tx.settings.breaker, now=tx.now)
    if after != state:
        _set_state(tx, key, after, cause="executor", job=job)


def _set_state(
    tx: Transaction, key: str, state: BreakerState, *, cause: str, actor: str | None = None, job: JobId | None = None
) -> None:
    """Store the state, and mark the affected jobs with locks dirty: they leave the lock queues when the breaker holds
    them, and the parked ones are evaluated when it releases them. (Lanes read the state themselves.)"""
    tx.breakers.set(key, state, now=tx.now, cause=cause, actor=actor, job=job)
    lanes = tx.lanes.under_breaker(key)
    match state:
        case OpenState() | ProbingState():
            tx.lanes.wake_contending(lanes)
        case HalfOpenState():
            tx.lanes.wake_parked(lanes, MAX_PROBE_CANDIDATES)
        case ClosedState():
            tx.lanes.wake_parked(lanes)
