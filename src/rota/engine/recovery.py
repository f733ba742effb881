"""Recovery: the open runs of the store are compared with the run inventory of the executor.

    store            executor                      result
    RUNNING          knows it, alive               adopted: the run continues
    RUNNING          knows its end                 recorded with its real exit code (the exit report follows)
    DISPATCHED       knows it, alive               adopted
    DISPATCHED       knows its end                 start recorded, if there was one; the exit report follows
    any              its exit status is lost       the exit report follows
    DISPATCHED       does not know it              QUEUED at its old position: it was never started
    DISPATCHED       does not know it,             failed start: tried again after a delay, or FAILED
                     start was late
    RUNNING          does not know it              FAILED `Scheduler crash recovery` (DEC-008 as the fallback)
    no open run      knows it, alive               a stray, for instance after the store was restored: stopped; nothing
                                                   starts before it has ended
    FAILED, with a retry due, but no next job in its chain: the retry is created
    unfinished group without an active member: the group is finished

Each connection to the executor begins with a run inventory: at the start of the scheduler, after `kill -9`, and after
the executor was lost. So recovery always enters by the same message. It is idempotent: a second pass changes nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from rota.db.decoding import to_micros
from rota.db.runs import OpenRun
from rota.engine import direct, groups
from rota.engine.finish import (
    abandon,
    create_missing_retries,
    fail_without_retry,
    finish,
    record_dispatch_failure,
    requeue,
)
from rota.engine.transaction import Transaction
from rota.errors import StorageFull, StoreError
from rota.executor.port import ExitReport, RunInventory, RunReport, StartConfirmation, StartFailure, StopOrder
from rota.ids import RunId, format_run_id
from rota.kernel.events import Event
from rota.kernel.run import CRASH_RECOVERY, RunResult
from rota.kernel.status import Status

log = logging.getLogger("rota.engine")

CAUSE = "recovery"

COUNT_NAMES = (
    "running_jobs_adopted",
    "running_jobs_recovered",
    "finished_while_down",
    "requeued",
    "reservations_expired",
    "retries_created",
    "groups_recovered",
    "unknown_runs_ended",
    "errors",
)
RETRIES_CREATED = "retries_created"
RecoveryCounts = dict[str, int]

NEVER_STARTED = "the supervisor did not answer, and never started it"
RECONCILE_INTERVAL = 10.0
"""Seconds before an inventory that could not be reconciled is retried."""


def adopt_run(tx: Transaction, run: OpenRun, report: RunReport) -> None:
    """Record the start that the executor reports, and repeat a requested stop. The run may have ended already."""
    if report.pid is not None:
        tx.runs.confirm_start(run, report.pid, report.start_time or 0, tx.now, CAUSE)
    if run.stop_requested is not None:
        tx.effects.orders.append(StopOrder(run=run.run, kill_after=tx.settings.kill_after.total_seconds()))


def _count_name(report: RunReport) -> str:
    if report.is_lost:
        return "running_jobs_recovered"
    return "finished_while_down" if report.has_ended else "running_jobs_adopted"


def reconcile_run(tx: Transaction, run: OpenRun, report: RunReport | None, *, is_start_overdue: bool) -> str:
    """Reconcile one open run, and return the name of its count."""
    if report is not None:
        adopt_run(tx, run, report)
        return _count_name(report)
    if run.status is Status.DISPATCHED:
        if is_start_overdue and run.stop_requested is None:
            record_dispatch_failure(tx, run, NEVER_STARTED)
        else:
            requeue(tx, run, cause=CAUSE)
        return "requeued"
    end = RunResult(status=Status.FAILED, exit_code=None, reason=CRASH_RECOVERY, error=CRASH_RECOVERY)
    finish(tx, run, end, at=tx.now, cause=CAUSE)
    return "running_jobs_recovered"


def _reconcile_in_savepoint(tx: Transaction, run: OpenRun, report: RunReport | None, *, is_start_overdue: bool) -> str:
    """Reconcile a run in a savepoint, so that one unusable record does not affect the others.

    After an error, the exit report follows if the executor knows the run. Otherwise fail the run here, or it would hold
    its capacity and locks forever."""
    count_name, error = _run_in_savepoint(
        tx, run, lambda: reconcile_run(tx, run, report, is_start_overdue=is_start_overdue)
    )
    if error is not None and report is None:
        reason = f"scheduler data error: {error}"
        _run_in_savepoint(tx, run, lambda: _fail_run(tx, run, reason))
    return count_name


def _fail_run(tx: Transaction, run: OpenRun, reason: str) -> str:
    if run.status is Status.DISPATCHED:
        abandon(tx, run, failures=run.dispatch_failures, error=reason, reason=reason)
    else:
        fail_without_retry(tx, run, reason, exit_code=None, cause=CAUSE)
    return "errors"


def _run_in_savepoint(tx: Transaction, run: OpenRun, operation: Callable[[], str]) -> tuple[str, Exception | None]:
    try:
        with tx.savepoint():
            return operation(), None
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        log.exception("%s could not be recovered", format_run_id(run.run))
        return "errors", error


def stop_strays(tx: Transaction, strays: Sequence[RunReport]) -> set[RunId]:
    """Stop live runs that are not open in the store, and return their ids.

    A stray would run at the same time as the next run of its job, unrecorded and outside all limits. Its end is
    reported and acknowledged as usual. Its id is not used again."""
    if strays:
        tx.ids.retire("run", max(stray.run for stray in strays))
    alive = [stray.run for stray in strays if not stray.has_ended]
    for run in alive:
        log.warning("stopped %s: it is alive, but not open in the store", format_run_id(run))
        tx.effects.orders.append(StopOrder(run=run))
    return set(alive)


def reconcile(
    tx: Transaction, inventory: RunInventory, is_start_overdue: Callable[[OpenRun], bool]
) -> tuple[RecoveryCounts, set[RunId]]:
    """Reconcile every open run, before any dispatch. Return the counts, and the strays that must end first.

    `is_start_overdue` tells whether the start of a run was not confirmed in time before this inventory."""
    reports = {report.run: report for report in inventory.runs}
    counts: Counter[str] = Counter()
    retried = len(tx.effects.retried_runs)
    for run in tx.runs.list_open():
        counts[
            _reconcile_in_savepoint(tx, run, reports.pop(run.run, None), is_start_overdue=is_start_overdue(run))
        ] += 1
    counts["reservations_expired"] += direct.reconcile(tx, reports)
    strays = stop_strays(tx, list(reports.values()))
    created, errors = create_missing_retries(tx, CAUSE)
    created += len(tx.effects.retried_runs) - retried
    recovered = groups.finish_abandoned_groups(tx, CAUSE)
    counts += Counter(
        retries_created=created, groups_recovered=recovered, unknown_runs_ended=len(strays), errors=errors
    )
    if counts:
        tx.events.emit(Event(kind="scheduler.recovered", at=to_micros(tx.now), cause=CAUSE, data=dict(counts)))
    return dict(counts), strays


class RecoveryState:
    """Unfinished recovery of a connection to the executor. While there is any, nothing is claimed.

    It consists of strays that have not ended, or of an inventory that could not be reconciled. The executor sends the
    inventory once per connection, so it is kept, updated by later messages, and retried. It is kept in memory only: a
    new connection begins with its own inventory.
    """

    def __init__(self) -> None:
        self._strays: set[RunId] = set()
        self._inventory: RunInventory | None = None
        self._error = ""
        self._retry_at = 0.0

    def complete(self, strays: set[RunId] | None = None) -> None:
        """Mark the inventory as reconciled, except for these strays. Also called when the connection is lost."""
        self._strays, self._inventory = strays or set(), None

    def await_end(self, run: RunId) -> None:
        """Wait for the end of a run that was ordered to stop."""
        self._strays.add(run)

    def retain_inventory(self, inventory: RunInventory, error: Exception, now: float) -> None:
        self._strays, self._inventory = set(), inventory
        self._error, self._retry_at = repr(error), now + RECONCILE_INTERVAL

    def due_inventories(self, now: float) -> list[RunInventory]:
        return [] if self._inventory is None or now < self._retry_at else [self._inventory]

    def apply_message(self, message: StartConfirmation | ExitReport | StartFailure) -> None:
        """Update the kept inventory, so that a retry requeues no confirmed start and stops no ended run."""
        if not isinstance(message, StartConfirmation):
            self._strays.discard(message.run)
        if self._inventory is not None:
            self._inventory = RunInventory(runs=[_apply_to_report(report, message) for report in self._inventory.runs])

    @property
    def blocker(self) -> str | None:
        if self._inventory is not None:
            return f"nothing can be started: cannot reconcile the runs of the supervisor: {self._error}"
        if self._strays:
            return f"nothing is started until runs unknown to the store have ended: {_format_runs(self._strays)}"
        return None

    @property
    def next_deadline(self) -> float | None:
        return None if self._inventory is None else self._retry_at


def _format_runs(runs: set[RunId]) -> str:
    return ", ".join(format_run_id(run) for run in sorted(runs))


def _apply_to_report(report: RunReport, message: StartConfirmation | ExitReport | StartFailure) -> RunReport:
    if report.run != message.run:
        return report
    if isinstance(message, StartConfirmation):
        return msgspec.structs.replace(report, pid=message.pid, start_time=message.start_time)
    return msgspec.structs.replace(report, has_ended=True)
