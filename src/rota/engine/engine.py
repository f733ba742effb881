"""The engine: one turn is one write transaction.

    messages from the executor ┐
    requests from commands     ├─▶ BEGIN · run each · evaluate · claim · COMMIT
    timers that are due        ┘                                          │
      start orders, acknowledgements, replies, events ◀───────────────────┘

Everything that leaves the engine leaves after the commit. If the commit fails, every request gets the error, nothing
is spawned, and the messages of the executor are kept for the next turn. The engine is single-threaded and takes clock,
store and executor through ports: `loop` drives it with a selector, a simulator drives it by hand.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from rota.clock import SET_BACK_THRESHOLD, Clock
from rota.db.database import FatalStoreError
from rota.db.session import Session
from rota.engine import control, direct, rewind_files
from rota.engine.claim import Claimer
from rota.engine.clear_operation import ClearOperation, make_holds
from rota.engine.dispatch import StartOrders, evaluate_dirty_jobs
from rota.engine.executor_health import ExecutorHealth, ExecutorSilence
from rota.engine.executor_inbox import ExecutorInbox
from rota.engine.fact_cache import FactCache
from rota.engine.facts import unfinished_checks, wake_dependents
from rota.engine.metrics import EngineMetrics
from rota.engine.outbox import WebhookOutbox
from rota.engine.prefetch import PrefetchSeries
from rota.engine.recovery import RecoveryCounts
from rota.engine.requests import render_group, render_results, run_in_savepoint
from rota.engine.transaction import Effects, ProbeRequest, RandomSource, Settings, Transaction, TurnRequest
from rota.errors import RotaError, ServiceUnavailable, StorageFull, StoreError
from rota.executor.port import Executor, ExecutorMessage, StartOrder
from rota.ids import ReservationId
from rota.kernel.events import Event
from rota.kernel.holds import Holds
from rota.kernel.pacing import StartOutlook
from rota.kernel.pools import PoolSizes

log = logging.getLogger("rota.engine")

STALL_TIMEOUT = 10.0
"""Seconds after which a running turn is reported as stalled; usually it waits for the store."""


class TurnState(NamedTuple):
    """State that a turn leaves for the next one."""

    clock_lead: float
    """Seconds by which the wall clock was ahead of the monotonic clock."""
    has_reservations: bool = True
    """Whether reservations may be waiting; then each turn updates their place in the lock queues."""
    was_held: bool = False
    """Whether a hold file existed."""
    pool_sizes: PoolSizes | None = None
    """Pool sizes of the last turn; `None` before the first."""
    next_due: datetime | None = None
    """Time of the next delayed job, breaker transition or paced start."""
    has_more: bool = False
    """Whether another turn should follow immediately, without an event."""


class Engine:
    def __init__(
        self,
        *,
        open_session: Callable[[], Session],
        executor: Executor,
        clock: Clock,
        settings: Settings,
        start_orders: StartOrders,
        publish: Callable[[Sequence[Event]], None],
        submit_probes: Callable[[Sequence[ProbeRequest]], None],
        random_source: RandomSource = random.random,
        metrics: EngineMetrics | None = None,
    ) -> None:
        self._session: Session
        self._open_session = open_session
        self._has_started = False
        self._executor = executor
        self._clock = clock
        self._start_orders = start_orders
        self._publish = publish
        self._random_source = random_source
        self._submit_probes = submit_probes
        self._metrics = EngineMetrics() if metrics is None else metrics
        self.fact_cache = FactCache()
        self.outbox = WebhookOutbox()
        self._executor_health = ExecutorHealth(executor, clock)
        self._prefetch = PrefetchSeries(start_orders, executor)
        self._inbox = ExecutorInbox(self._executor_health, start_orders, clock, self._prefetch)
        self._claimer = Claimer(start_orders)
        self.settings = settings
        self.is_draining = False
        """Set at shutdown: no new jobs start."""
        self.hold_text: str | None = None
        """Text of the hold file while it exists: no new jobs start. Set by the thread that reads the file."""
        self._state = TurnState(clock_lead=float("-inf"))
        self.clear_operations: list[ClearOperation] = []
        self.store_error: RotaError | None = None
        """Error of the last write to the store; `None` while writes succeed."""
        self._turn_started_at: float | None = None
        """Start of the running turn on the monotonic clock; `None` between turns."""
        self.reservations_without_client: frozenset[ReservationId] = frozenset()
        """Reservations whose client was connected to an earlier scheduler and has not reconnected."""
        self.has_more = False
        """Whether another turn should follow immediately, without an event."""

    def start(self) -> None:
        """Open the store, repair it after a crash, and mark every waiting job dirty, so that no wake-up is lost.

        On a full disk, or while the database server restarts, log the error; every turn tries again."""
        session: Session | None = None
        try:
            session = self._session = self._open_session()
            session.begin()
            session.queue.shorten_due_times(self._clock.now())
            session.queue.wake_all()
            session.edges.repair()
            session.locks.repair()
            session.queue.remove_unreadable()
            session.breakers.delete_old_failures(self._clock.now() - self.settings.breaker.window)
            sentinels = rewind_files.find_stale_sentinels(session, self.settings.artifact_paths)
            self._claimer.pacer.load(session)
            self.outbox.load(session)
            clear_operations = control.load_clear_operations(session)
            absent = frozenset(
                reservation.id for reservation in session.reservations.list_open() if reservation.has_client
            )
            checks = unfinished_checks(session, self.settings.artifact_paths)
            session.commit()
        except (StorageFull, StoreError) as error:
            if session is not None:
                session.rollback()
            if isinstance(error, FatalStoreError):
                raise
            if self.store_error is None:
                log.error("%s", error.message)
            self.store_error = error
            return
        rewind_files.remove_sentinels(sentinels, [])
        self.store_error, self._has_started, self.has_more = None, True, True
        self.clear_operations, self.reservations_without_client = clear_operations, absent
        if checks:
            self._submit_probes(checks)

    def _retry_start(self, requests: Sequence[TurnRequest[Any]]) -> bool:
        self.start()
        if self.store_error is not None:
            for request in requests:
                request.on_done(self.store_error)
        return self._has_started

    def turn(self, requests: Sequence[TurnRequest[Any]] = ()) -> None:
        """Run one turn with these requests, after withdrawing the prefetch order if necessary."""
        self._turn_started_at = self._clock.monotonic()
        try:
            self._turn_after_withdrawal(requests)
        finally:
            self._turn_started_at = None

    def _turn_after_withdrawal(self, requests: Sequence[TurnRequest[Any]]) -> None:
        if not self._has_started and not self._retry_start(requests):
            return
        if self._prefetch.is_active and (requests or self._must_withdraw_prefetch(self._clock.now())):
            self._receive_first(requests)
            if self.store_error is not None:
                return
        self._run_transaction(requests)

    def _receive_first(self, requests: Sequence[TurnRequest[Any]]) -> None:
        """Withdraw the prefetch order, and record which of its jobs the executor has started: those starts precede
        everything in this turn."""
        self._prefetch.withdraw()
        try:
            self._run_transaction((), receive_only=True)
        finally:
            if self.store_error is not None:
                for request in requests:
                    request.on_done(self.store_error)

    def _must_withdraw_prefetch(self, now: datetime) -> bool:
        """Return whether starts are held, settings changed, a timer is due or the clock was set back."""
        stops_starts = self.is_draining or self.hold_text is not None or bool(self.clear_operations)
        return (
            stops_starts
            or not self._prefetch.was_planned_with(self.settings)
            or self._is_due(now)
            or self.is_clock_set_back
        )

    def _run_transaction(self, requests: Sequence[TurnRequest[Any]], *, receive_only: bool = False) -> None:
        started_at = self._clock.monotonic()
        messages = self._inbox.receive()
        tx = self._make_transaction()
        if not requests:
            tx.effects.open_runs.update(self._prefetch.runs)
        effects = tx.effects
        operations = [request.operation for request in requests]
        replies: list[tuple[TurnRequest[Any], Any]] = []
        try:
            self._session.begin()
            results = self._run_all(tx, messages, operations)
            if effects.accepted:
                self._claimer.pacer.record_prefetch_start(tx)
            receive_only = receive_only or self._was_interrupted(tx)
            state = self._unchanged_state if receive_only else self._decide(tx, has_requests=bool(requests))
            self.outbox.record_deliveries(tx)
            replies = render_results(tx, requests, results)
            decided_at = self._clock.monotonic()
            events = self._session.commit()
            committed_at = self._clock.monotonic()
        except (StorageFull, StoreError) as error:
            self._fail_turn(error, messages, requests)
            if isinstance(error, FatalStoreError):
                raise
            return
        except Exception as error:
            log.exception("internal error: the turn was rolled back")
            self._fail_turn(StoreError(f"internal error: {error!r}; see rota.log"), messages, requests)
            return
        # Notifications of other connections may have arrived with the responses to this turn's statements. The
        # descriptor is not readable for them again, so read them here.
        self.store_error, self.has_more = None, self._session.poll_notifications() or state.has_more
        self._inbox.set_pending([])
        self._state = state
        tx.commit_facts()
        self._prefetch.commit(tx, has_requests=bool(requests))
        self._claimer.commit(tx)
        self.clear_operations = control.commit_clear_operations(tx)
        self.reservations_without_client = tx.reservations_without_client
        for callback in effects.on_commit:
            callback()
        self._inbox.expect_confirmations(tx)
        prefetch = () if effects.prefetch_order is None else (effects.prefetch_order,)
        self._executor.send([*effects.starts, *prefetch, *effects.orders])  # starts first: they are the most urgent
        for request, result in replies:
            request.on_done(result)
        if events:
            self._publish(events)
        if effects.probe_requests or effects.has_watchers:
            self._submit_probes(effects.probe_requests)
        self._record_metrics(
            tx,
            events,
            requests=len(requests),
            seconds=committed_at - started_at,
            commit_seconds=committed_at - decided_at,
        )

    def _make_transaction(self, *, is_dry_run: bool = False) -> Transaction:
        return Transaction(
            session=self._session,
            settings=self.settings,
            now=self._clock.now(),
            random_source=self._random_source,
            fact_cache=self.fact_cache.copy() if is_dry_run else self.fact_cache,
            hold_text=self.hold_text,
            reservations_without_client_before=self.reservations_without_client,
            is_dry_run=is_dry_run,
            effects=self._make_effects(),
        )

    def _make_effects(self) -> Effects:
        """Return the effects at the beginning of a turn. They are also its first mark, made again when it is needed."""
        return Effects(
            clear_operations=list(self.clear_operations),
            pace=self._claimer.pacer.state,
            next_breaker_check=self._claimer.next_breaker_check,
        )

    def _was_interrupted(self, tx: Transaction) -> bool:
        """Return whether an event since the start of this turn requires the prefetch order to be withdrawn first."""
        can_start_more = self._prefetch.has_remaining(tx) and not self._prefetch.is_withdrawing
        return can_start_more and self._must_withdraw_prefetch(tx.now)

    @property
    def _unchanged_state(self) -> TurnState:
        """State after a turn that decided nothing: the deciding turn follows immediately."""
        return self._state._replace(has_more=True)

    def _decide(self, tx: Transaction, *, has_requests: bool) -> TurnState:
        """Evaluate the dirty jobs and claim the jobs that can start."""
        wake_dependents(tx)
        self._inbox.check_silence(tx)
        lead = self._check_clocks(tx)
        if self._is_due(tx.now):
            tx.queue.wake_due(tx.now)
        self._claimer.advance_due_breakers(tx)
        control.apply_hold_file(tx, was_held=self._state.was_held)
        control.apply_pool_sizes(tx, self._state.pool_sizes)
        control.continue_clears(tx)
        may_have_reservations = self._state.has_reservations or tx.effects.has_reservations
        has_reservations = may_have_reservations and direct.update_contention(tx)
        has_dirty_jobs = self._evaluate(tx)
        control.store_clear_operations(tx)
        has_more = self._claim(tx, has_dirty_jobs=has_dirty_jobs) or has_dirty_jobs or bool(tx.effects.clear_operations)
        if self._can_claim and not (has_requests or has_more):
            self._prefetch.extend(tx)
        next_due = _earliest(tx.queue.next_due(), tx.effects.next_breaker_check, self._claimer.pacer.next_due(tx))
        return TurnState(
            lead,
            has_reservations=has_reservations,
            was_held=tx.hold_text is not None,
            next_due=next_due,
            has_more=has_more,
            pool_sizes=tx.settings.pool_sizes,
        )

    def _record_metrics(self, tx: Transaction, events: Sequence[Event], **measurements: Any) -> None:
        """Record the metrics of a committed turn. A failure here must not affect the turn."""
        try:
            self._metrics.record(tx.effects.samples, events, **measurements)
        except Exception:
            log.exception("internal error: the metrics of this turn were not recorded")

    def dry_run(self, request: TurnRequest[Any]) -> None:
        """Compute the result of a turn with this request, and roll everything back.

        The same code runs on the same records; nothing reaches the disk, the executor or the event listeners."""
        if not self._has_started:
            request.on_done(self.store_error or ServiceUnavailable("the scheduler has not started yet; try again"))
            return
        tx = self._make_transaction(is_dry_run=True)
        response: Any
        try:
            self._session.begin()
            result = request.operation(tx)
            wake_dependents(tx)
            if self._is_due(tx.now):
                tx.queue.wake_due(tx.now)
            self._claimer.advance_due_breakers(tx)
            control.apply_hold_file(tx, was_held=self._state.was_held)
            control.apply_pool_sizes(tx, self._state.pool_sizes)
            direct.update_contention(tx)
            has_dirty_jobs = self._evaluate(tx)
            if self._can_claim:
                self._claimer.plan(tx, has_dirty_jobs=has_dirty_jobs)
            response = result if request.render is None else render_group(tx, request.render, [result])[0]
        except Exception as error:  # noqa: BLE001 - the error is the response
            response = error
        finally:
            self._session.rollback()
        request.on_done(response)

    @property
    def next_due(self) -> datetime | None:
        """Time of the next delayed job, breaker transition or paced start."""
        return self._state.next_due

    @property
    def recovery_counts(self) -> RecoveryCounts | None:
        """Counts of the first reconciliation; `None` before it."""
        return self._inbox.recovery_counts

    @property
    def errors(self) -> list[str]:
        """Current errors, as `rota status` shows them."""
        notice = [] if self._executor_health.notice is None else [self._executor_health.notice]
        stuck = [] if self._inbox.stuck_message is None else [self._inbox.stuck_message]
        return [*self._stalls, *notice, *stuck, *self._inbox.errors]

    @property
    def _stalls(self) -> list[str]:
        """Defects that stop all starts: of the store, of a turn, of prefetching and of the executor."""
        store = None if self.store_error is None else self.store_error.message
        prefetch = None if self.silence is not None else self._prefetch.blocker
        texts = (store, self._stall_message, prefetch)
        return [*(text for text in texts if text is not None), *self._executor_health.blockers]

    @property
    def silence(self) -> ExecutorSilence | None:
        """Silence of the supervisor; `None` while it answers."""
        return self._executor_health.silence

    @property
    def _stall_message(self) -> str | None:
        """Message about a turn that takes too long. Read by other threads while this one waits for the store."""
        since = self._turn_started_at
        seconds = 0.0 if since is None else self._clock.monotonic() - since
        if seconds < STALL_TIMEOUT:
            return None
        return f"a turn has been running for {seconds:.0f} s; the store may not be responding"

    @property
    def first_blocker(self) -> str | None:
        """First reason why no job starts, whatever the gates say."""
        return next(iter(self.blockers), None)

    @property
    def blockers(self) -> list[str]:
        """All reasons why no job starts, whatever the gates say: shutdown, defects, a missing supervisor."""
        draining = ["the scheduler is stopping"] if self.is_draining else []
        disconnected = [] if self._executor_health.is_connected else ["there is no supervisor; it is being started"]
        return [*draining, *(self._stalls or disconnected)]

    @property
    def holds(self) -> Holds:
        return make_holds(self.hold_text, self.clear_operations, self.reservations_without_client)

    @property
    def outlook(self) -> StartOutlook:
        """Earliest time at which pacing lets a job start."""
        return self._claimer.pacer.outlook(self.settings, self._clock.now())

    @property
    def _can_claim(self) -> bool:
        return not self.is_draining and self._executor_health.can_start

    @property
    def next_deadline(self) -> float | None:
        """Time on the monotonic clock at which a turn is due even without an event."""
        timeout = self.settings.start_timeout.total_seconds()
        due = (self._inbox.next_deadline(timeout), self._executor_health.next_deadline(timeout))
        return min((moment for moment in due if moment is not None), default=None)

    def _check_clocks(self, tx: Transaction) -> float:
        """Return the lead of the wall clock over the monotonic clock. If it was set back, shorten the due times."""
        if self.is_clock_set_back:
            tx.queue.shorten_due_times(tx.now)
            tx.effects.has_deliveries = True
        return self._clock_lead(tx.now)

    @property
    def is_clock_set_back(self) -> bool:
        """Whether the wall clock was set back since the last turn. Thread-safe."""
        return self._clock_lead(self._clock.now()) < self._state.clock_lead - SET_BACK_THRESHOLD

    def _clock_lead(self, now: datetime) -> float:
        return now.timestamp() - self._clock.monotonic()

    def _is_due(self, now: datetime) -> bool:
        return self.next_due is not None and self.next_due <= now

    def _run_all(
        self, tx: Transaction, messages: Sequence[ExecutorMessage], operations: Sequence[Callable[[Transaction], Any]]
    ) -> list[Any]:
        """Record the messages, run the operations, and return their results.

        The first attempt uses no savepoints, because failures are rare. After a failure, everything is rolled back and
        run again, each piece in its own savepoint, so that only the failing piece is refused."""
        try:
            self._inbox.record(tx, messages)
            results = [operation(tx) for operation in operations]
            self._session.flush()
            return results
        except (StorageFull, StoreError):
            raise
        except Exception:  # noqa: BLE001 - the second attempt isolates the failing piece
            self._session.rollback()
            self._session.begin()
            tx.effects.rollback_to(self._make_effects())
            self._inbox.record_in_savepoints(tx, messages)
            return [run_in_savepoint(tx, operation) for operation in operations]

    def _evaluate(self, tx: Transaction) -> bool:
        """Evaluate dirty jobs and return whether some may be left. A manual tick evaluates all, to report its plan."""
        while evaluate_dirty_jobs(tx, "tick"):
            if tx.effects.manual_tick is None:
                return True
        return False

    def _claim(self, tx: Transaction, *, has_dirty_jobs: bool) -> bool:
        """Claim the jobs that fit. Return whether another turn should follow immediately."""
        is_trial = self._executor_health.is_trial
        can_claim = self._can_claim and not self._prefetch.has_remaining(tx)
        has_more = can_claim and self._claimer.claim(tx, has_dirty_jobs=has_dirty_jobs, is_trial=is_trial)
        has_started = any(isinstance(order, StartOrder) for order in tx.effects.starts)
        if is_trial and has_started:
            self._executor_health.postpone_trial()
            tx.effects.starts[:] = [
                msgspec.structs.replace(order, is_trial=True) if isinstance(order, StartOrder) else order
                for order in tx.effects.starts
            ]
        elif is_trial and can_claim and not has_more:
            self._executor_health.clear_machine_error()
        elif is_trial and not can_claim:
            self._executor_health.hold_trial()
        return has_more

    def _fail_turn(
        self, error: RotaError, messages: list[ExecutorMessage], requests: Sequence[TurnRequest[Any]]
    ) -> None:
        """Roll back a failed turn: fail its requests, and keep the messages of the executor for the next turn."""
        self._session.rollback()
        self.outbox.invalidate()
        if self.store_error is None:
            log.error("%s", error.message)
        self._metrics.record_failed_turn()
        self.store_error, self.has_more = error, False
        self._inbox.set_pending(messages)
        self._start_orders.forget_environments()
        if self._prefetch.is_active:
            self._prefetch.withdraw()  # a start that cannot be stored must not happen
        for request in requests:
            request.on_done(error)

    def fileno(self) -> int:
        """Return a descriptor that is readable when the store has notifications; -1 if it never has any."""
        return self._session.fileno() if self._has_started else -1

    def read_notifications(self) -> bool:
        """Return whether another connection has changed the store, or the connection is lost."""
        return self._session.poll_notifications()

    def refuse(self, requests: Sequence[TurnRequest[Any]]) -> None:
        for request in requests:
            request.on_done(ServiceUnavailable("the scheduler is stopping; try again when it is back"))


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
