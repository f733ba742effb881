"""What the executor says: kept while it cannot be stored, and booked in its order."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from rota.clock import Clock
from rota.engine import finish
from rota.engine.act import guarded
from rota.engine.ahead import Booked, Series
from rota.engine.awaited import AwaitedStarts
from rota.engine.contact import Contact
from rota.engine.dispatch import Starter
from rota.engine.recovery import Report, reconcile
from rota.engine.work import Settings, Work
from rota.executor.port import (
    Accounts,
    Exited,
    FailedToStart,
    Lost,
    Message,
    Refused,
    Start,
    Started,
    Stop,
    Taken,
    Trouble,
    Withdrawn,
)
from rota.ids import RunId, show_run

log = logging.getLogger("rota.engine")


class Hearing:
    def __init__(self, contact: Contact, starter: Starter, clock: Clock, series: Series) -> None:
        self._contact = contact
        self._starter = starter
        self._series = series
        self._clock = clock
        self._kept: list[Message] = []
        self._awaited = self._awaited_before = AwaitedStarts()
        self._overdue: list[RunId] = []
        self._unbooked: dict[RunId, str] = {}
        self.recovery: Report | None = None
        """What the first reconciliation found; none before it."""

    def receive(self) -> list[Message]:
        return [*self._kept, *self._contact.receive()]

    def keep(self, messages: list[Message]) -> None:
        """What is left to be booked: all that was heard where the turn could not be stored, else none."""
        self._kept = messages

    @property
    def troubles(self) -> list[str]:
        """Ends that cannot be booked."""
        return list(self._unbooked.values())

    @property
    def next_deadline(self) -> float | None:
        """When a start will be overdue."""
        return self._awaited.next_deadline

    def book(self, work: Work, messages: Sequence[Message]) -> None:
        self._awaited_before = self._awaited.copy()
        if any(isinstance(message, Exited) for message in messages):
            work.known.last_end = work.known.begin()
        for message in messages:
            self._book(work, message)

    def book_each(self, work: Work, messages: Sequence[Message]) -> None:
        """All that was booked in this turn is undone: do it again, each by itself."""
        self._awaited = self._awaited_before
        for message in messages:
            self._book_alone(work, message)

    def call_back_overdue(self, work: Work) -> None:
        """Starts that nobody has confirmed in time are stopped; from the commit on they count as called back."""
        self._overdue = self._awaited.overdue(self._clock.monotonic())
        work.orders.extend(Stop(run=run) for run in self._overdue)

    def await_starts(self, work: Work) -> None:
        """The turn is committed, and its orders are about to leave."""
        self._awaited.call_back(self._overdue)
        self._overdue = []
        self._expect([start.run for start in work.starts if isinstance(start, Start)], work.settings)

    def _expect(self, runs: list[RunId], settings: Settings) -> None:
        self._awaited.expect(runs, self._clock.monotonic() + settings.start_timeout.total_seconds())

    def _book_alone(self, work: Work, message: Message) -> None:
        """What cannot be booked ends its own job: kept RUNNING it would hold its place and its locks for ever. A start
        is let be, for its end is still to come. Accounts are kept: without them nothing is ever started."""
        if isinstance(message, Accounts):  # apart: the ends of what was taken follow, whatever becomes of the rest
            guarded(work, partial(self._series.settle, known=frozenset(account.run for account in message.runs)))
        error = guarded(work, partial(self._book, message=message))
        if isinstance(message, Taken) and isinstance(error, Exception):
            self._series.give_up(work, message.run)
            self._contact.unsettled.await_end(message.run)
        if isinstance(message, Accounts) and isinstance(error, Exception):
            self._contact.keep(message, error)
        if not isinstance(message, Exited | FailedToStart):
            return
        if isinstance(error, Exception):
            reason = f"scheduler data error: {error}"
            error = guarded(work, partial(finish.fail_with, message=message, reason=reason))
        if isinstance(error, Exception):
            self._unbooked[message.run] = f"the end of {show_run(message.run)} cannot be booked: {error!r}"
        else:
            self._unbooked.pop(message.run, None)

    def _book(self, work: Work, message: Message) -> None:
        match message:
            case Started():
                self._contact.start_succeeded()
                self._contact.unsettled.hear(message)
                if not self._awaited.is_called_back(message.run):
                    self._awaited.heard_of(message.run)
                    finish.book_start(work, message)
            case Exited():
                self._awaited.ended(message.run)
                self._contact.unsettled.hear(message)
                self._unbooked.pop(message.run, None)
                finish.book_exit(work, message)
            case FailedToStart():
                self._awaited.ended(message.run)
                self._contact.unsettled.hear(message)
                if message.is_machine:
                    self._contact.start_failed(message.error)
                finish.book_failed_start(work, message)
            case Refused():
                self._awaited.ended(message.run)
                finish.book_refusal(work, message)
            case Taken() | Withdrawn():
                self._book_ahead(work, message)
            case Trouble():
                self._contact.notice = message.trouble
            case Accounts() | Lost():
                self._book_contact(work, message)

    def _book_contact(self, work: Work, message: Accounts | Lost) -> None:
        if isinstance(message, Accounts):
            self._settle(work, message)
            return
        log.warning("the supervisor was lost: %s", message.reason)
        self._contact.lose()
        self._awaited.forget()

    def _book_ahead(self, work: Work, message: Taken | Withdrawn) -> None:
        if isinstance(message, Withdrawn):
            self._series.book_withdrawn(work, message.series)
            return
        booked = self._series.book_taken(work, message)
        if booked is Booked.CLAIMED:
            self._expect([message.run], work.settings)
        elif booked is Booked.UNWANTED:
            self._contact.unsettled.await_end(message.run)

    def _settle(self, work: Work, accounts: Accounts) -> None:
        """A new connection: what it says of every run, against what the store says."""
        self._starter.forget()
        unconfirmed = [account.run for account in accounts.runs if account.pid is None and not account.has_ended]
        self._expect(unconfirmed, work.settings)
        self._series.settle(work, frozenset(account.run for account in accounts.runs))
        report, strays = reconcile(work, accounts)
        work.runs.clear()
        self.recovery = report if self.recovery is None else self.recovery
        self._contact.settle(strays)
