"""Who starts in a turn: chosen, claimed, and made into orders."""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec

from rota.core.slot import SlotClaim
from rota.engine import breaker, finish, slot
from rota.engine.dispatch import Starter
from rota.engine.meter import Claimed
from rota.engine.outside import certain, disturb
from rota.engine.pace import Pacer
from rota.engine.work import NODE, Work
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import show_job
from rota.store.claim import Dispatch

log = logging.getLogger("rota.engine")


class Claims:
    def __init__(self, starter: Starter) -> None:
        self._starter = starter
        self.pacer = Pacer()
        self.breaker_due: datetime | None = None
        """When a breaker is to be looked at. It comes with each plan, so a turn that fails forgets nothing."""

    def choose(self, work: Work, *, is_left: bool) -> None:
        """What would start, for who only wants to see it."""
        work.plan = self.pacer.choose(work, is_left=is_left)

    def claim(self, work: Work, *, is_left: bool) -> bool:
        """Claim what fits; whether there may be more to do at once."""
        chosen = self.pacer.choose(work, is_left=is_left)
        claims, has_doubtful = certain(work, chosen.claims)
        if len(claims) < len(chosen.claims):
            chosen = msgspec.structs.replace(chosen, claims=claims)
        work.plan = chosen
        self.pacer.book(work, len(claims))
        dispatches = work.session.claim(chosen.claims, NODE, work.now, "tick")
        work.notes += [Claimed(each.type, each.waited(work.now)) for each in dispatches]
        has_marked = breaker.book_plan(work, chosen)
        ordered = [self._order(work, dispatch) for dispatch in dispatches]
        ordered += [self._serve(work, claim) for claim in chosen.slots]
        makers = [dispatch.maker for dispatch in dispatches if dispatch.maker is not None]
        for maker in makers:
            disturb(work, maker)
        self.breaker_due = due = chosen.pauses.breakers.next_due(work.settings.breaker, work.now)
        return (
            chosen.is_cut_short
            or not all(ordered)
            or has_marked
            or has_doubtful
            or bool(makers)
            or (due is not None and due <= work.now)
        )

    def book_time(self, work: Work) -> None:
        """Look at the breakers, where that is due."""
        if self.breaker_due is not None and self.breaker_due <= work.now:
            if not work.is_rehearsal:
                self.breaker_due = None
            breaker.book_time(work)

    def _order(self, work: Work, dispatch: Dispatch) -> bool:
        """A job whose own record cannot be used fails alone; then there is room again for another."""
        try:
            self._starter.order(work, dispatch)
        except (StorageFull, StoreError):
            raise
        except Exception as error:
            if not isinstance(error, RotaError):
                log.exception("%s cannot be started", show_job(dispatch.job))
            return self._give_up(work, dispatch, error)
        return True

    def _serve(self, work: Work, claim: SlotClaim) -> bool:
        """The turn of a direct execution has come; one whose record cannot be used fails alone."""
        found = work.session.begin_slot(claim, NODE, work.now)
        try:
            if found.run is not None:
                self._starter.order_slot(work, found)
        except (StorageFull, StoreError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's
            slot.fail(work, found, f"scheduler data error: {error}")
            return False
        return True

    def _give_up(self, work: Work, dispatch: Dispatch, error: Exception) -> bool:
        run = work.session.open_run(dispatch.run)
        if run is None:
            return True
        self._starter.forget()
        reason = f"scheduler data error: {error}"
        finish.give_up(work, run, failures=run.dispatch_failures, error=reason, reason=reason)
        return False
