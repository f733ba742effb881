"""Wakes when a schedule is due: a task on the event loop, which sleeps until then.

    look       what is due, a bounded number, and what each is to make               (a reader's thread)
    prepare    what has to be seen outside, as before any submit                      (threads)
    fire       one act each; the engine takes those that come together in one turn    (`command/fire.py`)

Nothing of it is remembered here: what is due stands in the store, so a crash at any point leaves either the whole fire
or nothing of it. A store that is full or away is tried again; what is late by then is caught up as the schedule says.
Each is prepared by itself, and whose look outside takes its time holds up no other.

The wall clock can be set under a timer, and a machine can sleep: while anything is due at all it is looked at once a
minute. A clock that was set back leaves schedules that wait for a time far ahead; they are set right then, and at the
start, for it may have been set while nobody was there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from rota.api.context import wait_for
from rota.clock import SET_BACK, Clock
from rota.command.fire import Due, ahead, due, fire, set_right
from rota.command.submission import Submission, Surroundings
from rota.command.survey import NOTHING, Survey
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.errors import RotaError, StorageFull, StoreError
from rota.ids import ScheduleId
from rota.store.session import Reader

log = logging.getLogger("rota.schedule")

T = TypeVar("T")

PAGE = 100
"""Schedules that fire in one go: between two, the engine does whatever else there is."""
LONGEST_WAIT = 60.0
AGAIN = 1.0
_TOGETHER = 0.5
"""Seconds that those which are due wait for each other before the next are looked at."""


class Desk(Protocol):
    """What it needs of the scheduler around it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def around(self) -> Surroundings: ...
    @property
    def schedules_changed(self) -> asyncio.Event: ...

    async def look(self, view: Callable[[Reader], T]) -> T: ...
    async def perform(self, act: Callable[[Work], T]) -> T: ...


Outside = Callable[[Sequence[Submission]], Awaitable[tuple[Survey, Sequence[Workspace | None]]]]


class Alarm:
    def __init__(self, desk: Desk, outside: Outside) -> None:
        """`outside` is asked what has to be seen there before a job is stored."""
        self._desk = desk
        self._clock = desk.clock
        self._outside = outside
        self._noticed: datetime | None = None
        """Since when something is due, while anything is."""
        self._ahead: float | None = None
        """How far the wall clock was before the other when last looked at."""
        self._is_in_trouble = False
        self._under_way: dict[ScheduleId, asyncio.Task[None]] = {}
        """Those that are being fired: due, and not to be looked at again until that is over."""

    async def run(self) -> None:
        try:
            await self._run()
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def _run(self) -> None:
        changed = self._desk.schedules_changed
        while True:
            changed.clear()
            try:
                seconds = await self.round()
                self._is_in_trouble = False
            except Exception as error:  # noqa: BLE001 - whatever it is, this task goes on, and says so
                seconds = self._after_trouble(error)
            if seconds is None:
                await changed.wait()
            elif seconds > 0:
                await wait_for(changed, seconds)

    def _after_trouble(self, error: Exception) -> float:
        """Said once, and tried again until it is over."""
        if not self._is_in_trouble:
            is_defect = not isinstance(error, RotaError)
            what = "a defect: schedules" if is_defect else "schedules"
            log.error("%s cannot fire, and are tried again: %s", what, error, exc_info=error if is_defect else None)
        self._is_in_trouble = True
        self._noticed = None  # what is late from here on is late
        return AGAIN

    async def round(self) -> float | None:
        """Fire some of what is due; how many seconds until there is more, none for ever."""
        now = self._clock.now()
        await self._see_clock(now)
        noticed = self._noticed = self._noticed or now
        most = PAGE + len(self._under_way)
        found = await self._desk.look(partial(due, now=now, noticed=noticed, limit=most))
        found = [each for each in found if each.schedule.id not in self._under_way]
        if found:
            await self._fire(found)
            return 0.0
        self._noticed = None
        if self._under_way:
            await self._settle(self._under_way.values(), AGAIN, asyncio.FIRST_COMPLETED)
            return 0.0
        first = await self._desk.look(lambda reader: reader.first_due_schedule())
        return None if first is None else min(max((first[2] - self._clock.now()).total_seconds(), 0.0), LONGEST_WAIT)

    async def _fire(self, found: Sequence[Due]) -> None:
        """What can be fired is, together; the rest as soon as it can."""
        begun = {each.schedule.id: asyncio.ensure_future(self._carry_out(each)) for each in found}
        self._under_way |= begun
        await self._settle(begun.values(), _TOGETHER, asyncio.ALL_COMPLETED)

    async def _settle(self, tasks: Iterable[asyncio.Task[None]], seconds: float, until: str) -> None:
        """See what has become of those; the trouble that one of them had is everybody's."""
        over, _ = await asyncio.wait(tasks, timeout=seconds, return_when=until)
        self._under_way = {number: task for number, task in self._under_way.items() if task not in over}
        troubles = [error for task in over if not task.cancelled() and (error := task.exception()) is not None]
        if troubles:
            raise troubles[0]

    async def _carry_out(self, found: Due) -> None:
        ready, survey, workspace = await self._prepared(found)
        act = partial(fire, due=ready, around=self._desk.around, survey=survey, workspace=workspace)
        await self._desk.perform(act)

    async def _prepared(self, found: Due) -> tuple[Due, Survey, Workspace | None]:
        """What cannot be seen outside is a fire that fails, and says why."""
        if found.job is None:
            return found, NOTHING, None
        try:
            survey, workspaces = await self._outside([found.job])
        except (StorageFull, StoreError):
            raise
        except RotaError as error:
            failed = Due(schedule=found.schedule, step=found.step, refusal=error.message)
            return failed, NOTHING, None
        return found, survey, workspaces[0] if workspaces else None

    async def _see_clock(self, now: datetime) -> None:
        before, self._ahead = self._ahead, now.timestamp() - self._clock.monotonic()
        if before is not None and self._ahead > before - SET_BACK:
            return
        try:
            await self._set_right(now)
        except BaseException:
            self._ahead = before
            raise

    async def _set_right(self, now: datetime) -> None:
        number: int | None = 0
        while number is not None:
            found, number = await self._desk.look(partial(ahead, now=now, after=number, limit=PAGE))
            for schedule in found:
                await self._desk.perform(partial(set_right, schedule=schedule))
        if self._noticed is not None:
            self._noticed = min(self._noticed, now)
