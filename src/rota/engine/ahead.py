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
from datetime import UTC, datetime

from rota.core import ahead
from rota.core.ahead import common_lane, next_up
from rota.engine.dispatch import Starter
from rota.engine.meter import Claimed
from rota.engine.work import NODE, Settings, Work
from rota.executor.port import Ahead, Executor, Start, Stop, Taken
from rota.ids import JobId, RunId, show_run
from rota.store.claim import Dispatch

log = logging.getLogger("rota.engine")

PATIENCE = 1.0
"""Seconds that a turn waits for the executor to say what it took. One that is frozen says it when it goes on; until
then nothing is claimed, and everything else goes on."""


class Series:
    def __init__(self, starter: Starter, executor: Executor) -> None:
        self._starter = starter
        self._executor = executor
        self._number = 1
        self._given: dict[RunId, Dispatch] = {}
        """In their order, without what was taken."""
        self._settings: Settings | None = None
        self.is_called_back = False
        """It was asked what it took, and has not answered."""

    @property
    def is_open(self) -> bool:
        return bool(self._given)

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

    def book_taken(self, work: Work, message: Taken) -> None:
        at = min(datetime.fromtimestamp(message.at, UTC), work.now)
        if self._claim(work, message.run, at) or work.session.open_run(message.run) is not None:
            return  # told twice, perhaps
        log.warning("%s was started ahead, but is not wanted any more", show_run(message.run))
        work.orders.append(Stop(run=message.run))

    def give_up(self, work: Work, run: RunId) -> None:
        """What it took cannot be booked: it is not to go on unseen."""
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
        job = work.session.take_ahead(run, NODE, at=at, now=work.now)
        work.taken.add(run)
        work.runs.pop(run, None)
        dispatch = self._given.get(run)
        if job is not None and dispatch is not None:
            work.notes.append(Claimed(dispatch.type, dispatch.waited(work.now)))
        return job is not None

    def go_on(self, work: Work) -> None:
        """All is decided, and nothing was asked for: give the executor what comes next, where that is certain."""
        given = [dispatch.job for run, dispatch in self._given.items() if run not in work.taken]
        if not work.has_brief or work.is_withdrawn or self.is_called_back or len(given) > ahead.DEPTH // 2:
            return
        if not self._executor.goes_ahead or _is_unsteady(work):
            return
        places = work.session.open_places()
        lanes = work.session.ready_lanes(2)
        lane = common_lane(list(places.values()), [lane for lane, _ in lanes])
        if lane is None or lanes[0][1]:
            return
        heads = work.session.heads(lane, len(given) + ahead.DEPTH)
        plain = work.session.plain([*places, *heads[len(given) :]])
        if plain >= places.keys():
            self._give(work, next_up(heads, given, plain), width=len(places))

    def _give(self, work: Work, jobs: Sequence[JobId], *, width: int) -> None:
        if not jobs:
            return
        first = work.session.take("run", len(jobs))
        dispatches = work.session.dispatches({job: RunId(first + n) for n, job in enumerate(jobs)})
        starts: list[Start] = []
        for dispatch in dispatches:
            try:
                starts.append(self._starter.start_of(work, dispatch))
            except (ValueError, LookupError):
                break  # its record cannot be used, which is said when it is its turn
        if starts:
            work.session.give_ahead({start.job: start.run for start in starts}, work.now)
            work.given = dict(zip((start.run for start in starts), dispatches, strict=False))
            work.ahead = Ahead(series=self._number, width=width, starts=starts)

    # After the commit.

    def keep(self, work: Work) -> None:
        for run in work.taken:
            self._given.pop(run, None)
        if work.is_withdrawn:
            self._given.clear()
            self._number += 1
            self.is_called_back = False
        if work.ahead is not None:
            self._given.update(work.given)
            self._settings = work.settings


def _is_unsteady(work: Work) -> bool:
    """Something else than room decides over who starts, now or in a while."""
    settings = work.settings
    is_paced = settings.batch_size is not None or settings.heartbeat is not None or bool(settings.spawn_delay)
    is_held = work.held is not None or bool(work.clearings) or bool(work.absent)
    return is_paced or is_held or bool(work.questions) or work.session.has_disturbances()
