"""Choice and claim of the jobs that start in a turn, and their start orders."""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from rota.core.reservation import ReservationClaim
from rota.engine import breaker, finish, reservation
from rota.engine.dispatch import StartOrders
from rota.engine.facts import confirm_claims, invalidate_products
from rota.engine.metrics import ClaimSample
from rota.engine.pacer import Pacer
from rota.engine.transaction import NODE, Transaction
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import format_job_id
from rota.store.queue import Dispatch

log = logging.getLogger("rota.engine")


class Claimer:
    def __init__(self, start_orders: StartOrders) -> None:
        self._start_orders = start_orders
        self.pacer = Pacer()
        self.next_breaker_check: datetime | None = None
        """Time of the next breaker transition after the last committed turn."""

    def plan(self, tx: Transaction, *, has_dirty_jobs: bool) -> None:
        """Compute the plan for a dry run, without claiming."""
        tx.effects.plan = self.pacer.plan(tx, has_dirty_jobs=has_dirty_jobs)

    def claim(self, tx: Transaction, *, has_dirty_jobs: bool, is_trial: bool = False) -> bool:
        """Claim the jobs that fit; in a trial, only one. Return whether another turn should follow immediately."""
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
        """Add the start order. A job with an unusable record fails alone; then return False: its capacity is free."""
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
        """Start a reservation. One with an unusable record fails alone, and returns False."""
        started = tx.reservations.start(claim, NODE, tx.now)
        try:
            if started.run is not None:
                self._start_orders.add_reservation(tx, started)
        except (StorageFull, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - any error concerns only this record
            reservation.fail(tx, started, f"scheduler data error: {error}")
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
