"""Schedules without waiting: the real schedule timer, commands, engine and store, with a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from rota.db.session import Reader
from rota.engine.transaction import Transaction
from rota.ids import JobId
from rota.jobs.preflight import EMPTY_PREFLIGHT, Preflight, needs_probe, run_preflight
from rota.jobs.submission import Submission
from rota.kernel.job import WorkspaceSpec
from rota.schedules import commands
from rota.schedules import fire as schedule_fire
from rota.schedules.commands import ScheduleChange, ScheduleRequest
from rota.schedules.model import Fire, Schedule
from rota.schedules.timer import RunPreflight, ScheduleTimer
from tests.harness import DEFAULT_ENVIRONMENT, FakeClock, Scheduler

T = TypeVar("T")


class AdjustableClock(FakeClock):
    """A clock whose wall time can be set without affecting its monotonic time."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = 0.0

    def monotonic(self) -> float:
        return self.moment.timestamp() + self.offset

    def set_time(self, time: str) -> None:
        before = self.moment
        self.moment = parse_utc(time)
        self.offset += (before - self.moment).total_seconds()


def parse_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class ScheduleDriver:
    """Driver of a schedule timer, and the operations on schedules that tests need."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.clock = AdjustableClock()
        self.schedules_changed = asyncio.Event()
        self.read_count = 0
        self.warnings: list[str] = []
        self.preflight_error: Exception | None = None
        scheduler.clock = self.clock
        scheduler.engine._clock = self.clock
        self.timer = self.make_timer(self._run_preflight)

    def make_timer(self, run_preflight: RunPreflight) -> ScheduleTimer:
        return ScheduleTimer(
            clock=self.clock,
            read=lambda view: self.read(view),
            run_in_turn=lambda operation: self.run_in_turn(operation),
            run_preflight=run_preflight,
            default_environment=DEFAULT_ENVIRONMENT,
            changed=self.schedules_changed,
        )

    async def read(self, view: Callable[[Reader], T]) -> T:
        self.read_count += 1
        with self.scheduler.reader.read_transaction():
            return view(self.scheduler.reader)

    async def run_in_turn(self, operation: Callable[[Transaction], T]) -> T:
        result: T = self.scheduler.run_request(operation)
        return result

    async def _run_preflight(self, jobs: Sequence[Submission]) -> tuple[Preflight, Sequence[WorkspaceSpec | None]]:
        if self.preflight_error is not None:
            raise self.preflight_error
        if not any(map(needs_probe, jobs)):
            return EMPTY_PREFLIGHT, ()
        scheduler = self.scheduler
        number = scheduler.engine.fact_cache.begin_probe()
        preflight = run_preflight(
            jobs, DEFAULT_ENVIRONMENT, scheduler.probe, scheduler.settings.artifact_paths, probe_number=number
        )
        return preflight, ()

    def fire_due(self) -> None:
        """Fire until nothing is due."""

        async def fire_all() -> None:
            while await self.timer.fire_due() == 0.0:
                pass

        asyncio.run(fire_all())

    def restart(self) -> None:
        """Restart as after a crash, with the store only."""
        self.scheduler.crash()
        self.timer = self.make_timer(self._run_preflight)

    def advance_to(self, time: str) -> None:
        """Advance the clock, and fire at each due time on the way."""
        end = parse_utc(time)
        while True:
            first = self.scheduler.reader.schedules.first_due()
            if first is None or first[2] > end:
                break
            self.clock.moment = max(self.clock.moment, first[2])
            self.fire_due()
        self.clock.moment = end
        self.fire_due()

    def restart_at(self, time: str) -> None:
        """Advance the clock while the scheduler is down, then restart it."""
        self.clock.moment = parse_utc(time)
        self.restart()
        self.fire_due()

    def add_schedule(self, cron: str, name: str = "s", **fields: Any) -> Schedule:
        job = {"command": ["true"], **fields.pop("job", {})}
        request = msgspec.convert({"name": name, "cron": cron, "job": job, **fields}, ScheduleRequest)
        schedule: Schedule
        schedule, self.warnings = self.scheduler.run_request(
            partial(commands.add_schedule, request=request, actor="tester")
        )
        return schedule

    def change_schedule(self, name: str = "s", *, rename: str | None = None, **fields: Any) -> list[str]:
        request = msgspec.convert({**fields, **({} if rename is None else {"name": rename})}, ScheduleChange)
        _, changed, self.warnings = self.scheduler.run_request(
            partial(commands.change_schedule, name=name, change_request=request, actor="tester")
        )
        return list(changed)

    def run_command(self, verb: Callable[..., Schedule], name: str = "s") -> Schedule:
        schedule: Schedule = self.scheduler.run_request(partial(verb, name=name, actor="tester"))
        return schedule

    def trigger(self, name: str = "s", **params: Any) -> JobId:
        schedule, job, origin = schedule_fire.prepare_trigger(self.scheduler.reader, name, params)
        operation = partial(
            schedule_fire.trigger,
            schedule=schedule.id,
            job=job,
            origin=origin,
            default_environment=DEFAULT_ENVIRONMENT,
            preflight=EMPTY_PREFLIGHT,
            workspace=None,
            actor="tester",
        )
        return JobId(self.scheduler.run_request(operation).jobs[0])

    def find_schedule(self, name: str = "s") -> Schedule:
        return commands.find_schedule(self.scheduler.reader, name)

    def list_fires(self, name: str = "s") -> list[Fire]:
        """Return the fires, oldest first."""
        return self.scheduler.reader.schedules.fires_of(self.find_schedule(name).id, 1_000_000)[::-1]

    def format_fires(self, name: str = "s") -> list[str]:
        """Return each fire as `fired 12:00`, or `missed 12:00 x3`."""
        return [
            f"{fire.state} {fire.at:%H:%M}" + (f" x{fire.count}" if fire.count > 1 else "")
            for fire in self.list_fires(name)
        ]

    @property
    def event_kinds(self) -> list[str]:
        return [event.kind for event in self.scheduler.events if event.kind.startswith("schedule.")]
