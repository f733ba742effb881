"""Prefetching: jobs that the executor may start by itself (`kernel/prefetch.py` says when and why).

    a short run succeeded ─► rows in `prefetch` ─► COMMIT ─► PrefetchOrder ──► executor
                                                                                 │ a run succeeds: start the next job
    record the end, claim the accepted job ◄────────── ExitReport, PrefetchStart ◄─┘
    a request or a timer: WithdrawOrder ──► ◄── WithdrawConfirmation: record the starts until then, then continue

While jobs are offered, the engine claims only the jobs that the executor reports as started, because the executor may
use the free capacity at any moment. The offer is committed before it is sent. So after a crash of either side, the run
inventory shows which offered jobs were started; the others are still in the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto

import msgspec

from rota.db.prefetch import PrefetchedJob
from rota.db.runs import OpenRun
from rota.engine.dispatch import StartOrders
from rota.engine.metrics import ClaimSample
from rota.engine.transaction import NODE, Settings, Transaction
from rota.executor.port import Executor, PrefetchOrder, PrefetchStart, StartOrder, StopOrder
from rota.ids import JobId, RunId, format_run_id
from rota.kernel import prefetch
from rota.kernel.prefetch import find_common_lane, next_to_offer
from rota.kernel.tick import free_worker_numbers

log = logging.getLogger("rota.engine")

WITHDRAW_TIMEOUT = 1.0
"""Seconds that a turn waits for the executor to confirm a withdrawal. A frozen executor confirms it later; until then
nothing is claimed, and everything else continues."""


class AcceptResult(Enum):
    """Result of recording a prefetched start."""

    CLAIMED = auto()
    DUPLICATE = auto()
    """The start was recorded before."""
    UNWANTED = auto()
    """The job has left the queue; the run is being stopped."""


class PrefetchSeries:
    def __init__(self, start_orders: StartOrders, executor: Executor) -> None:
        self._start_orders = start_orders
        self._executor = executor
        self._number = 1
        self._offered: dict[RunId, PrefetchedJob] = {}
        """Offered jobs that the executor has not started, in order."""
        self.runs: dict[RunId, OpenRun] = {}
        """Cached open runs. Valid as long as no requests arrive: then only ends of runs change them."""
        self._settings: Settings | None = None
        self._width = 0
        self.is_withdrawing = False
        """Whether a withdrawal has been requested and not confirmed."""
        self._is_silent = False
        """Whether the confirmation of a withdrawal is late."""
        self._has_stale_forecast = False
        """Whether a request has arrived since the offer, so that the offered records may be outdated."""

    @property
    def is_open(self) -> bool:
        return bool(self._offered)

    @property
    def is_active(self) -> bool:
        """Whether jobs are offered and no withdrawal has been requested."""
        return self.is_open and not self.is_withdrawing

    @property
    def blocker(self) -> str | None:
        """Reason why no job starts while the confirmation of a withdrawal is late."""
        reason = "nothing is started until the supervisor has reported which prefetched jobs it started"
        return reason if self._is_silent else None

    def was_planned_with(self, settings: Settings) -> bool:
        """Return whether the offer was planned with these settings."""
        return self._settings is settings

    def has_remaining(self, tx: Transaction) -> bool:
        """Return whether, after the messages of this turn, the executor may still start offered jobs."""
        effects = tx.effects
        return not effects.is_prefetch_withdrawn and len(self._offered) > len(effects.accepted & self._offered.keys())

    def withdraw(self) -> None:
        """Withdraw the offer, and wait for the confirmation until the timeout."""
        self.is_withdrawing = True
        self._executor.withdraw(self._number, WITHDRAW_TIMEOUT)

    # Inside a transaction.

    def record_start(self, tx: Transaction, message: PrefetchStart) -> AcceptResult:
        at = min(datetime.fromtimestamp(message.at, UTC), tx.now)
        if self._claim(tx, message.run, at):
            return AcceptResult.CLAIMED
        if tx.runs.job_of(message.run) is not None:
            return AcceptResult.DUPLICATE
        log.warning("stopped %s: its job was prefetched but has left the queue", format_run_id(message.run))
        self.abandon(tx, message.run)
        return AcceptResult.UNWANTED

    def abandon(self, tx: Transaction, run: RunId) -> None:
        """Stop a prefetched run that cannot be recorded, and never use its id again."""
        tx.ids.retire("run", run)
        tx.prefetch.withdraw(run)
        tx.effects.accepted.add(run)
        tx.effects.orders.append(StopOrder(run=run))

    def record_withdrawal(self, tx: Transaction, number: int) -> None:
        if number == self._number and not tx.effects.is_prefetch_withdrawn:
            tx.prefetch.clear()
            tx.effects.is_prefetch_withdrawn = True

    def reconcile(self, tx: Transaction, known_runs: frozenset[RunId]) -> None:
        """Claim the offered runs that a new connection knows; the others will not be started."""
        for run in tx.prefetch.offered_runs():
            if run in known_runs:
                self._claim(tx, run, None)
        tx.prefetch.clear()
        tx.effects.is_prefetch_withdrawn = True

    def _claim(self, tx: Transaction, run: RunId, at: datetime | None) -> bool:
        """Claim a prefetched job, on the worker of a run that has ended if that is known."""
        effects = tx.effects
        worker = (
            effects.freed_workers.pop()
            if effects.freed_workers
            else f"{NODE}/{next(free_worker_numbers(tx.queue.pool_usage()[1]))}"
        )
        is_claimed = tx.prefetch.accept(run, worker, started_at=at, now=tx.now)
        effects.accepted.add(run)
        effects.open_runs.pop(run, None)
        prefetched = self._offered.get(run)
        if is_claimed and prefetched is not None:
            started = tx.now if at is None else at
            if not self._has_stale_forecast:
                effects.open_runs[run] = msgspec.structs.replace(prefetched.run, worker=worker, started_at=started)
            effects.samples.append(ClaimSample(prefetched.dispatch.type, prefetched.dispatch.queued_seconds(started)))
        return is_claimed

    def extend(self, tx: Transaction) -> None:
        """Offer the next jobs of the queue at the end of a turn without requests, if their order is certain."""
        offered = [prefetched.run.job for run, prefetched in self._offered.items() if run not in tx.effects.accepted]
        if (
            not tx.effects.has_short_run
            or tx.effects.is_prefetch_withdrawn
            or self.is_withdrawing
            or len(offered) > prefetch.PREFETCH_DEPTH // 2
        ):
            return
        if not self._executor.supports_prefetch or _is_paced(tx):
            return
        lanes, running = tx.lanes.ready(2), tx.prefetch.running_lanes()
        lane = find_common_lane([run.lane for run in running], [lane for lane, _ in lanes])
        if lane is None or lanes[0][1] or tx.prefetch.has_start_constraints():
            return
        if not tx.settings.pool_sizes.has_capacity_for(tx.queue.pool_usage()[0]):
            return  # the end of a run frees no capacity
        heads = tx.lanes.heads(lane, len(offered) + prefetch.PREFETCH_DEPTH)
        standalone = tx.prefetch.standalone_jobs([*(run.job for run in running), *heads[len(offered) :]])
        if all(run.job in standalone for run in running):
            self._offer(tx, next_to_offer(heads, offered, standalone), [run.run for run in running])

    def _offer(self, tx: Transaction, jobs: Sequence[JobId], running: Sequence[RunId]) -> None:
        if not jobs:
            return
        first = tx.ids.allocate("run", len(jobs))
        dispatches = tx.queue.dispatches({job: RunId(first + n) for n, job in enumerate(jobs)})
        starts: list[StartOrder] = []
        with suppress(ValueError, LookupError, OverflowError):  # an unusable record is reported when its job is claimed
            for prefetched in tx.prefetch.jobs(dispatches, tx.now):
                starts.append(self._start_orders.make_start(tx, prefetched.dispatch))
                tx.effects.offered[prefetched.run.run] = prefetched
        if starts:
            tx.prefetch.offer({start.job: start.run for start in starts}, tx.now)
            # The exit report of a run may arrive shortly before the start that takes its capacity.
            width = max(len(running), self._width if self.has_remaining(tx) else 0)
            order = PrefetchOrder(series=self._number, max_running=width, starts=starts, known_runs=running)
            tx.effects.prefetch_order = order

    # After the commit.

    def commit(self, tx: Transaction, *, has_requests: bool) -> None:
        effects = tx.effects
        for run in effects.accepted:
            self._offered.pop(run, None)
        if effects.is_prefetch_withdrawn:
            self._offered.clear()
            self._number += 1
            self.is_withdrawing = False
        if effects.prefetch_order is not None:
            self._offered.update(effects.offered)
            self._settings = tx.settings
            self._width = effects.prefetch_order.max_running
        self._is_silent = bool(self._offered) and self.is_withdrawing
        self._has_stale_forecast = bool(self._offered) and (has_requests or self._has_stale_forecast)
        is_current = bool(self._offered) and not has_requests
        self.runs = (
            {run: record for run, record in effects.open_runs.items() if record is not None} if is_current else {}
        )


def _is_paced(tx: Transaction) -> bool:
    """Return whether anything besides capacity decides which job starts next."""
    settings, effects = tx.settings, tx.effects
    is_slowed = settings.batch_size is not None or settings.dispatch_interval is not None or bool(settings.spawn_delay)
    is_held = tx.hold_text is not None or bool(effects.clear_operations or tx.reservations_without_client)
    return is_slowed or is_held or bool(effects.probe_requests)
