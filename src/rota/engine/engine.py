"""The engine: one turn is one write transaction.

    messages from the executor ┐
    requests from commands     ├─▶ BEGIN · do each · look · claim · COMMIT
    timers that are due        ┘                                      │
      start orders, acknowledgements, replies, events ◀───────────────┘

Everything that leaves the engine leaves after the commit. If the commit fails all are told, nothing is
spawned, and what the executor said is kept for the next try. The engine is single-threaded and takes clock,
store and executor through ports: `loop` drives it with a selector, a simulator drives it by hand.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rota.clock import SET_BACK, Clock
from rota.core.control import Holds
from rota.core.event import Event
from rota.core.pace import Outlook
from rota.engine import control, rewind, slot
from rota.engine.act import guarded, see_all, seen
from rota.engine.ahead import Series
from rota.engine.claiming import Claims
from rota.engine.clearing import Clearing, holds_of
from rota.engine.contact import Contact
from rota.engine.dispatch import Starter, look_at_marked
from rota.engine.hearing import Hearing
from rota.engine.known import Known
from rota.engine.meter import Meter
from rota.engine.outside import stir_changed
from rota.engine.recovery import Report
from rota.engine.webhook import Outbox
from rota.engine.work import Chance, Question, Request, Settings, Work
from rota.errors import RotaError, StorageFull, StoreError, Unavailable
from rota.executor.port import Executor, Message
from rota.ids import SlotId
from rota.store.database import CannotGoOn
from rota.store.session import Session

log = logging.getLogger("rota.engine")

STALLED = 10.0
"""Seconds after which a turn that has not ended is said to be in trouble; most often it waits for the store."""


class Found(NamedTuple):
    """What the last turn found, for the next one."""

    lead: float
    """How far the wall clock was ahead of the other."""
    has_slots: bool = True
    """Direct executions may wait: each turn sees to their places."""
    was_held: bool = False
    """By the hold file."""
    next_due: datetime | None = None
    has_more: bool = False


class Engine:
    def __init__(
        self,
        *,
        open_session: Callable[[], Session],
        executor: Executor,
        clock: Clock,
        settings: Settings,
        starter: Starter,
        publish: Callable[[Sequence[Event]], None],
        ask: Callable[[Sequence[Question]], None],
        chance: Chance = random.random,
        meter: Meter | None = None,
    ) -> None:
        self._session: Session
        self._open_session = open_session
        self._has_started = False
        self._executor = executor
        self._clock = clock
        self._starter = starter
        self._publish = publish
        self._chance = chance
        self._ask = ask
        self._meter = Meter() if meter is None else meter
        self.known = Known()
        self.outbox = Outbox()
        self._contact = Contact(executor, clock)
        self._series = Series(starter, executor)
        self._hearing = Hearing(self._contact, starter, clock, self._series)
        self._claims = Claims(starter)
        self.settings = settings
        self.is_draining = False
        """Set at shutdown: nothing new starts."""
        self.held: str | None = None
        """What the hold file says, while there is one: nothing new starts. Set by who looks at it."""
        self._found = Found(lead=float("-inf"))
        self.clearings: list[Clearing] = []
        self.trouble: RotaError | None = None
        """Why the store cannot be written to, while it cannot."""
        self._turn_since: float | None = None
        """On the monotonic clock, while a turn is under way."""
        self.absent: frozenset[SlotId] = frozenset()
        """Direct executions that hung on a connection to an earlier scheduler, and whose clients are not back."""
        self.has_more = False
        """Work is left that needs no event: another turn should follow at once."""

    def start(self) -> None:
        """Every waiting job is looked at again, so that no wake-up can be lost for good. A full disk, or a server that
        is just being restarted, is no reason to stay away: it is said, and every turn tries again."""
        session: Session | None = None
        try:
            session = self._session = self._open_session()
            session.begin()
            session.stir_all_waiting()
            session.stir_postponed(self._clock.now())
            session.forget_old_failures(self._clock.now() - self.settings.breaker.window)
            sentinels = rewind.left_over(session, self.settings.places)
            self._claims.pacer.recall(session)
            self.outbox.load(session)
            clearings = control.left_over(session)
            absent = frozenset(found.id for found in session.open_slots() if found.is_attended)
            session.commit()
        except (StorageFull, StoreError) as error:
            if session is not None:
                session.rollback()
            if isinstance(error, CannotGoOn):
                raise
            if self.trouble is None:
                log.error("%s", error.message)
            self.trouble = error
            return
        rewind.remove(sentinels, [])
        self.trouble, self._has_started, self.has_more = None, True, True
        self.clearings, self.absent = clearings, absent

    def _starts_at_last(self, requests: Sequence[Request[Any]]) -> bool:
        self.start()
        if self.trouble is not None:
            for request in requests:
                request.done(self.trouble)
        return self._has_started

    def turn(self, requests: Sequence[Request[Any]] = ()) -> None:
        self._turn_since = self._clock.monotonic()
        try:
            self._turn(requests)
        finally:
            self._turn_since = None

    def _turn(self, requests: Sequence[Request[Any]]) -> None:
        if not self._has_started and not self._starts_at_last(requests):
            return
        if self._series.may_go_on and (requests or self._is_disturbed(self._clock.now())):
            self._hear_first(requests)
            if self.trouble is not None:
                return
        self._take_turn(requests)

    def _hear_first(self, requests: Sequence[Request[Any]]) -> None:
        """What the executor has taken by itself came before all that is done now."""
        self._series.call_back()
        try:
            self._take_turn((), only_hears=True)
        finally:
            if self.trouble is not None:
                for request in requests:
                    request.done(self.trouble)

    def _is_disturbed(self, now: datetime) -> bool:
        """Something else has happened than that runs succeeded."""
        is_held = self.is_draining or self.held is not None or bool(self.clearings)
        return is_held or not self._series.is_of(self.settings) or self._is_due(now) or self._is_set_back(now)

    def _take_turn(self, requests: Sequence[Request[Any]], *, only_hears: bool = False) -> None:
        began = self._clock.monotonic()
        messages = self._hearing.receive()
        work = Work(
            self._session, self.settings, self._clock.now(), self._chance, self.known, self.held, self.clearings,
            self.absent, {} if requests else self._series.runs,
        )  # fmt: skip
        acts = [request.act for request in requests]
        replies: list[tuple[Request[Any], Any]] = []
        try:
            self._session.begin()
            results = self._perform(work, messages, acts)
            if work.taken:
                self._claims.pacer.book_taken(work.now)
            only_hears = only_hears or self._comes_between(work)
            found = self._as_found if only_hears else self._decide(work, is_asked=bool(requests))
            self.outbox.book(work)
            replies = see_all(work, requests, results)
            decided = self._clock.monotonic()
            events = self._session.commit()
            stored = self._clock.monotonic()
        except (StorageFull, StoreError) as error:
            self._fail(error, messages, requests)
            if isinstance(error, CannotGoOn):
                raise
            return
        except Exception as error:
            log.exception("a defect: the turn was undone")
            self._fail(StoreError(f"a defect in Rota: {error!r}; rota.log has the details"), messages, requests)
            return
        # What somebody else did meanwhile came in with our own answers: nothing would wake us for it again.
        self.trouble, self.has_more = None, self._session.hear() or found.has_more
        self._hearing.keep([])
        self._found = found
        work.keep()
        self._series.keep(work, is_asked=bool(requests))
        self._claims.pacer.keep()
        self.clearings = control.keep_clearings(work)
        self.absent = work.absent
        for act in work.afterwards:
            act()
        self._hearing.await_starts(work)
        ahead = () if work.ahead is None else (work.ahead,)
        self._executor.send([*work.starts, *ahead, *work.orders])  # what somebody waits for goes first
        for request, result in replies:
            request.done(result)
        if events:
            self._publish(events)
        if work.questions or work.watches:
            self._ask(work.questions)
        self._count(work, events, requests=len(requests), seconds=stored - began, commit_seconds=stored - decided)

    def _comes_between(self, work: Work) -> bool:
        """Something has happened since this turn began: before it is decided about, what is given is taken back."""
        may_go_on = self._series.is_left(work) and not self._series.is_called_back
        return may_go_on and self._is_disturbed(work.now)

    @property
    def _as_found(self) -> Found:
        """Nothing is decided, so that follows at once."""
        return self._found._replace(has_more=True)

    def _decide(self, work: Work, *, is_asked: bool) -> Found:
        """What follows from what was done: who is looked at, and who starts."""
        stir_changed(work)
        self._hearing.call_back_overdue(work)
        lead = self._see_clocks(work.now)
        if self._is_due(work.now):
            self._session.stir_due(work.now)
        self._claims.book_time(work)
        control.book_hold_file(work, was_held=self._found.was_held)
        control.go_on_clearing(work)
        has_slots = (self._found.has_slots or work.has_slots) and slot.take_places(work)
        is_left = self._look(work)
        control.remember_clearings(work)
        has_more = self._claim(work, is_left=is_left) or is_left or bool(work.clearings)
        if self._may_claim and not (is_asked or has_more):
            self._series.go_on(work)
        next_due = _earliest(
            self._session.next_due(), self._claims.breaker_due, self._claims.pacer.next_due(self.settings, work.now)
        )
        return Found(lead, has_slots=has_slots, was_held=work.held is not None, next_due=next_due, has_more=has_more)

    def _count(self, work: Work, events: Sequence[Event], **figures: Any) -> None:
        """It is done and told by now: nothing that is wrong with the figures harms it."""
        try:
            self._meter.book(work.notes, events, **figures)
        except Exception:
            log.exception("a defect: the figures of this turn are not counted")

    def rehearse(self, request: Request[Any]) -> None:
        """What a turn with this request would come to. It is the same code on the same records, and none of it is kept:
        nothing reaches the disk, the executor, or who listens."""
        if not self._has_started:
            request.done(self.trouble or Unavailable("the scheduler has not started yet; try again"))
            return
        known = self.known.copy()
        work = Work(
            self._session, self.settings, self._clock.now(), self._chance, known, self.held, self.clearings, self.absent
        )  # fmt: skip
        work.is_rehearsal = True
        answer: Any
        try:
            self._session.begin()
            result = request.act(work)
            stir_changed(work)
            if self._is_due(work.now):
                self._session.stir_due(work.now)
            self._claims.book_time(work)
            control.book_hold_file(work, was_held=self._found.was_held)
            slot.take_places(work)
            is_left = self._look(work)
            if self._may_claim:
                self._claims.choose(work, is_left=is_left)
            answer = result if request.see is None else seen(work, request.see, [result])[0]
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = error
        finally:
            self._session.rollback()
            self._claims.pacer.undo()
        request.done(answer)

    @property
    def next_due(self) -> datetime | None:
        """When a delayed job, or a breaker, is to be looked at."""
        return self._found.next_due

    @property
    def recovery(self) -> Report | None:
        """What the first reconciliation found; none before it."""
        return self._hearing.recovery

    @property
    def troubles(self) -> list[str]:
        """What is wrong now, for `status`."""
        notice = [] if self._contact.notice is None else [self._contact.notice]
        return [*self._obstacles, *notice, *self._hearing.troubles]

    @property
    def _obstacles(self) -> list[str]:
        found = (None if self.trouble is None else self.trouble.message, self._stall, self._series.trouble)
        return [*(each for each in found if each is not None), *self._contact.obstacles]

    @property
    def _stall(self) -> str | None:
        """Asked from other threads, while this one waits for the store."""
        since = self._turn_since
        taken = 0.0 if since is None else self._clock.monotonic() - since
        return f"a turn has not ended for {taken:.0f} s: the store may not answer" if taken >= STALLED else None

    @property
    def held_by(self) -> str | None:
        """Why nothing at all starts, whatever the gates say."""
        return next(iter(self.obstacles), None)

    @property
    def obstacles(self) -> list[str]:
        """The same, all of it."""
        draining = ["the scheduler is stopping"] if self.is_draining else []
        away = [] if self._contact.is_connected else ["there is no supervisor; it is being started"]
        return [*draining, *(self._obstacles or away)]

    @property
    def holds(self) -> Holds:
        return holds_of(self.held, self.clearings, self.absent)

    @property
    def outlook(self) -> Outlook:
        """When a job can start that nothing else holds."""
        return self._claims.pacer.outlook(self.settings, self._clock.now())

    @property
    def _may_claim(self) -> bool:
        return not self.is_draining and self._contact.may_start

    @property
    def next_deadline(self) -> float | None:
        """On the monotonic clock, when a turn is wanted though nothing happens."""
        due = (self._hearing.next_deadline, self._contact.next_deadline)
        return min((moment for moment in due if moment is not None), default=None)

    def _see_clocks(self, now: datetime) -> float:
        """How far the wall clock is ahead of the other. Where it was set back, delays that were over are not."""
        if self._is_set_back(now):
            self._session.stir_postponed(now)
        return self._lead_at(now)

    def _is_set_back(self, now: datetime) -> bool:
        return self._lead_at(now) < self._found.lead - SET_BACK

    def _lead_at(self, now: datetime) -> float:
        return now.timestamp() - self._clock.monotonic()

    def _is_due(self, now: datetime) -> bool:
        return self.next_due is not None and self.next_due <= now

    def _perform(self, work: Work, messages: Sequence[Message], acts: Sequence[Callable[[Work], Any]]) -> list[Any]:
        """All of it at first without savepoints, for nearly always all goes well; what the acts came to. When something
        does not, everything is undone and done again, each piece under a savepoint of its own, so that only that one
        is refused."""
        try:
            self._hearing.book(work, messages)
            done = [act(work) for act in acts]
            self._session.catch_up()
            return done
        except (StorageFull, StoreError):
            raise
        except Exception:  # noqa: BLE001 - what it is, is found out below
            self._session.rollback()
            self._session.begin()
            work.forget()
            self._hearing.book_each(work, messages)
            return [guarded(work, act) for act in acts]

    def _look(self, work: Work) -> bool:
        """Whether marked jobs may be left: none where a tick was asked for, which says what it comes to."""
        while look_at_marked(work, "tick"):
            if work.tick is None:
                return True
        return False

    def _claim(self, work: Work, *, is_left: bool) -> bool:
        """Claim what fits; whether there may be more to do at once."""
        self._contact.try_again()
        return self._may_claim and not self._series.is_left(work) and self._claims.claim(work, is_left=is_left)

    def _fail(self, error: RotaError, messages: list[Message], requests: Sequence[Request[Any]]) -> None:
        """Nothing was stored: say so to everybody, keep what the executor said, and try again in a while."""
        self._session.rollback()
        self._claims.pacer.undo()
        self.outbox.forget()
        if self.trouble is None:
            log.error("%s", error.message)
        self._meter.undo()
        self.trouble, self.has_more = error, False
        self._hearing.keep(messages)
        self._starter.forget()
        if self._series.may_go_on:
            self._series.call_back()  # while nothing can be stored nothing starts
        for request in requests:
            request.done(error)

    def fileno(self) -> int:
        """Readable when the store has something to say unasked; -1 where it never has."""
        return self._session.fileno() if self._has_started else -1

    def hear(self) -> bool:
        """Whether what the store said is news."""
        return self._session.hear()

    def refuse(self, requests: Sequence[Request[Any]]) -> None:
        for request in requests:
            request.done(Unavailable("the scheduler is stopping; try again when it is back"))


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
