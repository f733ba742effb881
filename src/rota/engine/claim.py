"""Choice and claim of the jobs that start in a turn, paced over turns, and their start orders.

`Pacer` limits the number of jobs that a turn may start. `Effects.pace` becomes its state with the commit.
"""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from rota.db.decoding import from_micros, to_micros
from rota.db.queue import Dispatch
from rota.db.session import AnyReader
from rota.engine import breaker, direct, finish
from rota.engine.dispatch import StartOrders, plan_starts, plan_tick
from rota.engine.facts import confirm_claims, invalidate_products
from rota.engine.metrics import ClaimSample
from rota.engine.transaction import NODE, Settings, Transaction
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import format_job_id
from rota.kernel.pacing import PaceState, StartOutlook, Tick, compute_outlook, effective_batch_size
from rota.kernel.reservations import ReservationClaim
from rota.kernel.tick import StartPlan

log = logging.getLogger("rota.engine")

_LAST_TICK_KEY = "last_tick"
_PENDING_STARTS_KEY = "pending_starts"


class Claimer:
    """Step of the turn that plans starts and claims jobs."""

    def __init__(self, start_orders: StartOrders) -> None:
        self._start_orders = start_orders
        self.pacer = Pacer()
        self.next_breaker_check: datetime | None = None
        """Time of the next breaker transition after the last committed turn."""

    def plan(self, tx: Transaction, *, has_dirty_jobs: bool) -> None:
        """Compute the plan for a dry run, without claiming."""
        tx.effects.plan = self.pacer.plan(tx, has_dirty_jobs=has_dirty_jobs)

    def claim(self, tx: Transaction, *, has_dirty_jobs: bool, is_trial: bool = False) -> bool:
        """Claim the jobs that fit. Return whether another turn should follow immediately.

        `is_trial`: claim only one, a start that shows whether the machine can start jobs again."""
        chosen = self.pacer.plan(tx, has_dirty_jobs=has_dirty_jobs, is_trial=is_trial)
        claims, has_marked_jobs = confirm_claims(tx, chosen.claims)
        if len(claims) < len(chosen.claims):
            chosen = msgspec.structs.replace(chosen, claims=claims)
        dispatches = tx.queue.claim(chosen.claims, NODE, tx.now, "tick")
        # Jobs of unknown status were not claimed and have left the queue.
        is_short = len(dispatches) < len(chosen.claims)
        if is_short:
            claimed = {dispatch.job for dispatch in dispatches}
            kept = tuple(claim for claim in chosen.claims if claim.job in claimed)
            chosen = msgspec.structs.replace(chosen, claims=kept)
        tx.effects.plan = chosen
        self.pacer.record_starts(tx, len(chosen.claims))
        tx.effects.samples += [ClaimSample(dispatch.type, dispatch.queued_seconds(tx.now)) for dispatch in dispatches]
        has_marked_jobs |= breaker.record_plan(tx, chosen)
        ordered = [self._order_job(tx, dispatch) for dispatch in dispatches]
        ordered += [self._order_reservation(tx, claim) for claim in chosen.reservations]
        producers = [dispatch.producer_chain for dispatch in dispatches if dispatch.producer_chain is not None]
        for producer in producers:
            invalidate_products(tx, producer)
        tx.effects.next_breaker_check = due = chosen.pauses.breakers.next_transition(tx.settings.breaker, tx.now)
        return (
            chosen.is_truncated
            or not all(ordered)
            or is_short
            or has_marked_jobs
            or bool(producers)
            or (due is not None and due <= tx.now)
        )

    def advance_due_breakers(self, tx: Transaction) -> None:
        """Apply breaker transitions if one is due."""
        if tx.effects.next_breaker_check is not None and tx.effects.next_breaker_check <= tx.now:
            tx.effects.next_breaker_check = None
            breaker.advance_breakers(tx)

    def commit(self, tx: Transaction) -> None:
        self.pacer.state, self.next_breaker_check = tx.effects.pace, tx.effects.next_breaker_check

    def _order_job(self, tx: Transaction, dispatch: Dispatch) -> bool:
        """Add the start order. Return False if the job was failed because its record is unusable, which frees its
        capacity."""
        try:
            self._start_orders.add_job(tx, dispatch)
        except (StorageFull, StoreError):
            raise
        except Exception as error:
            if not isinstance(error, RotaError):
                log.exception("cannot start %s", format_job_id(dispatch.job))
            return self._abandon(tx, dispatch, error)
        return True

    def _order_reservation(self, tx: Transaction, claim: ReservationClaim) -> bool:
        """Start a reservation. Return False if it was failed because its record is unusable."""
        started = tx.reservations.start(claim, NODE, tx.now)
        try:
            if started.run is not None:
                self._start_orders.add_reservation(tx, started)
        except (StorageFull, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - any error concerns only this record
            direct.fail_reservation(tx, started, f"scheduler data error: {error}")
            return False
        return True

    def _abandon(self, tx: Transaction, dispatch: Dispatch, error: Exception) -> bool:
        run = tx.runs.find_open(dispatch.run)
        if run is None:
            return True
        self._start_orders.forget_environments()
        reason = f"scheduler data error: {error}"
        finish.abandon(tx, run, failures=run.dispatch_failures, error=reason, reason=reason)
        return False


class Pacer:
    """Limit on the jobs that each turn may start: by tick, batch size, spawn delay and trial."""

    def __init__(self) -> None:
        self.state = PaceState()
        """State after the last committed turn."""

    def load(self, reader: AnyReader) -> None:
        """Load the times of the last start and the last tick, and the number of starts that the last tick planned and
        that are still to come."""
        start, tick = reader.jobs.last_dispatch(), reader.meta.get(_LAST_TICK_KEY)
        self.state = PaceState(
            last_start=None if start is None else from_micros(start),
            last_tick=None if tick is None else from_micros(int(tick)),
            pending_starts=int(reader.meta.get(_PENDING_STARTS_KEY) or 0),
        )

    def outlook(self, settings: Settings, now: datetime) -> StartOutlook:
        return compute_outlook(self.state, settings.spawn_delay, settings.dispatch_interval, now)

    def next_due(self, tx: Transaction) -> datetime | None:
        """Return the time at which pacing needs a turn. A time in the past needs no timer: the start was held for
        another reason, and the event that ends the hold wakes the engine."""
        settings, pace = tx.settings, tx.effects.pace
        has_more = settings.dispatch_interval is None or pace.pending_starts > 0
        start = pace.next_start(settings.spawn_delay) if has_more else None
        moments = (start, pace.next_tick(settings.dispatch_interval, tx.now))
        return min((moment for moment in moments if moment is not None and moment > tx.now), default=None)

    def plan(self, tx: Transaction, *, has_dirty_jobs: bool, is_trial: bool = False) -> StartPlan:
        """Plan the starts of this turn. A tick plans all its starts at once (`Effects.tick_plan`)."""
        settings = tx.settings
        tx.effects.pace = tx.effects.pace.clamp_to(tx.now)
        tick = tx.effects.manual_tick or self._take_due_tick(tx, has_dirty_jobs=has_dirty_jobs)
        limit = settings.batch_size if settings.dispatch_interval is None else tx.effects.pace.pending_starts
        tick_plan = None
        if tick is not None:
            tick_plan = tx.effects.tick_plan = plan_tick(
                tx, settings.pool_sizes, tick.batch_size, holds=tx.holds, has_dirty_jobs=has_dirty_jobs
            )
            limit = len(tick_plan.claims)
            if settings.dispatch_interval is not None:
                tx.effects.pace = msgspec.structs.replace(tx.effects.pace, pending_starts=limit)
        if settings.spawn_delay:
            limit = _limit_by_spacing(tx, limit)
        if is_trial:
            limit = _limit_to_one(limit)
        if tick_plan is not None and limit == len(tick_plan.claims):
            plan = tick_plan
        else:
            plan = plan_starts(tx, settings.pool_sizes, limit, holds=tx.holds, has_dirty_jobs=has_dirty_jobs)
        if plan.bound_by == "batch" and (settings.dispatch_interval is not None or settings.spawn_delay):
            return msgspec.structs.replace(plan, is_truncated=False)  # pacing starts the rest later
        return plan

    def _take_due_tick(self, tx: Transaction, *, has_dirty_jobs: bool) -> Tick | None:
        """Return the tick if it is due. While jobs are dirty, the order of the queue is not known yet."""
        settings, due = tx.settings, tx.effects.pace.next_tick(tx.settings.dispatch_interval, tx.now)
        if due is None or due > tx.now or has_dirty_jobs:
            return None
        tx.effects.pace = msgspec.structs.replace(tx.effects.pace, last_tick=tx.now)
        return Tick(batch_size=effective_batch_size(settings.batch_size, settings.dispatch_interval))

    def record_prefetch_start(self, tx: Transaction) -> None:
        """Record that the executor started a prefetched job."""
        tx.effects.pace = msgspec.structs.replace(tx.effects.pace, last_start=tx.now)

    def record_starts(self, tx: Transaction, count: int) -> None:
        """Record the number of jobs that start in this turn."""
        if count:
            pending = max(0, tx.effects.pace.pending_starts - count)
            tx.effects.pace = msgspec.structs.replace(tx.effects.pace, last_start=tx.now, pending_starts=pending)
            if tx.effects.pace.last_tick == tx.now:  # a tick that starts nothing is not worth a write
                tx.meta.set(_LAST_TICK_KEY, str(to_micros(tx.now)))
        if tx.effects.pace.pending_starts != self.state.pending_starts:
            tx.meta.set(_PENDING_STARTS_KEY, str(tx.effects.pace.pending_starts))


def _limit_by_spacing(tx: Transaction, limit: int | None) -> int:
    start = tx.effects.pace.next_start(tx.settings.spawn_delay)
    return 0 if start is not None and start > tx.now else _limit_to_one(limit)


def _limit_to_one(limit: int | None) -> int:
    return 1 if limit is None else min(1, limit)
