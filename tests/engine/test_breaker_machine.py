"""Any sequence of ends, starts that fail, cancels, crashes, resets and time, against a model that looks at everything.

The engine passes over lanes and marks a few jobs; the model goes through all jobs every time. Where they differ, a job
was held that should not be, one got through that should not have, or a wake-up was lost.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness import FakeExecutor, Scheduler
from rota.command.breaker import reset
from rota.core.status import STARTED, TERMINAL, Status
from rota.engine import breaker
from rota.errors import NotFound
from rota.executor.port import Account, Accounts, Exited, FailedToStart
from rota.ids import JobId
from rota.store.sqlite.store import SqliteStore
from rota.view.job import forms
from sample import sample
from store.invariants import check_store

MEMORY = Path("/dev/shm")
WINDOW, COOL_DOWN = timedelta(seconds=60), timedelta(seconds=30)
figures = st.sampled_from([2, 2, 3, 4])
picks = st.integers(0, 1000)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None
    target: str | None
    locks: dict[str, str]
    delay: int
    priority: int

    @property
    def keys(self) -> list[str]:
        named = (("type", self.type), ("target", self.target))
        return [f"{kind}/{name}" for kind, name in named if name is not None]


wishes = st.builds(
    Wish,
    type=st.sampled_from([None, "x", "x", "x"]),
    target=st.sampled_from([None, None, "y"]),
    locks=st.just({}) | st.dictionaries(st.sampled_from("ab"), st.sampled_from(["exclusive", "shared"]), min_size=1),
    delay=st.sampled_from([0, 0, 0, 5]),
    priority=st.sampled_from([0, 0, 3]),
)


class Model:
    """The rules as a person would write them down."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)
        self.most = 2
        self.wishes: dict[JobId, Wish] = {}
        self.not_before: dict[JobId, datetime] = {}
        self.running: dict[JobId, None] = {}
        self.waiting: dict[JobId, None] = {}
        self.failures: dict[str, list[datetime]] = {}
        self.until: dict[str, datetime] = {}
        self.half_open: dict[str, JobId | None] = {}

    def holder(self, job: JobId) -> str | None:
        """What is said of it at the paused gate."""
        for key in self.wishes[job].keys:
            if key in self.until:
                return f"breaker open for {key} until {self.until[key].isoformat().replace('+00:00', 'Z')}"
            if self.half_open.get(key) is not None:
                return f"breaker open for {key} until job-{self.half_open[key]} has ended"
        return None

    def is_delayed(self, job: JobId) -> bool:
        return job in self.not_before and self.not_before[job] > self.now

    def lacks_locks(self, job: JobId, others: list[JobId]) -> bool:
        mine = self.wishes[job].locks
        return any(
            key in mine and "exclusive" in (mode, mine[key])
            for other in others
            for key, mode in self.wishes[other].locks.items()
        )

    def order(self, job: JobId) -> tuple[int, int]:
        return -self.wishes[job].priority, job

    def contenders(self) -> list[JobId]:
        free = [job for job in self.waiting if not self.is_delayed(job) and self.holder(job) is None]
        return sorted(free, key=self.order)

    def cool_down(self) -> None:
        for key in [key for key, until in self.until.items() if until <= self.now]:
            del self.until[key]
            self.half_open[key] = None

    def go(self) -> None:
        """Until nobody can start any more: the first in the order who may, and again."""
        self.cool_down()
        while job := self.next():
            self.start(job)

    def follow(self, started: list[JobId]) -> None:
        """These were let go, and nobody is left who could have been."""
        self.cool_down()
        for job in started:
            assert not self.is_delayed(job)
            assert self.holder(job) is None
            assert not self.lacks_locks(job, list(self.running))
            self.start(job)
        assert self.next() is None

    def start(self, job: JobId) -> None:
        del self.waiting[job]
        self.running[job] = None
        for key in self.wishes[job].keys:
            if key in self.half_open:
                self.half_open[key] = job

    def next(self) -> JobId | None:
        contenders = self.contenders()
        for n, job in enumerate(contenders):
            if not self.lacks_locks(job, [*self.running, *contenders[:n]]):
                return job
        return None

    def end(self, job: JobId, told: str) -> None:
        del self.running[job]
        for key in self.wishes[job].keys:
            if told == "bad":
                self.failures.setdefault(key, []).append(self.now)
            recent = [at for at in self.failures.get(key, []) if at > self.now - WINDOW]
            if key in self.half_open and self.half_open[key] == job:
                del self.half_open[key]
                if told == "bad":
                    self.until[key] = self.now + COOL_DOWN
                elif told == "good":
                    self.failures.pop(key, None)
                else:
                    self.half_open[key] = None
            elif told == "bad" and key not in self.until and key not in self.half_open and len(recent) >= self.most:
                self.until[key] = self.now + COOL_DOWN

    def close(self, key: str) -> None:
        self.until.pop(key, None)
        self.half_open.pop(key, None)
        self.failures.pop(key, None)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.home = Path(tempfile.mkdtemp(prefix="rota-breaker-", dir=MEMORY if MEMORY.is_dir() else None))
        self.scheduler = Scheduler(SqliteStore(self.home / "rota.db"), self.home, {"global": -1})
        self.configure(most=self.model.most)
        self.connection = sqlite3.connect(self.home / "rota.db", isolation_level=None)
        self.tries: dict[JobId, int] = {}
        self.confirmed: set[JobId] = set()

    def teardown(self) -> None:
        self.connection.close()
        self.scheduler.close()
        shutil.rmtree(self.home)

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    @property
    def now(self) -> datetime:
        return self.scheduler.clock.moment

    @initialize(most=figures)
    def begin(self, most: int) -> None:
        self.configure(most)

    @rule(most=figures)
    def configure(self, most: int) -> None:
        self.model.most = most
        self.scheduler.set_breaker(failures=most, window=WINDOW, cool_down=COOL_DOWN)

    @rule(wish=wishes)
    def submit(self, wish: Wish) -> None:
        locks = [f"{key}:{mode}" for key, mode in wish.locks.items()]
        fields: dict[str, Any] = {"type": wish.type, "target": wish.target, "priority": wish.priority}
        job = self.scheduler.submit(locks=locks, delay=f"{wish.delay}s", **fields)
        self.model.wishes[job] = wish
        self.model.waiting[job] = None
        if wish.delay:
            self.model.not_before[job] = self.now + timedelta(seconds=wish.delay)

    @rule(crowd=st.lists(wishes, min_size=2, max_size=5))
    def submit_many(self, crowd: list[Wish]) -> None:
        for wish in crowd:
            self.submit(wish)
            self.holds()

    @rule(pauses=st.lists(st.tuples(st.sampled_from([0, 20, 30, 60]), st.booleans()), min_size=2, max_size=5))
    def fail(self, pauses: list[tuple[int, bool]]) -> None:
        """Runs that fail, as long as they are let go, and after each some time or a crash that takes some time."""
        for seconds, is_away in pauses:
            self.submit(Wish(type="x", target=None, locks={}, delay=0, priority=0))
            self.holds()
            job = max(self.model.wishes)
            if job in self.model.running:
                self.scheduler.end(job, 1)
                self.model.end(job, "bad")
            self.holds()
            if is_away:
                self.crash(seconds)
            else:
                self.advance(seconds)
            self.holds()

    def pick(self, n: int) -> JobId:
        return list(self.model.running)[n % len(self.model.running)]

    @precondition(lambda self: self.model.running)
    @rule(n=picks, how=st.sampled_from(["bad", "bad", "bad", "good", "skipped", "lost"]))
    def end(self, n: int, how: str) -> None:
        job = self.pick(n)
        ends: dict[str, dict[str, Any]] = {
            "bad": {"code": 1},
            "good": {"code": 0},
            "skipped": {"code": 0, "skipped": "no"},
            "lost": {"code": None, "watched": False},
        }
        self.scheduler.end(job, **ends[how])
        self.model.end(job, how)

    @precondition(lambda self: self.model.running.keys() - self.confirmed)
    @rule(n=picks)
    def fail_to_start(self, n: int) -> None:
        unconfirmed = sorted(self.model.running.keys() - self.confirmed)
        job = unconfirmed[n % len(unconfirmed)]
        self.scheduler.say(FailedToStart(run=self.scheduler.run_of(job), error="no"))
        self.model.end(job, "nothing")
        self.tries[job] = self.tries.get(job, 0) + 1
        if self.tries[job] < 3:
            self.model.waiting[job] = None
            self.model.not_before[job] = self.now + timedelta(seconds=self.tries[job])

    @precondition(lambda self: self.model.waiting)
    @rule(n=picks)
    def cancel_waiting(self, n: int) -> None:
        job = list(self.model.waiting)[n % len(self.model.waiting)]
        self.scheduler.cancel(job)
        del self.model.waiting[job]

    @precondition(lambda self: self.model.running)
    @rule(n=picks)
    def cancel_running(self, n: int) -> None:
        job = self.pick(n)
        self.scheduler.cancel(job)
        self.scheduler.end(job, None, signal=15, ended_by="stop")
        self.model.end(job, "nothing")

    @rule(seconds=st.sampled_from([1, 4, 29, 30, 60]))
    def advance(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.turn()

    @rule(key=st.sampled_from(["type/x", "target/y"]))
    def reset(self, key: str) -> None:
        is_known = key in self.model.until or key in self.model.half_open or self.recent(key)
        try:
            self.scheduler.do(lambda work: reset(work, key, actor="tester"))
        except NotFound:
            assert not is_known
        else:
            assert is_known
            self.model.close(key)

    def recent(self, key: str) -> bool:
        return any(at > self.now - WINDOW for at in self.model.failures.get(key, []))

    @rule(seconds=st.sampled_from([0, 0, 1, 30, 45, 60]))
    def crash(self, seconds: int) -> None:
        """And be away for so long."""
        self.scheduler.clock.advance(seconds=seconds)
        runs = [self.scheduler.run_of(job) for job in self.model.running]
        before = self.scheduler.executor
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.orders = list(before.orders)
        self.scheduler.executor.inbox = [Accounts(runs=[Account(run=run, pid=1, has_ended=False) for run in runs])]
        self.scheduler.boot()
        self.confirmed.update(self.model.running)

    @rule(n=picks, late=st.integers(1, 3))
    def come_late(self, n: int, late: int) -> None:
        """An end of a run that is over, and one of a run that never was."""
        ended = [start for start in self.scheduler.executor.starts if start.job not in self.model.running]
        runs = [ended[n % len(ended)].run] if ended else []
        at = self.now.timestamp()
        open_runs = {row[0] for row in self.raw("SELECT id FROM run WHERE status IS NULL")}
        self.scheduler.say(*(Exited(run=run, at=at, code=late % 2) for run in runs if run not in open_runs))

    @invariant()
    def holds(self) -> None:
        self.model.now = self.now
        jobs = self.scheduler.reader.jobs(list(self.model.wishes))
        started = {job.id for job in jobs if job.status in STARTED}
        self.keep_up(started)
        assert started == set(self.model.running)
        assert {job.id for job in jobs if job.status not in TERMINAL | STARTED} == set(self.model.waiting)
        shown = {form.id: form for form in forms(self.scheduler.reader, jobs, self.scheduler.sight)}
        for job in self.model.waiting:
            form, held = shown[f"job-{job}"], self.model.holder(job)
            assert form.wait is not None
            if self.model.is_delayed(job):
                assert form.wait.kind == "delay"
            elif held is not None:
                assert (form.status, form.wait.kind, form.wait.detail) == ("QUEUED", "paused", held)
                assert self.raw(f"SELECT 1 FROM lock WHERE job = {job} AND state <> 'idle'") == []
            else:
                assert (form.status, form.wait.kind) == (Status.WAITING_ON_LOCKS, "locks")
        check_store(self.raw)
        self.rests()

    def keep_up(self, started: set[JobId]) -> None:
        self.model.go()

    def rests(self) -> None:
        """Nothing is left to do, and the timer is set for the next thing that time will change."""
        before = (len(self.scheduler.executor.orders), len(self.scheduler.events))
        self.scheduler.turn()
        assert (len(self.scheduler.executor.orders), len(self.scheduler.events)) == before
        due = [self.model.not_before[job] for job in self.model.waiting if self.model.is_delayed(job)]
        assert self.scheduler.engine.next_due == min([*due, *self.model.until.values()], default=None)


class Paged(Machine):
    """Those who may try are looked at one by one: which of them comes first is not as exact, that one comes is."""

    @rule(crowd=st.lists(wishes, min_size=2, max_size=5))
    def crowd_an_open_one(self, crowd: list[Wish]) -> None:
        """Some of them want a lock that is taken by one of another kind."""
        self.submit_many([Wish(type=None, target=None, locks={"a": "exclusive"}, delay=0, priority=0)])
        self.fail([(0, False)] * self.model.most)
        self.submit_many(crowd)
        self.advance(30)

    def keep_up(self, started: set[JobId]) -> None:
        latest = list(dict.fromkeys(reversed(self.scheduler.started())))[::-1]
        self.model.follow([job for job in latest if job in started and job not in self.model.running])


def run(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sample(examples),
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_the_right_jobs_are_held_and_no_others() -> None:
    run(Machine, 25)


def test_whatever_happens_somebody_tries_who_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "PROBES", 1)
    run(Paged, 10)
