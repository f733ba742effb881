"""Retry: the next job of a chain, created in the transaction that records the failure (DEC-001, DEC-007).

    FAILED run ── policy ──▶ retry: a new job in the chain, held at the delay gate; edges to the chain stay open
                        └──▶ retries exhausted: `permanently_failed`; edges to the chain are resolved

So a chain is active exactly when its last job is, in every committed state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from rota.core.edges import policies_met_by
from rota.core.retry import decide_retry
from rota.core.run import STOPPED_BY_SHUTDOWN, RunResult
from rota.core.status import Status
from rota.engine import group
from rota.engine.transaction import Transaction
from rota.errors import StorageFull, StoreError
from rota.ids import format_job_id
from rota.store.chain import UnretriedFailure
from rota.store.run import OpenRun

log = logging.getLogger("rota.engine")

CAUSE = "retry"


def delay_after(tx: Transaction, run: OpenRun, result: RunResult) -> timedelta | None:
    """Return the delay before the retry; `None` if the chain ends with this run."""
    if result.status is not Status.FAILED or run.retry_policy is None:
        return None
    is_cancelled = is_cancel_requested(run.stop_requested)
    return decide_retry(
        run.retry_policy, run.retries, result, is_cancel_requested=is_cancelled, random_fraction=tx.random_source()
    )


def is_cancel_requested(stop_requested: str | None) -> bool:
    """Return whether a client cancelled the run. A stop by a shutdown is not a cancellation."""
    return stop_requested is not None and stop_requested != STOPPED_BY_SHUTDOWN


def continue_chain(tx: Transaction, run: OpenRun, delay: timedelta) -> None:
    tx.chains.retry(run.job, retries=run.retries + 1, not_before=tx.now + delay, now=tx.now, cause=CAUSE)


def create_missing_retries(tx: Transaction, cause: str) -> tuple[int, int]:
    """Create the retries that chains lack. Return their number, and the number of errors.

    A failure and its retry share a transaction, so none is missing unless another program has written to the store."""
    try:
        failures = tx.chains.unretried_failures()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("cannot read the chains that lack a retry")
        return 0, 1
    results = [_repair_in_savepoint(tx, failure, cause) for failure in failures]
    return results.count(True), results.count(None)


def _repair_in_savepoint(tx: Transaction, failure: UnretriedFailure, cause: str) -> bool | None:
    """Repair a chain in a savepoint, so that one unusable record does not affect the others.

    Return whether the chain continues, or `None` after an error; then end the chain if possible, so that no job waits
    for it."""
    has_continued = _run_in_savepoint(tx, failure, lambda: _repair(tx, failure, cause))
    if has_continued is None:
        _run_in_savepoint(tx, failure, lambda: _end_exhausted_chain(tx, failure))
    return has_continued


def _run_in_savepoint(tx: Transaction, failure: UnretriedFailure, operation: Callable[[], bool]) -> bool | None:
    try:
        with tx.savepoint():
            return operation()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("the chain of %s could not be recovered", format_job_id(failure.job))
        return None


def _repair(tx: Transaction, failure: UnretriedFailure, cause: str) -> bool:
    """Create the missing retry, or end the chain. Return whether the chain continues."""
    end = RunResult(status=Status.FAILED, exit_code=failure.exit_code, reason=failure.reason)
    is_cancelled = is_cancel_requested(failure.stop_requested)
    delay = decide_retry(
        failure.retry_policy, failure.retries, end, is_cancel_requested=is_cancelled, random_fraction=tx.random_source()
    )
    if delay is None or _is_key_taken(tx, failure):
        return _end_exhausted_chain(tx, failure)
    tx.edges.reopen(failure.chain)
    state = tx.chains.states([failure.job])[failure.job]
    if state.group is not None:
        tx.groups.reopen(state.group, tx.now, cause=cause, actor=None)
    not_before = min(failure.finished_at, tx.now) + delay
    tx.chains.retry(failure.job, retries=failure.retries + 1, not_before=not_before, now=tx.now, cause=cause)
    return True


def _is_key_taken(tx: Transaction, failure: UnretriedFailure) -> bool:
    """Return whether another chain holds the unique key. A chain without an active job does not hold it."""
    key = tx.chains.states([failure.job])[failure.job].unique
    return key is not None and bool(tx.jobs.key_holders([key]))


def _end_exhausted_chain(tx: Transaction, failure: UnretriedFailure) -> bool:
    tx.jobs.mark_permanently_failed(failure.job)
    resolved = tx.edges.resolve(failure.chain, policies_met_by(Status.FAILED))
    if resolved.group is not None:
        group.record_end(tx, resolved.group, failure.chain, Status.FAILED)
    return False
