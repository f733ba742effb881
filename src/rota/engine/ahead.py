"""What the executor was given to start by itself, and what it has taken of it (`core/ahead.py` says when and why).

    something short succeeded ─► rows in `ahead` ─► COMMIT ─► Ahead ──► executor
                                                                           │ one succeeds: the next is started
    the end is booked, what was taken is claimed ◄──────── Exited, Taken ◄─┘
    a request, a timer: Withdraw ──► ◄── Withdrawn: what was taken until then is booked; only then does it go on

While anything is given, nothing is claimed but what the executor says it took: it has the room there is. What it was
given is on disk before it is told. So after a crash of either side the accounts say which of it were taken, and the
rest stands where it stood.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto

import msgspec

from rota.core import ahead
from rota.core.ahead import common_lane, next_up
from rota.core.tick import free_workers
from rota.engine.dispatch import Starter
from rota.engine.meter import Claimed
from rota.engine.work import NODE, Settings, Work
from rota.executor.port import Ahead, Executor, Start, Stop, Taken
from rota.ids import JobId, RunId, show_run
from rota.store.ahead import Foreseen
from rota.store.claim import OpenRun

log = logging.getLogger("rota.engine")

PATIENCE = 1.0
"""Seconds that a turn waits for the executor to say what it took. One that is frozen says it when it goes on; until
then nothing is claimed, and everything else goes on."""


class Booked(Enum):
    """What became of one that the executor took."""

    CLAIMED = auto()
    BEFORE = auto()
    """It was told twice."""
    UNWANTED = auto()
    """It does not stand in the queue any more, and has been told to end."""


class Series:
    def __init__(self, starter: Starter, executor: Executor) -> None:
        self._starter = starter
        self._executor = executor
        self._number = 1
        self._given: dict[RunId, Foreseen] = {}
        """In their order, without what was taken."""
        self.runs: dict[RunId, OpenRun] = {}
        """What is known of those that run. While nothing happens but ends, nobody else changes anything of them."""
        self._settings: Settings | None = None
        self._width = 0
        self.is_called_back = False
        """It was asked what it took, and has not answered."""
        self._is_silent = False
        """It has not answered in time."""
        self._is_outdated = False
        """Something was asked for since it was given: what was foreseen of it may not be so any more."""

    @property
    def is_open(self) -> bool:
        return bool(self._given)

    @property
    def may_go_on(self) -> bool:
        """The executor has something to start by itself, and was not asked for it."""
        return self.is_open and not self.is_called_back

    @property
    def trouble(self) -> str | None:
        """Why nothing starts, while the executor does not say what it has started."""
        said = "nothing is started before the supervisor has said what it started by itself"
        return said if self._is_silent else None

    def is_of(self, settings: Settings) -> bool:
        """Whether it was decided on by these."""
        return self._settings is settings

    def is_left(self, work: Work) -> bool:
        """Whether the executor may still start something by itself after what this turn has heard."""
        return not work.is_withdrawn and len(self._given) > len(work.taken & self._given.keys())

    def call_back(self) -> None:
        """Wait until the executor has said what it took, if it does."""
        self.is_called_back = True
        self._executor.withdraw(self._number, PATIENCE)

    # Inside a transaction.

    def book_taken(self, work: Work, message: Taken) -> Booked:
        at = min(datetime.fromtimestamp(message.at, UTC), work.now)
        if self._claim(work, message.run, at):
            return Booked.CLAIMED
        if work.session.job_of_run(message.run) is not None:
            return Booked.BEFORE
        log.warning("%s was started ahead, but is not wanted any more", show_run(message.run))
        self.give_up(work, message.run)
        return Booked.UNWANTED

    def give_up(self, work: Work, run: RunId) -> None:
        """What it took is not booked: it is not to go on unseen, and nobody else has its number."""
        work.session.spend("run", run)
        work.session.forget_ahead(run)
        work.taken.add(run)
        work.orders.append(Stop(run=run))

    def book_withdrawn(self, work: Work, number: int) -> None:
        if number == self._number and not work.is_withdrawn:
            work.session.drop_ahead()
            work.is_withdrawn = True

    def settle(self, work: Work, known: frozenset[RunId]) -> None:
        """A new connection: what it knows was taken, and of the rest nothing will be."""
        for run in work.session.given_ahead():
            if run in known:
                self._claim(work, run, None)
        work.session.drop_ahead()
        work.is_withdrawn = True

    def _claim(self, work: Work, run: RunId, at: datetime | None) -> bool:
        """It has the place of one that has ended, if that is known."""
        worker = work.free.pop() if work.free else f"{NODE}/{next(free_workers(work.session.used()[1]))}"
        is_claimed = work.session.take_ahead(run, worker, at=at, now=work.now)
        work.taken.add(run)
        work.runs.pop(run, None)
        foreseen = self._given.get(run)
        if is_claimed and foreseen is not None:
            begun = work.now if at is None else at
            if not self._is_outdated:
                work.runs[run] = msgspec.structs.replace(foreseen.run, worker=worker, started_at=begun)
            work.notes.append(Claimed(foreseen.dispatch.type, foreseen.dispatch.waited(begun)))
        return is_claimed

    def go_on(self, work: Work) -> None:
        """All is decided, and nothing was asked for: give the executor what comes next, where that is certain."""
        given = [foreseen.run.job for run, foreseen in self._given.items() if run not in work.taken]
        if not work.has_brief or work.is_withdrawn or self.is_called_back or len(given) > ahead.DEPTH // 2:
            return
        if not self._executor.goes_ahead or _is_paced(work):
            return
        lanes, places = work.session.ready_lanes(2), work.session.open_places()
        lane = common_lane([place.lane for place in places], [lane for lane, _ in lanes])
        if lane is None or lanes[0][1] or work.session.has_disturbances():
            return
        if not work.settings.limits.hold(work.session.used()[0]):
            return  # an end makes no room
        heads = work.session.heads(lane, len(given) + ahead.DEPTH)
        plain = work.session.plain([*(place.job for place in places), *heads[len(given) :]])
        if all(place.job in plain for place in places):
            self._give(work, next_up(heads, given, plain), [place.run for place in places])

    def _give(self, work: Work, jobs: Sequence[JobId], running: Sequence[RunId]) -> None:
        if not jobs:
            return
        first = work.session.take("run", len(jobs))
        dispatches = work.session.dispatches({job: RunId(first + n) for n, job in enumerate(jobs)})
        starts: list[Start] = []
        with suppress(ValueError, LookupError, OverflowError):  # a record cannot be used: that is said in its turn
            for each in work.session.foreseen(dispatches, work.now):
                starts.append(self._starter.start_of(work, each.dispatch))
                work.given[each.run.run] = each
        if starts:
            work.session.give_ahead({start.job: start.run for start in starts}, work.now)
            # The end of one whose place is taken may be told a moment before that is.
            width = max(len(running), self._width if self.is_left(work) else 0)
            work.ahead = Ahead(series=self._number, width=width, starts=starts, runs=running)

    # After the commit.

    def keep(self, work: Work, *, is_asked: bool) -> None:
        for run in work.taken:
            self._given.pop(run, None)
        if work.is_withdrawn:
            self._given.clear()
            self._number += 1
            self.is_called_back = False
        if work.ahead is not None:
            self._given.update(work.given)
            self._settings = work.settings
            self._width = work.ahead.width
        self._is_silent = bool(self._given) and self.is_called_back
        self._is_outdated = bool(self._given) and (is_asked or self._is_outdated)
        is_known = bool(self._given) and not is_asked
        self.runs = {run: known for run, known in work.runs.items() if known is not None} if is_known else {}


def _is_paced(work: Work) -> bool:
    """Something else than room decides over who starts, now or in a while."""
    settings = work.settings
    is_slowed = settings.batch_size is not None or settings.heartbeat is not None or bool(settings.spawn_delay)
    return is_slowed or work.held is not None or bool(work.clearings or work.absent or work.questions)
