"""Where everything meets that decides who starts: pools, locks, flows, phases, keys, delays, edges, direct executions,
pauses, clearings, a hold file, and the pace of ticks; under failed starts, crashes, moves and edits.

After each step, for every start of that step in its order: no pool is above its size as it is then, no key is held
against another, and nothing that a pause, a file or a clearing holds has started. Then every wait is what the referee
says; whoever could start has started, unless it is said when it will; no job has taken the room of a direct execution
that waited before it; another turn changes nothing, and a rehearsal never does. At the end, when everything is let go,
everything that waits runs to its end.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from engine.referee import Party, Referee, of_job, of_slot, used
from harness import FakeExecutor, Scheduler
from rota.command import control as command
from rota.command.edit import Edit, edit
from rota.command.move import Move, move, reorder
from rota.command.retry import retry
from rota.command.submit import AlreadyActive, Submitted
from rota.core.breaker import BreakerPolicy
from rota.core.event import Event
from rota.core.job import Job
from rota.core.pool import Limits
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.slot import Slot, SlotState, owner_of
from rota.core.status import TERMINAL, WAITING, Status
from rota.engine import control, dispatch
from rota.engine.work import Request
from rota.errors import Conflict
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Started
from rota.ids import JobId, RunId, show_job
from rota.store.sqlite.store import SqliteStore
from rota.view import slot as view_slot
from rota.view.job import forms
from sample import sample
from store.invariants import check_store

MEMORY = Path("/dev/shm")
LINES = ("global", "global", "flow/a", "flow/*", "resource/gpu")
SCOPES = ("global", "flow/a", "resource/gpu", "resource/gpu")
_GONE = {f"job.{status.lower()}" for status in (*TERMINAL, Status.QUEUED)} | {"slot.ended", "slot.returned"}
picks = st.integers(0, 1000)
sizes = st.sampled_from([-1, 0, 1, 1, 2, 2, 3])


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What a job and a direct execution can both ask for."""

    flow: str | None
    pools: dict[str, int]
    locks: dict[str, str]

    @property
    def fields(self) -> dict[str, Any]:
        locks = [f"{key}:{mode}" for key, mode in self.locks.items()]
        return {"flow": self.flow, "pools": self.pools, "locks": locks}


class JobWant(Want, frozen=True, kw_only=True):
    phase: str | None
    parallelizable: bool
    unique: str | None
    after: list[tuple[int, str]]
    priority: int
    delay: int
    retries: int


shares: dict[str, Any] = {
    "flow": st.sampled_from([None, None, None, "a", "b"]),
    "pools": st.sampled_from([{}, {}, *({"resource/gpu": weight} for weight in (1, 1, 2, 3)), {"global": 2}]),
    "locks": st.sampled_from([{}, {}, {"k": "exclusive"}, {"k": "shared"}, {"k": "exclusive", "l": "shared"}]),
}
"""Few of each, so that they meet."""
wants = st.builds(
    JobWant,
    **shares,
    phase=st.sampled_from([None, None, "p"]),
    parallelizable=st.booleans(),
    unique=st.sampled_from([None, None, None, "u"]),
    after=st.just([])
    | st.just([])
    | st.lists(st.tuples(picks, st.sampled_from(["success", "finished", "failed"])), max_size=2),
    priority=st.sampled_from([0, 0, 0, 5]),
    delay=st.sampled_from([0, 0, 0, 0, 0, 1, 7]),
    retries=st.sampled_from([0, 0, 1]),
)


rivals = st.lists(wants, max_size=2)
"""Who comes right afterwards, and may want the same."""


class ControlMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="rota-control-", dir=MEMORY if MEMORY.is_dir() else None))
        self.running: dict[JobId, Party] = {}
        """What has started and is not over, by the events; a slot is its number below zero."""
        self.paused: set[str] = set()
        self.clearing: set[str] = set()
        self.alive: dict[RunId, JobId] = {}
        """What the executor has."""
        self.confirmed: set[RunId] = set()
        self.seen_events = self.seen_starts = 0
        self.new: list[Party] = []
        self.is_sound = False

    @initialize(
        size=sizes, gpu=sizes, heartbeat=st.sampled_from([None, None, "manual"]), first=st.lists(wants, max_size=6)
    )
    def open(self, size: int, gpu: int, heartbeat: Literal["manual"] | None, first: list[JobWant]) -> None:
        self.sizes = {"global": size, "flow/*": 1, "resource/ollama": 1, "resource/gpu": gpu}
        self.scheduler = Scheduler(SqliteStore(self.home / "rota.db"), self.home, self.sizes)
        self.connection = sqlite3.connect(self.home / "rota.db", isolation_level=None)
        policy = RetryPolicy(base=timedelta(seconds=1))
        self.scheduler.configure(
            retry=RetryPolicies(default=policy), breaker=BreakerPolicy(failures=None), heartbeat=heartbeat
        )
        for want in first:
            self.submit(want)
            self.holds()

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    # Who is there.

    def jobs(self) -> list[Job]:
        return self.scheduler.reader.jobs([JobId(job) for (job,) in self.raw("SELECT id FROM job ORDER BY id")])

    def waiting(self) -> list[JobId]:
        return [job.id for job in self.jobs() if job.status in WAITING]

    def slots(self) -> list[Slot]:
        return self.scheduler.reader.open_slots()

    @property
    def now(self) -> float:
        return self.scheduler.clock.moment.timestamp()

    def pick(self, runs: Any, n: int) -> RunId:
        ordered = sorted(runs)
        found: RunId = ordered[n % len(ordered)]
        return found

    # What people do.

    @rule(several=st.lists(wants, min_size=1, max_size=3))
    def submit_several(self, several: list[JobWant]) -> None:
        for want in several:
            self.holds()
            self.submit(want)

    def submit(self, want: JobWant) -> None:
        jobs = [job.id for job in self.jobs()]
        after = list(dict.fromkeys(f"job-{jobs[n % len(jobs)]}:{policy}" for n, policy in want.after if jobs))
        phase: dict[str, Any] = (
            {"phase": want.phase, "parallelizable": want.parallelizable} if want.flow and want.phase else {}
        )
        told = self.scheduler.answer(
            after=after, unique=want.unique, priority=want.priority, delay=f"{want.delay}s", retries=want.retries,
            **phase, **want.fields,
        )  # fmt: skip
        assert isinstance(told, Submitted | AlreadyActive)

    @rule(want=st.builds(Want, **shares), runs=st.sampled_from([True, True, False]), then=rivals)
    def reserve(self, want: Want, runs: bool, then: list[JobWant]) -> None:
        self.scheduler.reserve(*(["true"] if runs else []), **want.fields)
        self.submit_several(then)

    @precondition(lambda self: self.slots())
    @rule(n=picks, releases=st.booleans())
    def leave(self, n: int, releases: bool) -> None:
        slot = self.slots()[n % len(self.slots())]
        with suppress(Conflict):
            self.scheduler.release(slot.id) if releases else self.scheduler.withdraw(slot.id)

    @rule(scope=st.sampled_from(SCOPES), want=st.builds(Want, **shares), then=rivals)
    def pause(self, scope: str, want: Want, then: list[JobWant]) -> None:
        """Also over a direct execution that comes next."""
        self.scheduler.pause(scope)
        self.holds()
        self.reserve(want, True, then)

    @rule(scope=st.sampled_from(SCOPES), act=st.sampled_from(["pause", "resume", "resume", "hold", "go"]))
    def control(self, scope: str, act: str) -> None:
        if act == "pause":
            self.scheduler.pause(scope)
        elif act == "resume":
            self.scheduler.resume(min(self.paused, default=scope))
        else:
            self.scheduler.hold("backup" if act == "hold" else None)

    @precondition(lambda self: self.waiting())
    @rule(scope=st.sampled_from(SCOPES), then=rivals)
    def clear(self, scope: str, then: list[JobWant]) -> None:
        """In more than one turn, and somebody may submit meanwhile."""
        jobs = self.jobs()
        self.clearing.add(scope)
        self.scheduler.engine.turn([
            Request(lambda work: command.clear(work, scope, actor="tester"), lambda _: None)
        ])  # fmt: skip
        self.meet()
        for want in then:
            self.submit(want)
        self.scheduler.turn()
        self.meet()
        left = {job.id for job in jobs if scope in of_job(job).scopes} & set(self.waiting())
        assert (left, self.clearing) == (set(), set())

    @rule(pool=st.sampled_from(LINES), size=sizes)
    def set_limit(self, pool: str, size: int) -> None:
        self.sizes[pool] = size
        self.scheduler.configure(limits=Limits(dict(self.sizes)))

    @rule(
        heartbeat=st.sampled_from([None, None, "manual"]),
        batch=st.sampled_from([None, 1, 2]),
        delay=st.sampled_from([0, 0, 3]),
    )
    def set_pace(self, heartbeat: Literal["manual"] | None, batch: int | None, delay: int) -> None:
        self.scheduler.configure(heartbeat=heartbeat, batch_size=batch, spawn_delay=timedelta(seconds=delay))

    @rule(batch=st.sampled_from([None, 1, 3]))
    def tick(self, batch: int | None) -> None:
        would = self.rehearse(batch)
        said = self.scheduler.tick(batch)
        assert said["dispatched"] + said["would_dispatch"] == would["would_dispatch"]
        assert (said["skipped"], said["reason"]) == (would["skipped"], would["reason"])

    @precondition(lambda self: self.waiting())
    @rule(
        n=picks,
        where=st.sampled_from(
            [{"first": True}, {"last": True}, {"to": 2}, {"priority": 5}, {"delay": "4s"}, {"delay": None}, "reorder"]
        ),
    )
    def rearrange(self, n: int, where: dict[str, Any] | str) -> None:
        jobs = self.waiting()
        job, other = jobs[n % len(jobs)], jobs[n // 7 % len(jobs)]
        with suppress(Conflict):
            if isinstance(where, str):
                order = list(dict.fromkeys([show_job(job), show_job(other)]))
                self.scheduler.do(lambda work: reorder(work, order, actor="tester"))
            elif where.keys() & {"priority", "delay"}:
                self.scheduler.do(lambda work: edit(work, job, Edit(**where), actor="tester"))
            else:
                self.scheduler.do(lambda work: move(work, job, Move(**where), actor="tester"))

    @precondition(lambda self: self.jobs())
    @rule(n=picks, act=st.sampled_from(["cancel", "cancel", "retry", "rewind"]))
    def change(self, n: int, act: str) -> None:
        job = self.jobs()[n % len(self.jobs())].id
        with suppress(Conflict):
            if act == "cancel":
                self.scheduler.cancel(job)
            elif act == "retry":
                self.scheduler.do(lambda work: retry(work, show_job(job), actor="tester"))
            else:
                self.scheduler.rewind(job)

    # What the world does.

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks)
    def start(self, n: int) -> None:
        run = self.pick(self.alive.keys() - self.confirmed, n)
        self.confirmed.add(run)
        self.scheduler.say(Started(run=run, pid=1000 + run, start_time=1))

    @precondition(lambda self: self.alive)
    @rule(n=picks, code=st.sampled_from([0, 0, 1]))
    def end(self, n: int, code: int) -> None:
        run = self.pick(self.alive, n)
        is_stopped = run in self.scheduler.executor.stops
        del self.alive[run]
        how: dict[str, Any] = {"signal": 15, "ended_by": "stop"} if is_stopped and code else {"code": code}
        self.scheduler.say(Exited(run=run, at=self.now, **how))

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks, is_machine=st.booleans(), then=rivals)
    def fail_to_start(self, n: int, is_machine: bool, then: list[JobWant]) -> None:
        run = self.pick(self.alive.keys() - self.confirmed, n)
        del self.alive[run]
        self.scheduler.say(FailedToStart(run=run, error="no", is_machine=is_machine))
        self.submit_several(then)

    @rule(seconds=st.sampled_from([1, 1, 3, 8, 400]))
    def advance(self, seconds: int) -> None:
        """The loop sleeps until it is told to wake."""
        self.scheduler.clock.advance(seconds=seconds)
        engine, clock = self.scheduler.engine, self.scheduler.clock
        is_due = engine.next_due is not None and engine.next_due <= clock.moment
        if is_due or (engine.next_deadline is not None and engine.next_deadline <= clock.monotonic()):
            self.scheduler.turn()

    @rule(over=st.sets(picks, max_size=2), is_unheard=st.booleans(), is_all_lost=st.booleans(), is_new=st.booleans())
    def lose(self, over: set[int], is_unheard: bool, is_all_lost: bool, is_new: bool) -> None:
        """The scheduler dies, or only its connection: the last orders may not have arrived, some children may end
        meanwhile, and nobody may be able to account for anything."""
        finished = {self.pick(self.alive, n) for n in over if self.alive}
        lost = set(self.alive) if is_all_lost else self.alive.keys() - self.confirmed if is_unheard else set()
        accounts = [
            Account(run=run, pid=None if run in finished else 1000 + run, has_ended=run in finished)
            for run in self.alive.keys() - lost
        ]
        ends = [Exited(run=run, at=self.now, code=0) for run in sorted(finished - lost)]
        self.alive = {run: owner for run, owner in self.alive.items() if run not in lost | finished}
        self.confirmed |= self.alive.keys()
        if not is_new:
            self.scheduler.say(Accounts(runs=accounts), *ends)
            return
        held = self.scheduler.engine.held
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.inbox = [Accounts(runs=accounts), *ends]
        self.seen_starts = 0
        self.scheduler.boot(held)

    def rehearse(self, batch: int | None) -> dict[str, Any]:
        before = self.everything()
        would = self.scheduler.dry_run(batch)
        assert self.everything() == before
        return would

    def everything(self) -> object:
        engine = self.scheduler.engine
        return (
            self.raw("PRAGMA data_version"), len(self.scheduler.executor.orders), len(self.scheduler.events),
            engine.next_due, engine.next_deadline, engine.has_more, engine.outlook, engine.held_by,
        )  # fmt: skip

    # What is true afterwards.

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.is_sound = False
        self.meet()
        assert self.scheduler.engine.trouble is None
        check_store(self.raw)
        referee = self.referee()
        assert {party.owner for party in referee.running} == self.running.keys()
        self.check_room_of_slots(referee)
        self.check_able(referee)
        self.check_slots(referee)
        self.check_jobs(referee)
        self.check_rest()
        self.new = []
        self.is_sound = True

    def referee(self) -> Referee:
        paused = self.paused | ({"global"} if self.scheduler.engine.held is not None else set())
        return Referee(self.jobs(), self.slots(), self.sizes, paused, self.scheduler.clock.moment)

    def meet(self) -> None:
        """What has happened, in its order."""
        for start in self.scheduler.executor.starts[self.seen_starts :]:
            assert start.run not in self.alive
            self.alive[start.run] = start.job
        self.seen_starts = len(self.scheduler.executor.starts)
        for event in self.scheduler.events[self.seen_events :]:
            self.meet_event(event)
        self.seen_events = len(self.scheduler.events)

    def meet_event(self, event: Event) -> None:
        match event.kind:
            case "scheduler.paused":
                self.paused.add(str(event.data["scope"]))
            case "scheduler.resumed":
                self.paused.remove(str(event.data["scope"]))
            case "scheduler.cleared":
                self.clearing.remove(str(event.data["scope"]))
            case "job.dispatched" if event.job is not None:
                self.check_start(of_job(self.scheduler.job(event.job)))
            case "slot.started" if event.slot is not None:
                slot = self.scheduler.reader.slot(event.slot)
                assert slot is not None
                self.check_start(of_slot(slot))
            case kind if kind in _GONE:
                owner = event.job if event.slot is None else owner_of(event.slot)
                assert owner is not None
                self.running.pop(owner, None)

    def check_start(self, one: Party) -> None:
        assert one.owner not in self.running
        assert self.scheduler.engine.held is None, "it is held"
        assert not (self.paused | self.clearing) & set(one.scopes), "it is paused"
        for other in self.running.values():
            assert not one.clashes(other), f"{one.owner} and {other.owner} hold one key"
        self.running[one.owner] = one
        self.new.append(one)
        total, limits = used(self.running.values()), Limits(self.sizes)
        for pool in one.draws:
            size = limits.size(pool)
            assert size is None or total[pool] <= size, f"{one.owner} takes {pool} to {total[pool]}/{size}"

    def check_room_of_slots(self, referee: Referee) -> None:
        """No job took what a direct execution waits for."""
        for job in self.new:
            for slot in referee.slots if job.owner > 0 and job.owner in self.running else ():
                if referee.reserves(slot):
                    shared = {pool for pool in job.draws.keys() & slot.draws.keys() if referee.is_limited(pool)}
                    assert not any(map(referee.is_overdrawn, shared)), f"{job.owner} went before {slot.owner}"

    def check_able(self, referee: Referee) -> None:
        """Whoever could start has started, or it is known when, or who is in the way of all."""
        if self.scheduler.engine.held_by is not None or not referee.able:
            return
        engine, now = self.scheduler.engine, self.scheduler.clock.moment
        assert [party.owner for party in referee.able if party.owner < 0] == []
        assert engine.outlook.is_for_later(now)
        if not engine.outlook.needs_tick:
            assert engine.next_due is not None
            assert engine.outlook.not_before is not None
            assert engine.next_due <= engine.outlook.not_before

    def check_slots(self, referee: Referee) -> None:
        shown = {form.id: form for form in view_slot.listing(self.scheduler.reader, self.scheduler.sight)[0]}
        for slot in referee.slots:
            wait = shown[f"slot-{-slot.owner}"].wait
            assert wait is not None
            if self.scheduler.engine.held_by is None:
                assert wait.kind == referee.kind(slot)

    def check_jobs(self, referee: Referee) -> None:
        jobs = {job.id: job for job in self.jobs()}
        waiting = [job for job in jobs.values() if job.status in WAITING]
        shown = {form.id: form for form in forms(self.scheduler.reader, waiting, self.scheduler.sight)}
        is_paced = bool(referee.able)
        for party in referee.jobs:
            assert not referee.is_decided(party)
            kind, wait = referee.kind(party), shown[show_job(party.owner)].wait
            said = None if wait is None else wait.kind
            if is_paced and kind in (None, "slot", "capacity"):
                assert said in (None, "delay", "slot", "capacity")
            else:
                assert said == kind, (party.owner, said, kind)
            stored = {"dependencies": Status.WAITING_ON_DEPS, "locks": Status.WAITING_ON_LOCKS}
            assert jobs[party.owner].status is stored.get(str(kind), Status.QUEUED)
            if said == "locks" and wait is not None:
                assert {topic.removeprefix("lock:") for topic in wait.on} == referee.barred(party)
            if said == "capacity" and wait is not None:
                assert wait.on[0].removeprefix("pool:") in referee.lacks(party)
        self.check_words([party.owner for party in referee.jobs if shown[show_job(party.owner)].wait is None])

    def check_words(self, free: list[JobId]) -> None:
        """Whoever is said to start with the next tick does."""
        if self.scheduler.engine.held_by is not None or not free:
            return
        would = self.rehearse(None)["would_dispatch"]
        for job in free:
            text = self.scheduler.why(job)["text"]
            assert ("it starts with the next" in text) == (show_job(job) in would), text

    def check_rest(self) -> None:
        """When nothing changes, another turn changes nothing."""
        before = self.everything()
        self.scheduler.turn()
        assert self.everything() == before

    # The end.

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self.let_go()
        finally:
            if hasattr(self, "scheduler"):
                self.connection.close()
                self.scheduler.close()
            shutil.rmtree(self.home)

    def let_go(self) -> None:
        """Nothing is stuck."""
        for scope in sorted(self.paused):
            self.scheduler.resume(scope)
        self.scheduler.hold(None)
        limits = Limits(dict.fromkeys(self.sizes, -1))
        self.scheduler.configure(limits=limits, heartbeat=None, batch_size=None, spawn_delay=timedelta())
        self.sizes = dict(limits.sizes)
        self.holds()
        for _ in range(100):
            for slot in self.slots():
                if slot.command is None and slot.state is SlotState.RUNNING:
                    self.scheduler.release(slot.id)
            ends = [Exited(run=run, at=self.now, code=0) for run in sorted(self.alive)]
            self.alive.clear()
            self.scheduler.say(*ends)
            self.holds()
            if not self.slots() and not self.waiting() and not self.alive:
                break
            self.advance(3600)
            self.holds()
        assert (self.waiting(), self.slots(), self.running) == ([], [], {})


def explore(examples: int, steps: int = 30) -> None:
    run_machine(
        ControlMachine,
        settings=settings(
            max_examples=sample(examples),
            stateful_step_count=steps,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_meets_no_limit_is_exceeded_every_wait_is_true_and_nothing_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 1)
    explore(16)


def test_nor_where_looks_and_plans_see_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "AT_ONCE", 1)
    for name in ("LOOK", "LOOKS", "LANES"):
        monkeypatch.setattr(dispatch, name, 1)
    explore(8)
