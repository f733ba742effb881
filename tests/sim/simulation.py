"""One seed, carried out."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from rota.api.alarm import Alarm
from rota.clock import SET_BACK
from rota.command import group
from rota.command import schedule as schedules
from rota.command.edit import Edit, edit
from rota.command.move import Move, move, reorder
from rota.command.retry import retry
from rota.command.submission import GroupWanted, Submission
from rota.command.survey import NOTHING, Survey, names_something, survey
from rota.core import ahead
from rota.core.breaker import BreakerPolicy
from rota.core.fact import Fact, File, Head
from rota.core.pool import Limits
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.slot import SlotState
from rota.core.status import ACTIVE, TERMINAL, WAITING, Status
from rota.core.workspace import Workspace
from rota.engine import breaker, control, dispatch
from rota.engine.outside import look_at, observe
from rota.engine.work import Request, Work
from rota.errors import Conflict, Deferred, InvalidInput, NotFound, StorageFull, StoreError
from rota.ids import JobId, parse_group, show_group, show_job
from rota.store.session import Reader
from rota.store.sqlite.store import SqliteStore
from sim.clock import SimClock
from sim.fault import Crash, Faults, FaultyStore
from sim.judge import Judge
from sim.plan import Plan, Step
from sim.schedule import NAMES, ScheduleVerbs
from sim.supervisor import Supervisor, Wire
from sim.template import AROUND
from sim.webhook import OWN, WebhookVerbs

T = TypeVar("T")
MEMORY = Path("/dev/shm")
REPOSITORY = "/repo/.git"
MAIN = Head(REPOSITORY, "main")
FACTS: dict[str, Fact] = {
    "file:/a": File("/a"),
    "file:/b": File("/b"),
    "plan_branch:c (c)": Head(REPOSITORY, "c"),
}
OIDS = ("1" * 40, "2".ljust(8, "2").ljust(40, "0"))
SIZES = (-1, 0, 1, 1, 2, 2, 3)
SCOPES = ("global", "flow/a", "resource/gpu")
REFUSED = (Conflict, InvalidInput, NotFound, Deferred, StorageFull, StoreError)
BOUNDS = (
    (dispatch, "LOOK"),
    (dispatch, "LOOKS"),
    (dispatch, "LANES"),
    (control, "AT_ONCE"),
    (breaker, "PROBES"),
    (ahead, "DEPTH"),
)
"""How much is seen or done in one go: where it is little, everything takes many turns."""
_RESTS = 3000
"""Turns after which it should have come to rest."""


class Simulation(ScheduleVerbs, WebhookVerbs):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(f"set-up {plan.seed}")
        self.done: Counter[str] = Counter()
        """Steps that were not refused, by verb."""
        self._is_dead = False
        self.story: list[str] = []
        """What became of each step."""
        self._bounds = pytest.MonkeyPatch()
        if self.random.random() < 0.3:
            for module, name in BOUNDS:
                self._bounds.setattr(module, name, 1)
        self.directory = Path(tempfile.mkdtemp(prefix="rota-sim-", dir=MEMORY if MEMORY.is_dir() else None))
        self.faults = Faults()
        self.sizes = {"global": self.random.choice(SIZES), "flow/*": 1, "resource/ollama": 1, "resource/gpu": 2}
        self._latency = self.random.choice((0.0, 0.0, 3.0))
        self.schedules_changed = asyncio.Event()
        self.around = AROUND
        clock = self.hands = SimClock()
        store = SqliteStore(self.directory / "rota.db")
        self.judge = Judge(self, self.directory / "rota.db")
        self.supervisor = Supervisor(clock, plan.seed, self.judge.at_spawn)
        super().__init__(
            FaultyStore(store, self.faults), self.directory, self.sizes, clock=clock, executor=self._connected()
        )
        self.judge.open()
        self.faults.committed = self.judge.at_commit
        self.alarm = Alarm(self, self._outside)
        policy = RetryPolicy(base=timedelta(seconds=1))
        failures = self.random.choice((None, None, 3))
        self.configure(retry=RetryPolicies(default=policy), breaker=BreakerPolicy(failures=failures))
        self.probe.world[MAIN] = OIDS[0]

    def _connected(self) -> Wire:
        wire = Wire(self.supervisor, self._latency)
        wire.inbox.clear()
        wire.sent = self.judge.at_order
        self.supervisor.connect(wire)
        return wire

    @property
    def wire(self) -> Wire:
        assert isinstance(self.executor, Wire)
        return self.executor

    # The course of it.

    def run(self) -> None:
        for step in self.plan.steps:
            self.step(step)
        self.let_go()

    def step(self, step: Step) -> None:
        self.judge.begin()
        with self.faults.armed(step.fault):
            try:
                getattr(self, f"do_{step.verb}")(random.Random(step.number))
                self.done[step.verb] += 1
                self.story.append("done")
            except REFUSED as error:
                self.story.append(f"refused: {error}")
            except Crash:
                self.story.append("killed")
                self.reboot()
        if self.engine.trouble is not None:
            self.clock.advance(seconds=1)
            self.turn()
        self.settle_outside()
        self.judge.check()

    def reboot(self) -> None:
        """The next scheduler, which may be killed too."""
        held = self.engine.held
        while True:
            self._is_dead = False
            self.session.close()
            self.questions.clear()
            self.executor = self._connected()
            try:
                self.boot(held)
                self.alarm = Alarm(self, self._outside)
                return
            except Crash:
                continue

    def turn(self) -> None:
        self.engine.turn(self._answers())
        self._settle()

    def _settle(self) -> None:
        for _ in range(_RESTS):
            self.wire.pump()
            if self.engine.trouble is not None:
                return
            if not (self.wire.is_ready or self.engine.has_more or self.questions or self._is_due()):
                return
            self.engine.turn(self._answers())
        raise AssertionError("it does not come to rest")

    def _answers(self) -> list[Request[None]]:
        """What cannot be stored is asked again, as the prober does."""
        questions, self.questions[:] = list(self.questions), []
        if not questions:
            return []
        facts = {fact for question in questions for fact in question.facts}
        sighting = look_at(facts, self.probe, self.engine.known, questions)

        def done(result: object) -> None:
            if isinstance(result, Exception):
                self.questions.extend(questions)

        return [Request(lambda work: observe(work, sighting), done)]

    def _is_due(self) -> bool:
        engine = self.engine
        by_wall = engine.next_due is not None and engine.next_due <= self.clock.now()
        return by_wall or (engine.next_deadline is not None and engine.next_deadline <= self.clock.monotonic())

    def settle_outside(self) -> None:
        """What has changed outside is seen, and what is due fires."""
        with suppress(*REFUSED):
            self.look_outside()
        self.ring()

    def ring(self) -> None:
        async def rounds() -> None:
            for _ in range(_RESTS):
                if await self.alarm.round() != 0.0:
                    return
            raise AssertionError("the alarm does not come to rest")

        if self.judge.raw("SELECT 1 FROM schedule LIMIT 1"):
            try:
                asyncio.run(rounds())
            except REFUSED:
                self.alarm = Alarm(self, self._outside)  # what is late when it is tried again is late
                raise

    async def look(self, view: Callable[[Reader], T]) -> T:
        with self.reader.reading():
            return view(self.reader)

    async def perform(self, act: Callable[[Work], T]) -> T:
        """Schedules fire side by side: whoever comes after a crash is dead as well."""
        if self._is_dead:
            raise Crash
        try:
            result: T = self.do(act)
        except Crash:
            self._is_dead = True
            raise
        return result

    async def _outside(self, jobs: Sequence[Submission]) -> tuple[Survey, Sequence[Workspace | None]]:
        if not any(map(names_something, jobs)):
            return NOTHING, ()
        return survey(jobs, AROUND, self.probe, self.settings.places, began=self.engine.known.begin()), ()

    # Who is there.

    def ids(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.judge.raw("SELECT id FROM job ORDER BY id")]

    def waiting(self) -> list[JobId]:
        return [job.id for job in self.reader.jobs(self.ids()) if job.status in WAITING]

    def one_of(self, jobs: Sequence[JobId], chance: random.Random) -> JobId:
        if not jobs:
            raise Conflict("there is none")
        return jobs[chance.randrange(len(jobs))]

    def some_group(self, chance: random.Random, *, with_ended: bool = False) -> str:
        """One that there is; if there is none, it is made, and stays open for members."""
        groups = self.reader.list_groups(limit=99, with_ended=with_ended)
        if not groups:
            wanted = msgspec.convert({"mode": chance.choice(("parallel", "sequential"))}, GroupWanted)
            groups = [self.do(lambda work: group.add(work, wanted, actor="tester"))]
        return show_group(groups[chance.randrange(len(groups))])

    # What people do.

    def shares(self, chance: random.Random) -> dict[str, Any]:
        """What a job and a direct execution can both ask for: few of each, so that they meet."""
        return {
            "flow": chance.choice((None, None, None, "a", "b")),
            "pools": chance.choice(({}, {}, {"resource/gpu": 1}, {"resource/gpu": 2}, {"global": 2})),
            "locks": chance.choice(((), (), ("k",), ("k:shared",), ("k", "l:shared"))),
        }

    def wish(self, chance: random.Random) -> dict[str, Any]:
        names = list(FACTS)
        needs = chance.sample(names, chance.choice((0, 0, 0, 1)))
        produces = [name for name in chance.sample(names, chance.choice((0, 0, 0, 1))) if name not in needs]
        return {
            "needs": needs, "produces": produces, "missing_producer": chance.choice(("wait", "block")),
            "pin": chance.choice((None, None, None, None, "main", f"main@{'2' * 8}")),
            "unique": chance.choice((None, None, None, "u")), "priority": chance.choice((0, 0, 0, 5)),
            "delay": chance.choice(("0s", "0s", "0s", "1s", "7s")), "retries": chance.choice((0, 0, 1, 2)),
            "timeout": chance.choice((None, None, "10s")), "type": chance.choice((None, "x", "y")),
            "webhooks": chance.choice(([], [OWN])),
        }  # fmt: skip

    def edges(self, chance: random.Random) -> list[str]:
        jobs = self.ids()
        count = min(len(jobs), chance.choice((0, 0, 1, 2)))
        return [f"job-{job}:{chance.choice(('success', 'finished', 'failed'))}" for job in chance.sample(jobs, count)]

    def do_submit(self, chance: random.Random) -> None:
        for _ in range(chance.choice((1, 1, 2, 4))):
            shares = self.shares(chance)
            phase: dict[str, Any] = {"phase": "p", "parallelizable": chance.random() < 0.5} if shares["flow"] else {}
            wanted = {"after": self.edges(chance), **shares, **self.wish(chance), **phase}
            with suppress(InvalidInput):
                self.judge.accepted.told(self.answer(**wanted), wanted)

    def do_flood(self, chance: random.Random) -> None:
        """Many of a kind, of which nobody waits for any."""
        wish: dict[str, Any] = {"retries": chance.choice((0, 1)), "priority": chance.choice((0, 0, 5))}
        for _ in range(chance.choice((3, 6, 12))):
            self.judge.accepted.told(self.answer(**wish), wish)

    def do_group(self, chance: random.Random) -> None:
        count = chance.choice((1, 2, 3, 5))
        members = []
        for n in range(count):
            after = [
                f"m{other}:{chance.choice(('success', 'finished'))}" for other in range(n) if chance.random() < 0.3
            ]
            member = self.wish(chance) | {"local": f"m{n}", "after": after, "unique": None}
            members.append({**member, "flow": chance.choice((None, "a"))})
        with self.judge.accepted.asking(count):
            told = self.answer_group(
                *members,
                mode=chance.choice(("parallel", "sequential")),
                on_failure=chance.choice(("stop", "continue", "skip")),
            )
        self.judge.accepted.told(told, *members)

    def do_join_group(self, chance: random.Random) -> None:
        if chance.random() < 0.4:
            wanted = msgspec.convert({"mode": chance.choice(("parallel", "sequential"))}, GroupWanted)
            self.do(lambda work: group.add(work, wanted, actor="tester"))
        wish: dict[str, Any] = {"group": self.some_group(chance, with_ended=chance.random() < 0.2), "retries": 1}
        with self.judge.accepted.asking(1):
            told = self.answer(**wish)
        self.judge.accepted.told(told, wish)

    def do_close_group(self, chance: random.Random) -> None:
        name = self.some_group(chance)
        self.do(lambda work: group.close(work, name, actor="tester"))

    def do_cancel_group(self, chance: random.Random) -> None:
        name = self.some_group(chance, with_ended=chance.random() < 0.2)
        with self.judge.ends.cancelling(self.judge.ends.chains_of(parse_group(name))):
            self.do(lambda work: group.cancel(work, name, actor="tester"))

    def do_reserve(self, chance: random.Random) -> None:
        self.reserve(*(["true"] if chance.random() < 0.7 else []), **self.shares(chance))

    def do_leave(self, chance: random.Random) -> None:
        """Where nobody is there, somebody comes who does the work himself."""
        slots = [slot.id for slot in self.reader.open_slots()] or [self.reserve(**self.shares(chance))]
        slot = slots[chance.randrange(len(slots))]
        self.release(slot) if chance.random() < 0.5 else self.withdraw(slot)

    def do_cancel(self, chance: random.Random) -> None:
        """Mostly of what is under way, and often just when it is being started."""
        kind = chance.choice((TERMINAL, ACTIVE, ACTIVE, frozenset({Status.DISPATCHED}), frozenset({Status.DISPATCHED})))
        found = [job.id for job in self.reader.jobs(self.ids()) if job.status in kind]
        job = self.one_of(found or self.ids(), chance)
        with self.judge.ends.cancelling([self.job(job).chain]):
            self.cancel(job)

    def do_retry(self, chance: random.Random) -> None:
        job = self.one_of(self.ids(), chance)
        self.do(lambda work: retry(work, show_job(job), actor="tester"))

    def do_rewind(self, chance: random.Random) -> None:
        self.rewind(self.one_of(self.ids(), chance))

    def do_move(self, chance: random.Random) -> None:
        job, other = self.one_of(self.waiting(), chance), self.one_of(self.waiting(), chance)
        where = chance.choice(({"first": True}, {"last": True}, {"to": 2}, None))
        if where is None:
            order = list(dict.fromkeys([show_job(job), show_job(other)]))
            self.do(lambda work: reorder(work, order, actor="tester"))
        else:
            self.do(lambda work: move(work, job, Move(**where), actor="tester"))

    def do_edit(self, chance: random.Random) -> None:
        """Also of one that has run: then what it is, is fixed."""
        job = self.one_of(self.ids() if chance.random() < 0.3 else self.waiting(), chance)
        changes: list[dict[str, Any]] = [
            {"priority": 5}, {"priority": 0}, {"delay": "4s"}, {"delay": None},
            {"params": {"n": f"{chance.random():.3f}"}}, {"command": ["echo", str(chance.random())]},
            *[{"set_params": self.params(chance)}] * 3,
        ]  # fmt: skip
        wanted = Edit(**chance.choice(changes))
        with self.judge.snapshots.editing(wanted):
            self.do(lambda work: edit(work, job, wanted, actor="tester"))

    def do_pause(self, chance: random.Random) -> None:
        self.pause(chance.choice(SCOPES))

    def do_resume(self, chance: random.Random) -> None:
        self.resume(min(self.judge.paused, default=chance.choice(SCOPES)))

    def do_hold(self, chance: random.Random) -> None:
        self.hold(chance.choice(("backup", None, None)))

    def do_clear(self, chance: random.Random) -> None:
        scope = chance.choice(SCOPES)
        with suppress(TimeoutError), self.judge.ends.clearing(scope):  # carried on when the store can be used again
            self.clear(scope)

    def do_limit(self, chance: random.Random) -> None:
        pool = chance.choice(("global", "global", "flow/a", "flow/*", "resource/gpu"))
        self.sizes[pool] = chance.choice(SIZES)
        self.configure(limits=Limits(dict(self.sizes)))

    def do_pace(self, chance: random.Random) -> None:
        self.configure(
            heartbeat=chance.choice((None, None, "manual")), batch_size=chance.choice((None, 1, 2)),
            spawn_delay=timedelta(seconds=chance.choice((0, 0, 3))),
        )  # fmt: skip

    def do_tick(self, chance: random.Random) -> None:
        """What it would do is what it does."""
        batch = chance.choice((None, 1, 3))
        would = self.dry_run(batch)
        said = self.tick(batch)
        assert said["dispatched"] + said["would_dispatch"] == would["would_dispatch"]
        assert (said["skipped"], said["reason"]) == (would["skipped"], would["reason"])

    # What the world does.

    def do_world(self, chance: random.Random) -> None:
        if chance.random() < 0.4:
            self.probe.world[MAIN] = chance.choice((*OIDS, None))
            return
        fact = FACTS[chance.choice(list(FACTS))]
        self.probe.world[fact] = not self.probe.world.get(fact)

    def do_time(self, chance: random.Random) -> None:
        self.pass_time(chance.choice((0.5, 1, 3, 10, 60, 600)))

    def do_jump(self, chance: random.Random) -> None:
        """Somebody sets the wall clock."""
        self.hands.jump(chance.choice((-7200, -60, -2 * SET_BACK, 1, 60, 7200)))  # less is not looked at
        self.turn()

    def do_latency(self, chance: random.Random) -> None:
        self.wire.latency = chance.choice((0.0, 0.0, 0.5, 3.0))

    def do_repeat(self, chance: random.Random) -> None:
        self.wire.is_repeating = chance.random() < 0.5

    def do_break_off(self, _chance: random.Random) -> None:
        self.wire.break_off()
        self.turn()

    def do_kill_supervisor(self, _chance: random.Random) -> None:
        self.supervisor.die()
        self.do_break_off(_chance)

    def do_crash(self, chance: random.Random) -> None:
        """It may take a while until the next one comes: what ends or is due meanwhile, nobody sees."""
        self.clock.advance(seconds=chance.choice((0, 0, 5, 600)))
        self.reboot()

    def pass_time(self, seconds: float) -> None:
        """Up to then, stopping wherever something is due."""
        end = self.clock.monotonic() + seconds
        for _ in range(_RESTS):
            now = self.clock.monotonic()
            if now >= end:
                return
            self.clock.advance(seconds=max(0.001, min(self._next(now), end) - now))
            if self.engine.trouble is not None:
                self.clock.advance(seconds=1)
                self.turn()
            self._settle()
            self.ring()
        raise AssertionError("time does not pass")

    def _next(self, now: float) -> float:
        engine = self.engine
        due = [self.supervisor.next_end, self.wire.next_due, engine.next_deadline]
        if engine.next_due is not None:
            due.append(now + (engine.next_due - self.clock.now()).total_seconds())
        first = self.reader.first_due_schedule()
        if first is not None:
            due.append(now + (first[2] - self.clock.now()).total_seconds())
        return min((at for at in due if at is not None), default=now + 1e9)

    # The end.

    def let_go(self) -> None:
        """Nothing is stuck: with room for all, and the world as everybody wants it, all that waits runs to its end."""
        for name in NAMES:
            with suppress(NotFound, Conflict):
                self.do(partial(schedules.remove, name=name, actor="tester"))
        for scope in sorted(self.judge.paused):
            self.resume(scope)
        self.hold(None)
        self.wire.latency, self.wire.is_repeating = 0.0, False
        self.sizes = dict.fromkeys(self.sizes, -1)
        self.configure(
            limits=Limits(dict(self.sizes)), heartbeat=None, batch_size=None, spawn_delay=timedelta(),
            breaker=BreakerPolicy(failures=None),
        )  # fmt: skip
        for round_ in range(60):
            self.judge.begin()
            for fact in FACTS.values():
                self.probe.world[fact] = True
            self.probe.world[MAIN] = OIDS[round_ % 2]
            self.settle_outside()
            for slot in self.reader.open_slots():
                if slot.command is None and slot.state is SlotState.RUNNING:
                    self.release(slot.id)
            self.pass_time(1000)
            self.settle_outside()  # who came back meanwhile hangs on what was seen long ago
            self.judge.check()
            if not self.waiting() and not self.reader.open_slots() and not self.supervisor.alive():
                break
        stuck = {show_job(job): self.detail(job) for job in self.waiting()}
        assert (stuck, self.reader.open_slots(), self.supervisor.alive()) == ({}, [], [])

    def close(self) -> None:
        self._bounds.undo()
        super().close()
        self.judge.close()
        shutil.rmtree(self.directory)
