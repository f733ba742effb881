"""The engine: one turn is one write transaction.

    messages from the executor ┐
    requests from commands     ├─▶ BEGIN · each under its savepoint · look · claim · COMMIT
    timers that are due        ┘                                                     │
                     replies, start orders, acknowledgements, events ◀───────────────┘

Everything that leaves the engine leaves after the commit. If the commit fails all are told, nothing is
spawned, and what the executor said is kept for the next try. The engine is single-threaded and takes clock,
store and executor through ports: `loop` drives it with a selector, a simulator drives it by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from rota.clock import Clock
from rota.core.event import Event
from rota.engine import finish
from rota.engine.dispatch import Starter, choose, look_at_marked
from rota.engine.recovery import Report, reconcile
from rota.engine.work import Request, Settings, Work
from rota.errors import RotaError, StorageFull, StoreError, Unavailable
from rota.executor.port import Accounts, Executor, Exited, FailedToStart, Lost, Message, Started, Stop
from rota.ids import RunId, show_run
from rota.store.claim import Dispatch
from rota.store.database import CannotGoOn
from rota.store.session import Session

log = logging.getLogger("rota.engine")

NODE = "local"
RETRY_AFTER = 1.0
"""Seconds until the store is tried again after trouble with it."""


class Engine:
    def __init__(
        self,
        *,
        session: Session,
        executor: Executor,
        clock: Clock,
        settings: Settings,
        starter: Starter,
        publish: Callable[[Sequence[Event]], None],
    ) -> None:
        self._session = session
        self._executor = executor
        self._clock = clock
        self._starter = starter
        self._publish = publish
        self._kept: list[Message] = []
        self._is_connected = False
        self._unconfirmed: dict[RunId, float] = {}
        self.settings = settings
        self.is_draining = False
        """Set at shutdown: nothing new starts."""
        self.trouble: RotaError | None = None
        """Why the store cannot be written to, while it cannot."""
        self.recovery: Report = {}
        """What the first reconciliation found."""
        self.next_due: datetime | None = None
        """When a delayed job is to be looked at."""
        self.has_more = False
        """Work is left that needs no event: another turn should follow at once."""

    def start(self) -> None:
        """Every waiting job is looked at again, so that no wake-up can be lost for good."""
        self._session.begin()
        self._session.stir_all_waiting()
        self._session.commit()
        self.has_more = True

    def turn(self, requests: Sequence[Request[Any]] = ()) -> None:
        messages = self._kept + self._executor.receive()
        work = Work(self._session, self.settings, self._clock.now())
        replies: list[tuple[Request[Any], Any]] = []
        try:
            self._session.begin()
            for message in messages:
                self._guarded(work, partial(self._book, message=message))
            self._stop_overdue(work)
            replies = [(request, self._guarded(work, request.act)) for request in requests]
            look_at_marked(work, "tick")
            is_cut_short = self._claim(work)
            self.next_due = self._session.next_due()
            events = self._session.commit()
        except (StorageFull, StoreError) as error:
            self._fail(error, messages, requests)
            if isinstance(error, CannotGoOn):
                raise
            return
        self.trouble, self._kept, self.has_more = None, [], is_cut_short
        self._executor.send(work.orders)
        for request, result in replies:
            request.done(result)
        if events:
            self._publish(events)

    @property
    def next_overdue(self) -> float | None:
        """On the monotonic clock, when a start that is not confirmed has failed."""
        return next(iter(self._unconfirmed.values()), None)

    def _stop_overdue(self, work: Work) -> None:
        """A start that nobody confirms is called back; when its end comes it counts as a failed dispatch."""
        while self._unconfirmed and next(iter(self._unconfirmed.values())) <= self._clock.monotonic():
            run = next(iter(self._unconfirmed))
            del self._unconfirmed[run]
            log.warning("the start of %s was not confirmed in time", show_run(run))
            work.orders.append(Stop(run=run))

    def _guarded(self, work: Work, act: Callable[[Work], Any]) -> Any:
        """Under a savepoint: a refusal or a defect undoes only this and is its answer; the others go on."""
        orders = len(work.orders)
        try:
            with self._session.savepoint():
                return act(work)
        except (StorageFull, StoreError):
            raise
        except Exception as error:
            # One bad job or request never stops the others.
            del work.orders[orders:]
            if not isinstance(error, RotaError):
                log.exception("a defect: this one piece of work was undone")
            return error

    def _book(self, work: Work, message: Message) -> None:
        if isinstance(message, (Started, Exited, FailedToStart)):
            self._unconfirmed.pop(message.run, None)
        match message:
            case Started():
                finish.book_start(work, message)
            case Exited():
                finish.book_exit(work, message)
            case FailedToStart():
                finish.book_failed_start(work, message)
            case Accounts():
                self._starter.forget()
                report = reconcile(work, message)
                self.recovery = self.recovery or report
                self._is_connected = True
            case Lost():
                log.warning("the supervisor was lost: %s", message.reason)
                self._is_connected = False
                self._unconfirmed.clear()

    def _claim(self, work: Work) -> bool:
        """Claim what fits; whether there may be more to do at once."""
        if self.is_draining or not self._is_connected:
            return False
        chosen = choose(work)
        for dispatch in self._session.claim(chosen.claims, NODE, work.now, "tick"):
            self._order(work, dispatch)
            self._unconfirmed[dispatch.run] = self._clock.monotonic() + work.settings.start_timeout.total_seconds()
        return chosen.is_cut_short

    def _order(self, work: Work, dispatch: Dispatch) -> None:
        """A job whose own record cannot be used fails alone."""
        error = self._guarded(work, lambda work: self._starter.order(work, dispatch))
        if isinstance(error, Exception):
            self._starter.forget()
            run = self._session.open_run(dispatch.run)
            if run is not None:
                reason = f"scheduler data error: {error}"
                finish.give_up(work, run, failures=run.dispatch_failures, error=reason, reason=reason)

    def _fail(self, error: RotaError, messages: list[Message], requests: Sequence[Request[Any]]) -> None:
        """Nothing was stored: say so to everybody, keep what the executor said, and try again in a while."""
        self._session.rollback()
        if self.trouble is None:
            log.error("%s", error.message)
        self.trouble, self._kept, self.has_more = error, messages, False
        self._starter.forget()
        for request in requests:
            request.done(error)

    def refuse(self, requests: Sequence[Request[Any]]) -> None:
        for request in requests:
            request.done(Unavailable("the scheduler is stopping; try again when it is back"))
