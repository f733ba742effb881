"""Schedules without waiting: the real alarm, commands, engine and store, under a clock that the test owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from harness import FakeClock, Scheduler
from rota.api.alarm import Alarm
from rota.command import fire
from rota.command import schedule as command
from rota.command.schedule import ScheduleChange, ScheduleWanted
from rota.command.submission import Submission, Surroundings
from rota.command.survey import NOTHING, Survey, names_something, survey
from rota.core.schedule import Fire, Schedule
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.ids import JobId
from rota.store.session import Reader

T = TypeVar("T")
AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})


class SetClock(FakeClock):
    """A wall clock that can be set; the other goes on as it did."""

    def __init__(self) -> None:
        super().__init__()
        self.went = 0.0

    def monotonic(self) -> float:
        return self.moment.timestamp() + self.went

    def set(self, moment: str) -> None:
        before = self.moment
        self.moment = at(moment)
        self.went += (before - self.moment).total_seconds()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class Clockwork:
    """What the alarm needs of the scheduler around it, and what a test does with schedules."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.clock = SetClock()
        self.around = AROUND
        self.schedules_changed = asyncio.Event()
        self.looks = 0
        self.warnings: list[str] = []
        self.outside_trouble: Exception | None = None
        scheduler.clock = self.clock
        scheduler.engine._clock = self.clock
        self.alarm = Alarm(self, self._outside)

    async def look(self, view: Callable[[Reader], T]) -> T:
        self.looks += 1
        with self.scheduler.reader.reading():
            return view(self.scheduler.reader)

    async def perform(self, act: Callable[[Work], T]) -> T:
        result: T = self.scheduler.do(act)
        return result

    async def _outside(self, jobs: Sequence[Submission]) -> tuple[Survey, Sequence[Workspace | None]]:
        if self.outside_trouble is not None:
            raise self.outside_trouble
        if not any(map(names_something, jobs)):
            return NOTHING, ()
        scheduler = self.scheduler
        began = scheduler.engine.known.begin()
        return survey(jobs, AROUND, scheduler.probe, scheduler.settings.places, began=began), ()

    def ring(self) -> None:
        """Until nothing is due."""

        async def rounds() -> None:
            while await self.alarm.round() == 0.0:
                pass

        asyncio.run(rounds())

    def restart(self) -> None:
        """As after a crash: nothing is left but the store."""
        self.scheduler.crash()
        self.alarm = Alarm(self, self._outside)

    def go(self, moment: str) -> None:
        """There at each time that is due until then."""
        end = at(moment)
        while True:
            first = self.scheduler.reader.first_due_schedule()
            if first is None or first[2] > end:
                break
            self.clock.moment = max(self.clock.moment, first[2])
            self.ring()
        self.clock.moment = end
        self.ring()

    def away(self, moment: str) -> None:
        """Nobody is there until then."""
        self.clock.moment = at(moment)
        self.restart()
        self.ring()

    def add(self, cron: str, name: str = "s", **fields: Any) -> Schedule:
        job = {"command": ["true"], **fields.pop("job", {})}
        wanted = msgspec.convert({"name": name, "cron": cron, "job": job, **fields}, ScheduleWanted)
        found: Schedule
        found, self.warnings = self.scheduler.do(partial(command.add, wanted=wanted, actor="tester"))
        return found

    def change(self, name: str = "s", *, rename: str | None = None, **fields: Any) -> list[str]:
        wanted = msgspec.convert({**fields, **({} if rename is None else {"name": rename})}, ScheduleChange)
        _, changed, self.warnings = self.scheduler.do(partial(command.change, name=name, wanted=wanted, actor="tester"))
        return list(changed)

    def do(self, verb: Callable[..., Schedule], name: str = "s") -> Schedule:
        found: Schedule = self.scheduler.do(partial(verb, name=name, actor="tester"))
        return found

    def trigger(self, name: str = "s", **params: Any) -> JobId:
        schedule, job, origin = fire.triggered(self.scheduler.reader, name, params)
        act = partial(
            fire.trigger, schedule=schedule.id, job=job, origin=origin, around=AROUND, survey=NOTHING, workspace=None,
            actor="tester",
        )  # fmt: skip
        return JobId(self.scheduler.do(act).jobs[0])

    def schedule(self, name: str = "s") -> Schedule:
        return command.find(self.scheduler.reader, name)

    def fires(self, name: str = "s") -> list[Fire]:
        """The oldest first."""
        return self.scheduler.reader.fires_of(self.schedule(name).id, 1_000_000)[::-1]

    def said(self, name: str = "s") -> list[str]:
        """Each as `fired 12:00`; of missed ones how many."""
        return [
            f"{each.state} {each.at:%H:%M}" + (f" x{each.count}" if each.count > 1 else "") for each in self.fires(name)
        ]

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.scheduler.events if event.kind.startswith("schedule.")]
