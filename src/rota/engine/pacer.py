"""Pacing over turns: the number of jobs that each turn may start. `Effects.pace` becomes the state with the commit."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.pacing import PaceState, StartOutlook, Tick, compute_outlook, effective_batch_size
from rota.core.tick import StartPlan
from rota.engine.dispatch import plan_starts, plan_tick
from rota.engine.transaction import Settings, Transaction
from rota.store.session import AnyReader
from rota.store.timestamp import from_micros, to_micros

LAST_TICK = "last_tick"
PENDING_STARTS = "pending_starts"


class Pacer:
    def __init__(self) -> None:
        self.state = PaceState()
        """State after the last committed turn."""

    def load(self, reader: AnyReader) -> None:
        """Load the times of the last start and the last tick, and the starts that the tick has pending."""
        start, tick = reader.jobs.last_dispatch(), reader.meta.get(LAST_TICK)
        self.state = PaceState(
            last_start=None if start is None else from_micros(start),
            last_tick=None if tick is None else from_micros(int(tick)),
            pending_starts=int(reader.meta.get(PENDING_STARTS) or 0),
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
                tx.meta.set(LAST_TICK, str(to_micros(tx.now)))
        if tx.effects.pace.pending_starts != self.state.pending_starts:
            tx.meta.set(PENDING_STARTS, str(tx.effects.pace.pending_starts))


def _limit_by_spacing(tx: Transaction, limit: int | None) -> int:
    start = tx.effects.pace.next_start(tx.settings.spawn_delay)
    return 0 if start is not None and start > tx.now else _limit_to_one(limit)


def _limit_to_one(limit: int | None) -> int:
    return 1 if limit is None else min(1, limit)
