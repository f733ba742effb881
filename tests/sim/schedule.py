"""Schedule steps, and a check that each time of a schedule has exactly one outcome.

    lost        every time since the schedule was created, enabled or given its times has fired, or is recorded as
                skipped, failed or missed
    doubled     each job that a schedule created belongs to one fire, and each fire created one job
    overlap     without overlap no time fires while a job of the schedule is active, and no time is skipped otherwise
    late        without catch-up no late time fires
    repeated    no time fires twice, unless the clock was wrong and has been corrected

The times are computed without the calendar: the schedules of the simulation fire at fixed intervals of minutes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from rota.db.decoding import from_micros, to_micros
from rota.jobs.preflight import EMPTY_PREFLIGHT
from rota.kernel.events import Event
from rota.schedules import commands
from rota.schedules import fire as schedule_fire
from rota.schedules.commands import ScheduleChange, ScheduleRequest
from rota.schedules.model import LATE_TOLERANCE, MAX_CLOCK_ADJUSTMENT
from tests.harness import SqlRunner
from tests.sim.template import ENVIRONMENT, TemplateSteps

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

NAMES = "st"
MINUTES = {"* * * * *": 1, "*/5 * * * *": 5, "0 * * * *": 60}
_MINUTE = 60_000_000
_OUTCOMES = frozenset(("schedule.fired", "schedule.skipped", "schedule.failed"))
_RESTARTED = frozenset(("schedule.created", "schedule.enabled"))


class FireChecker:
    def __init__(self, simulation: Simulation, run_sql: SqlRunner) -> None:
        self._sim = simulation
        self._run_sql = run_sql
        self._since: dict[int, int] = {}
        """Time from which each schedule fires."""
        self._spans: dict[int, list[tuple[int, int]]] = {}
        """First and last times with an outcome, by schedule."""
        self._fired: dict[int, set[int]] = {}
        """Times that must not fire again, by schedule."""

    def set_clock_back(self, duration: timedelta) -> None:
        """Forget the times of a wrong clock. If the scheduler may or may not have noticed the change, these times may
        fire again, but need not."""
        now = to_micros(self._sim.clock.now())
        threshold = now + MAX_CLOCK_ADJUSTMENT // timedelta(microseconds=1)
        for number, spans in self._spans.items():
            latest = max((last for _, last in spans), default=now)
            if duration > MAX_CLOCK_ADJUSTMENT or latest > threshold:
                self._fired[number] = {at for at in self._fired.get(number, ()) if at <= now}
            if latest > threshold:
                self._spans[number] = [(first, min(last, now)) for first, last in spans if first <= now]
                self._since[number] = min(self._since[number], now)

    def at_commit(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.kind.startswith("schedule."):
                continue
            number, at = int(str(event.data["schedule"]).removeprefix("schedule-")), str(event.data.get("at"))
            is_new = event.kind == "schedule.changed" and "cron" in event.data.get("fields", ())
            if event.kind in _RESTARTED or is_new:
                self._since[number], self._spans[number] = event.at, []
            elif event.kind == "schedule.missed":
                self._spans[number].append((_parse_micros(str(event.data["first"])), _parse_micros(at)))
            elif event.kind in _OUTCOMES and "trigger" not in event.data:
                self._spans[number].append((_parse_micros(at), _parse_micros(at)))
                fired = self._fired.setdefault(number, set())
                assert _parse_micros(at) not in fired, f"second {event.kind} of schedule-{number} at {at}"
                fired.add(_parse_micros(at))
                self._check_outcome(event, number, datetime.fromisoformat(at))

    def _check_outcome(self, event: Event, number: int, at: datetime) -> None:
        ((overlap, catch_up),) = self._run_sql(f"SELECT overlap, catch_up FROM schedule WHERE id = {number}")
        others = self._run_sql(
            "SELECT id, started_at IS NULL FROM job WHERE finished_at IS NULL"
            f" AND schedule = {number} AND id <> {event.job or 0}"
        )
        overlapping = [
            job for job, is_waiting in others if overlap == "skip" or (overlap == "queue_one" and is_waiting)
        ]
        description = f"{event.kind} of schedule-{number} at {at} ({overlap}, {catch_up})"
        assert event.kind != "schedule.fired" or not overlapping, f"{description} overlaps {overlapping}"
        assert event.kind != "schedule.skipped" or overlapping, f"{description} overlaps no job"
        lateness = self._sim.clock.now() - at
        assert catch_up != "none" or lateness < LATE_TOLERANCE, f"{description} is late by {lateness}"

    def check(self) -> None:
        """Every time that was due has an outcome."""
        self._check_jobs()
        now = to_micros(self._sim.clock.now())
        for number, cron in self._run_sql("SELECT id, cron FROM schedule WHERE is_enabled = 1"):
            interval = MINUTES[cron] * _MINUTE
            due = range((self._since[number] // interval + 1) * interval, now + 1, interval)
            lost = set(due).difference(*(range(first, last + 1, interval) for first, last in self._spans[number]))
            assert not lost, f"schedule-{number} has no outcome for {sorted(map(from_micros, lost))[:9]}"

    def _check_jobs(self) -> None:
        created = self._run_sql("SELECT id, schedule FROM job WHERE schedule IS NOT NULL AND retry_of IS NULL")
        fired = Counter(self._run_sql("SELECT job, schedule FROM fire WHERE state = 'fired'"))
        wrong = set(fired) ^ set(created) | {fire for fire, count in fired.items() if count > 1}
        assert not wrong, f"jobs and fires of schedules differ: {wrong}"


def _parse_micros(moment: str) -> int:
    return to_micros(datetime.fromisoformat(moment))


class ScheduleSteps(TemplateSteps):
    def choose_schedule(self, rng: random.Random) -> str:
        """Return the name of an existing schedule. Create one if there is none."""
        names, name = (
            [schedule.name for schedule in self.reader.schedules.list_all(after=0, limit=9)],
            rng.choice(NAMES),
        )
        if not names:
            self.add_schedule(name, rng)
        return rng.choice(names or [name])

    def add_schedule(self, name: str, rng: random.Random) -> None:
        source = {"template": self.choose_template(rng)} if rng.random() < 0.6 else {"command": ["true"]}
        document = {
            "name": name,
            "cron": rng.choice(list(MINUTES)),
            "job": {**source, "params": self.random_params(rng)},
            "catch_up": rng.choice(("none", "latest", "all")),
            "overlap": rng.choice(("skip", "queue_one", "allow")),
        }
        self.run_request(
            partial(commands.add_schedule, request=msgspec.convert(document, ScheduleRequest), actor="tester")
        )

    def do_schedule(self, rng: random.Random) -> None:
        action = rng.choice(("add", "add", "change", "change", "disable", "enable", "remove"))
        if action == "add":
            self.add_schedule(rng.choice(NAMES), rng)
            return
        name = self.choose_schedule(rng)
        if action == "change":
            changes: list[dict[str, Any]] = [
                {"set_params": self.random_params(rng)},
                {"cron": rng.choice(list(MINUTES))},
                {"overlap": rng.choice(("skip", "queue_one", "allow"))},
                {"catch_up": "none"},
            ]
            change = msgspec.convert(rng.choice(changes), ScheduleChange)
            self.run_request(partial(commands.change_schedule, name=name, change_request=change, actor="tester"))
        else:
            self.run_request(partial(getattr(commands, action), name=name, actor="tester"))

    def do_trigger(self, rng: random.Random) -> None:
        params, name = self.random_params(rng), self.choose_schedule(rng)
        schedule, job, origin = schedule_fire.prepare_trigger(self.reader, name, params)
        act = partial(
            schedule_fire.trigger,
            schedule=schedule.id,
            job=job,
            origin=origin,
            default_environment=ENVIRONMENT,
            preflight=EMPTY_PREFLIGHT,
            workspace=None,
            actor="tester",
        )
        with self.judge.templates.expecting_params(params):
            self.run_request(act)
