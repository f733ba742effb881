"""Inbox for executor messages: kept until they are stored, and recorded in order.

It also watches the starts that the executor has not confirmed yet. A start that is not confirmed within `start_timeout`
is late. The order remains valid: an executor that answers again executes it, and that counts as a start. Only the
executor knows that a run never began, so only its report returns the job to the queue. Times are on the monotonic
clock, and in memory: a new connection reports every run.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rota.clock import Clock
from rota.db.runs import OpenRun
from rota.engine import finish
from rota.engine.dispatch import StartOrders
from rota.engine.executor_health import ExecutorHealth
from rota.engine.prefetch import AcceptResult, PrefetchSeries
from rota.engine.recovery import RETRIES_CREATED, RecoveryCounts, reconcile
from rota.engine.requests import run_in_savepoint
from rota.engine.transaction import Transaction
from rota.executor.port import (
    ConnectionLoss,
    ExecutorFailure,
    ExecutorMessage,
    ExitReport,
    PingOrder,
    Pong,
    PrefetchStart,
    RunInventory,
    StartConfirmation,
    StartFailure,
    StartOrder,
    StartRefusal,
    WithdrawConfirmation,
)
from rota.ids import RunId, format_run_id
from rota.kernel.reservations import format_owner, lock_owner

log = logging.getLogger("rota.engine")

_MAX_LISTED_OWNERS = 5


class ExecutorInbox:
    """Step of the turn that records the messages of the executor."""

    def __init__(
        self, health: ExecutorHealth, start_orders: StartOrders, clock: Clock, prefetch: PrefetchSeries
    ) -> None:
        self._health = health
        self._start_orders = start_orders
        self._prefetch = prefetch
        self._clock = clock
        self._pending: list[ExecutorMessage] = []
        self._unconfirmed = self._unconfirmed_before = UnconfirmedStarts()
        self.stuck_message: str | None = None
        """Message about late starts while the executor starts other runs."""
        self._unrecorded: dict[RunId, str] = {}
        self.recovery_counts: RecoveryCounts | None = None
        """Counts of the first reconciliation, plus the retries of the ends that follow it; `None` before it."""
        self._ended_while_down: set[RunId] = set()
        """Runs of the first reconciliation that had ended; their exit reports follow."""

    def receive(self) -> list[ExecutorMessage]:
        messages = self._health.receive()
        if self._health.silence is not None and not self._health.is_connected:
            self._unconfirmed.was_silent_on_connect = True
        return [*self._pending, *messages]

    def set_pending(self, messages: list[ExecutorMessage]) -> None:
        """Set the messages to record in the next turn: all of them if the turn failed, else none."""
        self._pending = messages

    @property
    def errors(self) -> list[str]:
        """Messages about ends of runs that cannot be recorded."""
        return list(self._unrecorded.values())

    def next_deadline(self, timeout: float) -> float | None:
        """Return the time at which the next start becomes late."""
        return self._unconfirmed.next_deadline(self._clock.monotonic(), timeout)

    def record(self, tx: Transaction, messages: Sequence[ExecutorMessage]) -> None:
        self._unconfirmed_before = self._unconfirmed.copy()
        if any(isinstance(message, ExitReport) for message in messages):
            tx.fact_cache.last_run_end = tx.fact_cache.begin_probe()
        for message in messages:
            self._record_message(tx, message)

    def record_in_savepoints(self, tx: Transaction, messages: Sequence[ExecutorMessage]) -> None:
        """Record the messages again after a rollback, each in its own savepoint."""
        self._unconfirmed = self._unconfirmed_before
        for message in messages:
            self._record_in_savepoint(tx, message)

    def check_silence(self, tx: Transaction) -> None:
        """Check whether the executor answers, and ping it if it has been quiet.

        A single late start, perhaps of a program on a dead mount, does not delay the others."""
        now, timeout = self._clock.monotonic(), tx.settings.start_timeout.total_seconds()
        late = self._unconfirmed.late_starts(now, timeout)
        stuck = [run for run in late if self._unconfirmed.is_overtaken(run)]
        unanswered = [run for run in late if run not in stuck]
        quiet_since = min(map(self._unconfirmed.ordered_at, unanswered), default=self._health.unanswered_since(timeout))
        unconfirmed = "" if quiet_since is None else _name_owners(tx, self._unconfirmed.runs)
        self._health.update_silence(quiet_since, unconfirmed, now=tx.now)
        self.stuck_message = _explain_stuck(_name_owners(tx, stuck)) if stuck and quiet_since is None else None
        if self._health.should_ping(timeout):
            tx.effects.orders.append(PingOrder())
            tx.effects.on_commit.append(self._health.record_ping)

    def expect_confirmations(self, tx: Transaction) -> None:
        """Expect confirmations of the start orders of a committed turn. Call before sending them."""
        self._count_retries(tx.effects.retried_runs)
        self._expect([start.run for start in tx.effects.starts if isinstance(start, StartOrder)])

    def _count_retries(self, retried: Sequence[RunId]) -> None:
        count = len(self._ended_while_down.intersection(retried))
        if self.recovery_counts is not None and count:
            self._ended_while_down.difference_update(retried)
            self.recovery_counts = {
                **self.recovery_counts,
                RETRIES_CREATED: self.recovery_counts.get(RETRIES_CREATED, 0) + count,
            }

    def _expect(self, runs: list[RunId]) -> None:
        self._unconfirmed.expect(runs, self._clock.monotonic())

    def _record_in_savepoint(self, tx: Transaction, message: ExecutorMessage) -> None:
        """Record a message in a savepoint.

        An end that cannot be recorded fails its own job: as RUNNING the job would hold its capacity and locks forever.
        An unrecorded start is ignored, because its end follows. An inventory is kept and retried: nothing starts
        without it."""
        if isinstance(message, RunInventory):
            # Its own savepoint: accepted prefetch starts must be recorded even if the reconciliation fails, because
            # their exit reports follow.
            run_in_savepoint(
                tx, partial(self._prefetch.reconcile, known_runs=frozenset(report.run for report in message.runs))
            )
        error = run_in_savepoint(tx, partial(self._record_message, message=message))
        if isinstance(message, PrefetchStart) and isinstance(error, Exception):
            self._prefetch.abandon(tx, message.run)
            self._health.recovery_state.await_end(message.run)
        if isinstance(message, RunInventory) and isinstance(error, Exception):
            self._health.retain_inventory(message, error)
        if not isinstance(message, ExitReport | StartFailure):
            return
        if isinstance(error, Exception):
            reason = f"scheduler data error: {error}"
            error = run_in_savepoint(tx, partial(finish.fail_unrecordable, message=message, reason=reason))
        if isinstance(error, Exception):
            self._unrecorded[message.run] = f"cannot record the end of {format_run_id(message.run)}: {error!r}"
        else:
            self._unrecorded.pop(message.run, None)

    def _record_message(self, tx: Transaction, message: ExecutorMessage) -> None:
        match message:
            case StartConfirmation():
                self._health.clear_machine_error()
                self._health.recovery_state.apply_message(message)
                self._unconfirmed.confirm(message.run)
                finish.record_start(tx, message)
            case ExitReport():
                self._unconfirmed.confirm(message.run)
                self._health.recovery_state.apply_message(message)
                self._unrecorded.pop(message.run, None)
                finish.record_exit(tx, message)
            case StartFailure():
                self._unconfirmed.confirm(message.run)
                self._health.recovery_state.apply_message(message)
                if message.is_machine_failure:
                    self._health.record_machine_error(message.error)
                finish.record_failed_start(tx, message)
            case StartRefusal():
                self._unconfirmed.confirm(message.run)
                finish.record_refusal(tx, message)
            case PrefetchStart() | WithdrawConfirmation():
                self._record_prefetch(tx, message)
            case ExecutorFailure():
                self._health.notice = message.error
            case Pong():
                pass  # `ExecutorHealth.receive` has noted that a message came
            case RunInventory() | ConnectionLoss():
                self._record_connection(tx, message)

    def _record_connection(self, tx: Transaction, message: RunInventory | ConnectionLoss) -> None:
        if isinstance(message, RunInventory):
            self._reconcile(tx, message)
            return
        log.warning("lost the connection to the supervisor: %s", message.reason)
        timeout, is_silent = tx.settings.start_timeout.total_seconds(), self._health.silence is not None
        late = self._unconfirmed.late_starts(self._clock.monotonic(), timeout)
        self._unconfirmed.end_connection(self._unconfirmed.runs if is_silent else late)
        self._health.disconnect()

    def _record_prefetch(self, tx: Transaction, message: PrefetchStart | WithdrawConfirmation) -> None:
        if isinstance(message, WithdrawConfirmation):
            self._prefetch.record_withdrawal(tx, message.series)
            return
        result = self._prefetch.record_start(tx, message)
        if result is AcceptResult.CLAIMED:
            self._expect([message.run])
        elif result is AcceptResult.UNWANTED:
            self._health.recovery_state.await_end(message.run)

    def _reconcile(self, tx: Transaction, inventory: RunInventory) -> None:
        """Compare the run inventory of a new connection with the store."""
        self._start_orders.forget_environments()
        unconfirmed = [report.run for report in inventory.runs if report.pid is None and not report.has_ended]
        self._expect(unconfirmed)
        self._prefetch.reconcile(tx, frozenset(report.run for report in inventory.runs))
        counts, strays = reconcile(tx, inventory, self._make_late_check(tx))
        self._unconfirmed.late_at_disconnect, self._unconfirmed.was_silent_on_connect = frozenset(), False
        tx.effects.open_runs.clear()
        if self.recovery_counts is None:
            self.recovery_counts = counts
            self._ended_while_down = {report.run for report in inventory.runs if report.has_ended}
        self._health.complete_recovery(strays)

    def _make_late_check(self, tx: Transaction) -> Callable[[OpenRun], bool]:
        """Return a predicate: whether the start of a run was unconfirmed for too long before this inventory.

        A scheduler that was restarted since only knows when the start was ordered."""
        late, was_silent = self._unconfirmed.late_at_disconnect, self._unconfirmed.was_silent_on_connect
        timeout = tx.settings.start_timeout
        return lambda run: run.run in late or (was_silent and tx.now - run.started_at >= timeout)


class UnconfirmedStarts:
    """Starts that were ordered and that the executor has not confirmed."""

    def __init__(self) -> None:
        self._ordered_at: dict[RunId, float] = {}
        """Time of each start order."""
        self._newest_confirmed_at = -math.inf
        """Order time of the newest start that the executor has confirmed."""
        self.late_at_disconnect: frozenset[RunId] = frozenset()
        """Starts that the executor had left unconfirmed for too long when the connection ended."""
        self.was_silent_on_connect = False
        """Whether the executor was silent on connect: then starts that are late by the store count as late, too."""

    def copy(self) -> UnconfirmedStarts:
        copied = UnconfirmedStarts()
        copied._ordered_at, copied._newest_confirmed_at = dict(self._ordered_at), self._newest_confirmed_at
        copied.late_at_disconnect, copied.was_silent_on_connect = self.late_at_disconnect, self.was_silent_on_connect
        return copied

    def end_connection(self, late: Iterable[RunId]) -> None:
        """Forget all orders, except which starts were late: the next inventory shows their state."""
        self._ordered_at.clear()
        self._newest_confirmed_at = -math.inf
        self.late_at_disconnect |= frozenset(late)

    def expect(self, runs: Iterable[RunId], now: float) -> None:
        self._ordered_at.update(dict.fromkeys(runs, now))

    def confirm(self, run: RunId) -> None:
        ordered = self._ordered_at.pop(run, None)
        if ordered is not None:
            self._newest_confirmed_at = max(self._newest_confirmed_at, ordered)

    def late_starts(self, now: float, timeout: float) -> Sequence[RunId]:
        """Return the late starts, oldest first."""
        return [run for run, ordered in self._ordered_at.items() if ordered + timeout <= now]

    @property
    def runs(self) -> Sequence[RunId]:
        return list(self._ordered_at)

    def ordered_at(self, run: RunId) -> float:
        return self._ordered_at[run]

    def is_overtaken(self, run: RunId) -> bool:
        """Return whether the executor has confirmed another start that was ordered at the same time or later."""
        return self._ordered_at[run] <= self._newest_confirmed_at

    def next_deadline(self, now: float, timeout: float) -> float | None:
        """Return the time at which the next start becomes late."""
        due = (ordered + timeout for ordered in self._ordered_at.values())
        return min((moment for moment in due if moment > now), default=None)


def _name_owners(tx: Transaction, runs: Sequence[RunId]) -> str:
    """Return the names of the jobs and reservations of these runs, as far as they exist; at most a few."""
    owners = []
    for run in runs[:_MAX_LISTED_OWNERS]:
        reservation = tx.reservations.find_by_run(run)
        owner = tx.runs.job_of(run) if reservation is None else lock_owner(reservation.id)
        if owner is not None:
            owners.append(format_owner(owner))
    more = len(runs) - _MAX_LISTED_OWNERS
    return ", ".join(owners) + (f" and {more:,} more" if more > 0 else "")


def _explain_stuck(owners: str) -> str:
    return f"the supervisor starts other runs, but has not confirmed the start of {owners}"
