"""Schedules in the simulation, and that each of their times comes to one thing (DESIGN 8).

    lost       every time since the schedule was made, enabled or given its times has fired, or is booked as skipped,
               failed or missed
    doubled    each job that a schedule made belongs to one fire, and each fire has made one job
    crowded    where they may not overlap none fires beside another that is active; nor is one skipped without cause
    late       where nothing is caught up, nothing fires that is late

Which times there are is worked out without the calendar: those that are used here are so many minutes apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from harness import Raw
from rota.command import fire
from rota.command import schedule as schedules
from rota.command.schedule import ScheduleChange, ScheduleWanted
from rota.command.survey import NOTHING
from rota.core.event import Event
from rota.core.schedule import TOLERANCE
from rota.store.moment import from_stored, to_stored
from sim.template import AROUND, TemplateVerbs

if TYPE_CHECKING:
    from sim.simulation import Simulation

NAMES = "st"
MINUTES = {"* * * * *": 1, "*/5 * * * *": 5, "0 * * * *": 60}
_MINUTE = 60_000_000
_FATES = frozenset(("schedule.fired", "schedule.skipped", "schedule.failed"))
_RENEWED = frozenset(("schedule.created", "schedule.enabled"))


class Fires:
    def __init__(self, simulation: Simulation, raw: Raw) -> None:
        self._sim = simulation
        self._raw = raw
        self._since: dict[int, int] = {}
        """From when on each is to fire."""
        self._spans: dict[int, list[tuple[int, int]]] = {}
        """Times that something has become of, from and to, by schedule."""

    def at_commit(self, events: Sequence[Event]) -> None:
        for event in events:
            if not event.kind.startswith("schedule."):
                continue
            number, at = int(str(event.data["schedule"]).removeprefix("schedule-")), str(event.data.get("at"))
            is_new = event.kind == "schedule.changed" and "cron" in event.data.get("fields", ())
            if event.kind in _RENEWED or is_new:
                self._since[number], self._spans[number] = event.at, []
            elif event.kind == "schedule.missed":
                self._spans[number].append((_stored(str(event.data["first"])), _stored(at)))
            elif event.kind in _FATES and "trigger" not in event.data:
                self._spans[number].append((_stored(at), _stored(at)))
                self._check_fate(event, number, datetime.fromisoformat(at))

    def _check_fate(self, event: Event, number: int, at: datetime) -> None:
        ((overlap, catch_up),) = self._raw(f"SELECT overlap, catch_up FROM schedule WHERE id = {number}")
        others = self._raw(
            "SELECT id, started_at IS NULL FROM job WHERE finished_at IS NULL"
            f" AND schedule = {number} AND id <> {event.job or 0}"
        )
        crowd = [job for job, is_waiting in others if overlap == "skip" or (overlap == "queue_one" and is_waiting)]
        said = f"{event.kind} of schedule-{number} at {at} ({overlap}, {catch_up})"
        assert event.kind != "schedule.fired" or not crowd, f"{said}, beside {crowd}"
        assert event.kind != "schedule.skipped" or crowd, f"{said}, and nothing is in its way"
        late = self._sim.clock.now() - at
        assert catch_up != "none" or late < TOLERANCE, f"{said}, late by {late}"

    def check(self) -> None:
        """Nothing is due any more: of all that was, something has become."""
        self._check_jobs()
        now = to_stored(self._sim.clock.now())
        for number, cron in self._raw("SELECT id, cron FROM schedule WHERE is_enabled = 1"):
            each = MINUTES[cron] * _MINUTE
            due = range((self._since[number] // each + 1) * each, now + 1, each)
            lost = set(due).difference(*(range(first, last + 1, each) for first, last in self._spans[number]))
            assert not lost, f"schedule-{number}: nothing became of {sorted(map(from_stored, lost))[:9]}"

    def _check_jobs(self) -> None:
        made = self._raw("SELECT id, schedule FROM job WHERE schedule IS NOT NULL AND retry_of IS NULL")
        fired = Counter(self._raw("SELECT job, schedule FROM fire WHERE state = 'fired'"))
        odd = set(fired) ^ set(made) | {one for one, count in fired.items() if count > 1}
        assert not odd, f"jobs and fires of schedules differ: {odd}"


def _stored(moment: str) -> int:
    return to_stored(datetime.fromisoformat(moment))


class ScheduleVerbs(TemplateVerbs):
    def some_schedule(self, chance: random.Random) -> str:
        """One that there is; if there is none, it is made."""
        names, name = [each.name for each in self.reader.schedules(after=0, limit=9)], chance.choice(NAMES)
        if not names:
            self.add_schedule(name, chance)
        return chance.choice(names or [name])

    def add_schedule(self, name: str, chance: random.Random) -> None:
        kind = {"template": self.some_template(chance)} if chance.random() < 0.6 else {"command": ["true"]}
        wanted = {
            "name": name,
            "cron": chance.choice(list(MINUTES)),
            "job": {**kind, "params": self.params(chance)},
            "catch_up": chance.choice(("none", "latest", "all")),
            "overlap": chance.choice(("skip", "queue_one", "allow")),
        }
        self.do(partial(schedules.add, wanted=msgspec.convert(wanted, ScheduleWanted), actor="tester"))

    def do_schedule(self, chance: random.Random) -> None:
        verb = chance.choice(("add", "add", "change", "change", "disable", "enable", "remove"))
        if verb == "add":
            self.add_schedule(chance.choice(NAMES), chance)
            return
        name = self.some_schedule(chance)
        if verb == "change":
            changes: list[dict[str, Any]] = [
                {"set_params": self.params(chance)}, {"cron": chance.choice(list(MINUTES))},
                {"overlap": chance.choice(("skip", "queue_one", "allow"))}, {"catch_up": "none"},
            ]  # fmt: skip
            change = msgspec.convert(chance.choice(changes), ScheduleChange)
            self.do(partial(schedules.change, name=name, wanted=change, actor="tester"))
        else:
            self.do(partial(getattr(schedules, verb), name=name, actor="tester"))

    def do_trigger(self, chance: random.Random) -> None:
        params, name = self.params(chance), self.some_schedule(chance)
        schedule, job, origin = fire.triggered(self.reader, name, params)
        act = partial(
            fire.trigger, schedule=schedule.id, job=job, origin=origin, around=AROUND, survey=NOTHING, workspace=None,
            actor="tester",
        )  # fmt: skip
        with self.judge.snapshots.asking(params):
            self.do(act)
