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
from rota.engine import breaker, finish
from rota.engine.awaited import AwaitedStarts
from rota.engine.dispatch import Starter, choose, look_at_marked
from rota.engine.recovery import Report, reconcile
from rota.engine.work import Request, Settings, Work
from rota.errors import RotaError, StorageFull, StoreError, Unavailable
from rota.executor.port import Accounts, Executor, Exited, FailedToStart, Lost, Message, Start, Started, Stop
from rota.store.claim import Dispatch
from rota.store.database import CannotGoOn
from rota.store.session import Session

log = logging.getLogger("rota.engine")

NODE = "local"
HOLD = 0.02
"""Seconds that a confirmation may wait for company."""
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
        self._awaited = AwaitedStarts()
        self._held_since: float | None = None
        self._executor_trouble: str | None = None
        self._executor_retry_at = 0.0
        self._machine_trouble: str | None = None
        self._machine_retry_at = 0.0
        self.settings = settings
        self.is_draining = False
        """Set at shutdown: nothing new starts."""
        self.trouble: RotaError | None = None
        """Why the store cannot be written to, while it cannot."""
        self.recovery: Report = {}
        """What the first reconciliation found."""
        self.next_due: datetime | None = None
        """When a delayed job, or a breaker, is to be looked at."""
        self._breaker_due: datetime | None = None
        self.has_more = False
        """Work is left that needs no event: another turn should follow at once."""

    def start(self) -> None:
        """Every waiting job is looked at again, so that no wake-up can be lost for good."""
        self._session.begin()
        self._session.stir_all_waiting()
        self._session.forget_old_failures(self._clock.now() - self.settings.breaker.window)
        self._session.commit()
        self.has_more = True

    def turn(self, requests: Sequence[Request[Any]] = (), *, may_hold: bool = False) -> None:
        """With `may_hold`, confirmations that come alone are kept for a moment: most often the next message or
        request shares their transaction, and nobody waits for them."""
        messages = self._kept + self._receive()
        if may_hold and not requests and self._hold(messages):
            return
        work = Work(self._session, self.settings, self._clock.now())
        replies: list[tuple[Request[Any], Any]] = []
        try:
            self._session.begin()
            for message in messages:
                self._guarded(work, partial(self._book, message=message))
            overdue = self._awaited.overdue(self._clock.monotonic())
            work.orders.extend(Stop(run=run) for run in overdue)
            replies = [(request, self._guarded(work, request.act)) for request in requests]
            self._book_time(work)
            is_left = look_at_marked(work, "tick")
            has_more = self._claim(work) or is_left
            self.next_due = _earliest(self._session.next_due(), self._breaker_due)
            events = self._session.commit()
        except (StorageFull, StoreError) as error:
            self._fail(error, messages, requests)
            if isinstance(error, CannotGoOn):
                raise
            return
        except Exception as error:
            log.exception("a defect: the turn was undone")
            self._fail(StoreError(f"a defect in Rota: {error!r}; rota.log has the details"), messages, requests)
            return
        self.trouble, self._kept, self.has_more, self._held_since = None, [], has_more, None
        self._awaited.call_back(overdue)
        starts = [order.run for order in work.orders if isinstance(order, Start)]
        self._awaited.expect(starts, self._start_deadline())
        self._executor.send(work.orders)
        for request, result in replies:
            request.done(result)
        if events:
            self._publish(events)

    def _receive(self) -> list[Message]:
        """What the executor says. While there is none to be had, nothing starts, and everything else goes on."""
        if self._executor_trouble is not None and self._clock.monotonic() < self._executor_retry_at:
            return []
        try:
            messages = self._executor.receive()
        except (Unavailable, OSError) as error:
            if self._executor_trouble is None:
                log.error("%s", error)
            self._executor_trouble = f"nothing can be started: {error}"
            self._executor_retry_at = self._clock.monotonic() + RETRY_AFTER
            self._is_connected = False
            return []
        self._executor_trouble = None
        return messages

    @property
    def troubles(self) -> list[str]:
        """What is wrong now, for `status`."""
        store = self.trouble
        said = [] if store is None else [store.message]
        return said + [trouble for trouble in (self._executor_trouble, self._machine_trouble) if trouble is not None]

    @property
    def held_by(self) -> str | None:
        """Why nothing at all starts, whatever the gates say."""
        if self.is_draining:
            return "the scheduler is stopping"
        return next(iter(self.troubles), None)

    def _hold(self, messages: list[Message]) -> bool:
        if self.has_more or not messages or not all(isinstance(message, Started) for message in messages):
            return False
        now = self._clock.monotonic()
        self._held_since = now if self._held_since is None else self._held_since
        self._kept = messages
        return now - self._held_since < HOLD

    def _start_deadline(self) -> float:
        return self._clock.monotonic() + self.settings.start_timeout.total_seconds()

    @property
    def next_deadline(self) -> float | None:
        """On the monotonic clock, when a turn is wanted though nothing happens."""
        due = [
            self._awaited.next_deadline,
            None if self._held_since is None else self._held_since + HOLD,
            None if self._executor_trouble is None else self._executor_retry_at,
            None if self._machine_trouble is None else self._machine_retry_at,
        ]
        return min((moment for moment in due if moment is not None), default=None)

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
        match message:
            case Started():
                self._machine_trouble = None
                if not self._awaited.is_called_back(message.run):
                    self._awaited.heard_of(message.run)
                    finish.book_start(work, message)
            case Exited():
                self._awaited.ended(message.run)
                finish.book_exit(work, message)
            case FailedToStart():
                self._awaited.ended(message.run)
                if message.is_machine:
                    self._machine_trouble = message.error
                    self._machine_retry_at = self._clock.monotonic() + RETRY_AFTER
                finish.book_failed_start(work, message)
            case Accounts():
                self._starter.forget()
                self._awaited.expect(
                    [account.run for account in message.runs if account.pid is None and not account.has_ended],
                    self._start_deadline(),
                )
                report = reconcile(work, message)
                self.recovery = self.recovery or report
                self._is_connected = True
            case Lost():
                log.warning("the supervisor was lost: %s", message.reason)
                self._is_connected = False
                self._awaited.forget()

    def _book_time(self, work: Work) -> None:
        """When the next breaker is due comes with each plan, so a turn that fails forgets nothing."""
        if self._breaker_due is not None and self._breaker_due <= work.now:
            self._breaker_due = None
            breaker.book_time(work)

    def _claim(self, work: Work) -> bool:
        """Claim what fits; whether there may be more to do at once."""
        if self._machine_trouble is not None and self._clock.monotonic() >= self._machine_retry_at:
            self._machine_trouble = None  # tried again; if it is still so, the next start says so
        if self.is_draining or not self._is_connected or self._machine_trouble is not None:
            return False
        chosen = choose(work.session, work.settings.limits, work.settings.batch_size)
        dispatches = self._session.claim(chosen.claims, NODE, work.now, "tick")
        has_probes = breaker.book_probes(work, chosen.claims)
        ordered = [self._order(work, dispatch) for dispatch in dispatches]
        self._breaker_due = due = chosen.pauses.breakers.next_due(work.settings.breaker, work.now)
        return chosen.is_cut_short or not all(ordered) or has_probes or (due is not None and due <= work.now)

    def _order(self, work: Work, dispatch: Dispatch) -> bool:
        """A job whose own record cannot be used fails alone; then there is room again for another."""
        error = self._guarded(work, lambda work: self._starter.order(work, dispatch))
        run = self._session.open_run(dispatch.run) if isinstance(error, Exception) else None
        if run is None:
            return True
        self._starter.forget()
        reason = f"scheduler data error: {error}"
        finish.give_up(work, run, failures=run.dispatch_failures, error=reason, reason=reason)
        return False

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


def _earliest(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
