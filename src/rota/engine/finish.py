"""Starts and ends of runs and jobs, and what follows from an end, recorded inside a transaction.

A late message is logged and ignored. A retry is the next job of a chain, created in the transaction that records the
failure (DEC-001, DEC-007).

    FAILED run ── policy ──▶ retry: a new job in the chain, held at the delay gate; edges to the chain stay open
                        └──▶ retries exhausted: `permanently_failed`; edges to the chain are resolved

So a chain is active exactly when its last job is, in every committed state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from rota.db.chains import UnretriedFailure
from rota.db.runs import OpenRun
from rota.engine import breaker, direct, groups
from rota.engine.direct import NOT_STARTED
from rota.engine.facts import expect_products, invalidate_products
from rota.engine.metrics import EndSample, StartSample
from rota.engine.transaction import Transaction
from rota.errors import StorageFull, StoreError
from rota.executor.port import AcknowledgeOrder, ExitReport, StartConfirmation, StartFailure, StartRefusal, StopOrder
from rota.ids import JobId, format_job_id, format_run_id
from rota.kernel.breaker import CIRCUIT_BROKEN
from rota.kernel.edges import policies_met_by
from rota.kernel.prefetch import MAX_SHORT_RUN
from rota.kernel.retry import decide_retry
from rota.kernel.run import EXIT_CANCELLED, STOPPED_BY_SHUTDOWN, RunEnd, RunResult, StopIntent, conclude
from rota.kernel.status import Status

log = logging.getLogger("rota.engine")

RETRY_CAUSE = "retry"
_WITHDRAWING_STATUSES = frozenset({Status.FAILED, Status.CANCELLED})
"""Statuses at the end of a run that withdraw the artifacts it has put."""


def record_start(tx: Transaction, message: StartConfirmation) -> None:
    run = tx.find_open_run(message.run)
    if run is None:
        if direct.record_start(tx, message.run, message.pid, message.start_time):
            return
        log.warning("ignored the start of %s: the run is not open", format_run_id(message.run))
        return
    tx.runs.confirm_start(run, message.pid, message.start_time, tx.now, "executor")
    if run.status is Status.DISPATCHED:
        since_ready = None if run.ready_at is None else _elapsed_seconds(run.ready_at, tx.now)
        tx.effects.samples.append(StartSample(since_ready, _elapsed_seconds(run.started_at, tx.now)))
    tx.effects.open_runs[run.run] = msgspec.structs.replace(run, status=Status.RUNNING, dispatch_failures=0)


def record_exit(tx: Transaction, message: ExitReport) -> None:
    tx.effects.orders.append(AcknowledgeOrder(run=message.run))
    run = tx.find_open_run(message.run)
    tx.effects.open_runs[message.run] = None
    if run is None:
        if direct.record_exit(tx, message):
            return
        log.info("ignored the end of %s: the run is not open", format_run_id(message.run))
        return
    if message.workspace_error:
        log.warning("%s: %s", format_run_id(message.run), message.workspace_error)
    end = RunEnd(
        code=message.code,
        signal=message.signal,
        ended_by=message.ended_by,
        skip_reason=None if message.skip_reason is None else _replace_nul(message.skip_reason),
        was_watched=message.is_observed,
        is_verified=message.is_verified,
        stderr_tail=_replace_nul(_append_error(message)),
    )
    intent = StopIntent(stop_requested=run.stop_requested, timeout=run.timeout, idle_timeout=run.idle_timeout)
    at = min(datetime.fromtimestamp(message.at, UTC), tx.now)
    finish(tx, run, conclude(end, intent), at=at, cause="executor")


def record_failed_start(tx: Transaction, message: StartFailure) -> None:
    tx.effects.orders.append(AcknowledgeOrder(run=message.run))
    run = tx.find_open_run(message.run)
    tx.effects.open_runs[message.run] = None
    if run is None:
        if direct.record_failed_start(tx, message):
            return
        log.info("ignored the failed start of %s: the run is not open", format_run_id(message.run))
        return
    if run.status is Status.RUNNING:
        # Its `skip_if` did run, so this is a failed run, not a failed start.
        end = RunResult(status=Status.FAILED, exit_code=NOT_STARTED, reason=message.error, error=message.error)
        finish(tx, run, end, at=tx.now, cause="executor")
    elif run.stop_requested is not None or message.is_machine_failure:
        requeue(tx, run, cause="executor")
    else:
        record_dispatch_failure(tx, run, message.error)


def record_refusal(tx: Transaction, message: StartRefusal) -> None:
    """Record that the supervisor started nothing for a claim. Stop any process under this run id: it is a stray."""
    tx.effects.orders.append(StopOrder(run=message.run))
    run = tx.runs.find_open(message.run)
    if run is None and direct.record_refusal(tx, message.run, message.error):
        return
    if run is None or run.status is not Status.DISPATCHED:
        log.warning("ignored the refused start of %s: the run is not dispatched", format_run_id(message.run))
    elif run.stop_requested is not None:
        requeue(tx, run, cause="executor")
    else:
        record_dispatch_failure(tx, run, f"the supervisor refused to start it: {message.error}")


def fail_unrecordable(tx: Transaction, message: ExitReport | StartFailure, reason: str) -> None:
    """Fail a run whose end cannot be recorded."""
    tx.effects.orders.append(AcknowledgeOrder(run=message.run))
    run = tx.runs.find_open(message.run)
    if run is not None:
        is_unknown = isinstance(message, ExitReport) and message.code is None and message.signal is None
        fail_without_retry(tx, run, reason, exit_code=None if is_unknown else 1, cause="executor")


def finish(tx: Transaction, run: OpenRun, result: RunResult, *, at: datetime, cause: str) -> None:
    delay = _retry_delay(tx, run, result)
    if not tx.jobs.finish(run, result, finished_at=at, now=tx.now, cause=cause, chain_continues=delay is not None):
        return
    tx.effects.freed_workers.append(run.worker)
    tx.effects.has_short_run = tx.effects.has_short_run or (
        result.status is Status.COMPLETED and at - run.started_at < MAX_SHORT_RUN
    )
    tx.effects.samples.append(EndSample(run.type, result.status, _elapsed_seconds(run.started_at, at)))
    breaker.record_end(tx, run, result, at=at)
    if run.has_products and result.status in _WITHDRAWING_STATUSES:
        tx.artifacts.withdraw_of_job(run.job)
    if delay is not None:
        _continue_chain(tx, run, delay)
        _invalidate_run_products(tx, run)
        tx.effects.retried_runs.append(run.run)
    elif not run.is_standalone:
        end_chain(tx, run.chain, result.status)
        if run.has_products and result.status is Status.COMPLETED:
            expect_products(tx, run.chain, run.job)


def end_chain(tx: Transaction, chain: JobId, status: Status) -> None:
    """End a chain with its last job: resolve its dependents, invalidate its products, update its group."""
    resolved = tx.edges.resolve(chain, policies_met_by(status))
    if resolved.has_products:
        invalidate_products(tx, chain)
    if resolved.group is not None:
        groups.record_end(tx, resolved.group, chain, status)


def fail_without_retry(tx: Transaction, run: OpenRun, reason: str, *, exit_code: int | None, cause: str) -> None:
    """Fail a run with an unusable record. It is not retried and does not count for its breakers."""
    end = RunResult(status=Status.FAILED, exit_code=exit_code, reason=reason, error=reason)
    if tx.jobs.finish(run, end, finished_at=tx.now, now=tx.now, cause=cause, chain_continues=False):
        tx.effects.samples.append(EndSample(run.type, end.status, _elapsed_seconds(run.started_at, tx.now)))
        breaker.record_unused_claim(tx, run)
        if run.has_products:
            tx.artifacts.withdraw_of_job(run.job)
        end_chain(tx, run.chain, Status.FAILED)


def record_dispatch_failure(tx: Transaction, run: OpenRun, error: str) -> None:
    """Record a failed start, which is not a run: the job waits for its next attempt, or is abandoned."""
    failures = run.dispatch_failures + 1
    delay = tx.settings.breaker.start_delay(failures)
    if delay is None:
        abandon(tx, run, failures=failures, error=error, reason=f"{CIRCUIT_BROKEN}: {error}")
        return
    tx.runs.requeue(
        run, dispatch_failures=failures, error=error, not_before=tx.now + delay, now=tx.now, cause="executor"
    )
    breaker.record_unused_claim(tx, run)
    _invalidate_run_products(tx, run)
    _rejoin_group(tx, run)


def requeue(tx: Transaction, run: OpenRun, *, cause: str) -> None:
    """Return a claimed job to its position in the queue, since its start failed through no fault of its own. If it was
    cancelled since, end it."""
    tx.runs.requeue(run, dispatch_failures=run.dispatch_failures, error=None, not_before=None, now=tx.now, cause=cause)
    breaker.record_unused_claim(tx, run)
    _invalidate_run_products(tx, run)
    if run.stop_requested not in (None, STOPPED_BY_SHUTDOWN):
        cancel_waiting(tx, run.job, run.chain, reason=run.stop_requested, actor=None)
    else:
        _rejoin_group(tx, run)


def abandon(tx: Transaction, run: OpenRun, *, failures: int, error: str, reason: str) -> None:
    tx.jobs.abandon(run, dispatch_failures=failures, error=error, reason=reason, now=tx.now, cause="executor")
    breaker.record_unused_claim(tx, run)
    end_chain(tx, run.chain, Status.FAILED)


def cancel_waiting(
    tx: Transaction, job: JobId, chain: JobId, *, reason: str, actor: str | None, cause: str = "cancel"
) -> bool:
    """Cancel a job that has not started. It has no run, and the exit code of all cancelled jobs."""
    is_ended = tx.jobs.end_waiting(
        job, Status.CANCELLED, exit_code=EXIT_CANCELLED, reason=reason, now=tx.now, cause=cause, actor=actor
    )
    if is_ended:
        end_chain(tx, chain, Status.CANCELLED)
    return is_ended


def cancel_unreadable(tx: Transaction, job: JobId, chain: JobId, *, reason: str, actor: str) -> None:
    """End a job of unknown status that has no open run."""
    tx.jobs.end_unreadable(job, Status.CANCELLED, exit_code=EXIT_CANCELLED, reason=reason, now=tx.now, actor=actor)
    end_chain(tx, chain, Status.CANCELLED)


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
    results = [_repair_chain_in_savepoint(tx, failure, cause) for failure in failures]
    return results.count(True), results.count(None)


def _repair_chain_in_savepoint(tx: Transaction, failure: UnretriedFailure, cause: str) -> bool | None:
    """Repair a chain in a savepoint, so that one unusable record does not affect the others.

    Return whether the chain continues, or `None` after an error; then end the chain if possible, so that no job waits
    for it."""
    has_continued = _try_in_savepoint(tx, failure, lambda: _repair_chain(tx, failure, cause))
    if has_continued is None:
        _try_in_savepoint(tx, failure, lambda: _end_exhausted_chain(tx, failure))
    return has_continued


def _try_in_savepoint(tx: Transaction, failure: UnretriedFailure, operation: Callable[[], bool]) -> bool | None:
    try:
        with tx.savepoint():
            return operation()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("the chain of %s could not be recovered", format_job_id(failure.job))
        return None


def _repair_chain(tx: Transaction, failure: UnretriedFailure, cause: str) -> bool:
    """Create the missing retry, or end the chain. Return whether the chain continues."""
    end = RunResult(status=Status.FAILED, exit_code=failure.exit_code, reason=failure.reason)
    is_cancelled = _is_cancel_requested(failure.stop_requested)
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
        groups.record_end(tx, resolved.group, failure.chain, Status.FAILED)
    return False


def _continue_chain(tx: Transaction, run: OpenRun, delay: timedelta) -> None:
    tx.chains.retry(run.job, retries=run.retries + 1, not_before=tx.now + delay, now=tx.now, cause=RETRY_CAUSE)


def _retry_delay(tx: Transaction, run: OpenRun, result: RunResult) -> timedelta | None:
    """Return the delay before the retry; `None` if the chain ends with this run."""
    if result.status is not Status.FAILED or run.retry_policy is None:
        return None
    is_cancelled = _is_cancel_requested(run.stop_requested)
    return decide_retry(
        run.retry_policy, run.retries, result, is_cancel_requested=is_cancelled, random_fraction=tx.random_source()
    )


def _is_cancel_requested(stop_requested: str | None) -> bool:
    """Return whether a client cancelled the run. A stop by a shutdown is not a cancellation."""
    return stop_requested is not None and stop_requested != STOPPED_BY_SHUTDOWN


def _invalidate_run_products(tx: Transaction, run: OpenRun) -> None:
    """Invalidate the facts about the products of a run that ended while its chain continues."""
    if run.has_products:
        invalidate_products(tx, run.chain)


def _rejoin_group(tx: Transaction, run: OpenRun) -> None:
    """Tell the group that the job waits again, as if it had never been claimed."""
    if run.group is not None:
        groups.record_requeue(tx, run.group, run.job)


def _append_error(message: ExitReport) -> str:
    return f"{message.tail.rstrip()}\n{message.workspace_error}".lstrip() if message.workspace_error else message.tail


def _replace_nul(text: str) -> str:
    """Replace NUL in the output of a child: not every database accepts it."""
    return text.replace("\x00", "\ufffd")


def _elapsed_seconds(start: datetime, end: datetime) -> float:
    """Return the seconds between two times; zero if the wall clock was set back in between."""
    return max(0.0, (end - start).total_seconds())
