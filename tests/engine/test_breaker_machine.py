"""State machine of ends, failed starts, cancels, crashes, resets and time, against a model that checks every job.

The engine passes over lanes and marks a few jobs; the model goes through all jobs every time. A difference means a
job that was held without reason, a job that started although it was held, or a lost wake-up.
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

from rota.control.commands import reset_breaker
from rota.db.sqlite.store import SqliteStore
from rota.engine import breaker
from rota.errors import NotFound
from rota.executor.port import ExitReport, RunInventory, RunReport, StartFailure
from rota.ids import JobId
from rota.jobs.queries import render_jobs
from rota.kernel.status import STARTED, TERMINAL, Status
from tests.db.invariants import check_store
from tests.harness import FakeExecutor, Scheduler
from tests.sample import sample

MEMORY = Path("/dev/shm")
WINDOW, COOL_DOWN = timedelta(seconds=60), timedelta(seconds=30)
figures = st.sampled_from([2, 2, 3, 4])
picks = st.integers(0, 1000)


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None
    target: str | None
    locks: dict[str, str]
    delay: int
    priority: int

    @property
    def keys(self) -> list[str]:
        named = (("type", self.type), ("target", self.target))
        return [f"{kind}/{name}" for kind, name in named if name is not None]


requests = st.builds(
    JobRequest,
    type=st.sampled_from([None, "x", "x", "x"]),
    target=st.sampled_from([None, None, "y"]),
    locks=st.just({}) | st.dictionaries(st.sampled_from("ab"), st.sampled_from(["exclusive", "shared"]), min_size=1),
    delay=st.sampled_from([0, 0, 0, 5]),
    priority=st.sampled_from([0, 0, 3]),
)


class Model:
    """The rules, written as directly as possible."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)
        self.max_failures = 2
        self.requests: dict[JobId, JobRequest] = {}
        self.not_before: dict[JobId, datetime] = {}
        self.running: dict[JobId, None] = {}
        self.waiting: dict[JobId, None] = {}
        self.failures: dict[str, list[datetime]] = {}
        self.until: dict[str, datetime] = {}
        self.half_open: dict[str, JobId | None] = {}

    def holder(self, job: JobId) -> str | None:
        """Wait detail at the paused gate, or None."""
        for key in self.requests[job].keys:
            if key in self.until:
                return f"breaker open for {key} until {self.until[key].isoformat().replace('+00:00', 'Z')}"
            if self.half_open.get(key) is not None:
                return f"breaker open for {key} until job-{self.half_open[key]} has ended"
        return None

    def is_delayed(self, job: JobId) -> bool:
        return job in self.not_before and self.not_before[job] > self.now

    def is_locked_out(self, job: JobId, others: list[JobId]) -> bool:
        own_locks = self.requests[job].locks
        return any(
            key in own_locks and "exclusive" in (mode, own_locks[key])
            for other in others
            for key, mode in self.requests[other].locks.items()
        )

    def order(self, job: JobId) -> tuple[int, int]:
        return -self.requests[job].priority, job

    def contenders(self) -> list[JobId]:
        free = [job for job in self.waiting if not self.is_delayed(job) and self.holder(job) is None]
        return sorted(free, key=self.order)

    def cool_down(self) -> None:
        for key in [key for key, until in self.until.items() if until <= self.now]:
            del self.until[key]
            self.half_open[key] = None

    def go(self) -> None:
        """Start the first job that may start, until no job may."""
        self.cool_down()
        while job := self.next():
            self.start(job)

    def follow(self, started: list[JobId]) -> None:
        """Check that these jobs were allowed to start, and that no other job is left that could have."""
        self.cool_down()
        for job in started:
            assert not self.is_delayed(job)
            assert self.holder(job) is None
            assert not self.is_locked_out(job, list(self.running))
            self.start(job)
        assert self.next() is None

    def start(self, job: JobId) -> None:
        del self.waiting[job]
        self.running[job] = None
        for key in self.requests[job].keys:
            if key in self.half_open:
                self.half_open[key] = job

    def next(self) -> JobId | None:
        contenders = self.contenders()
        for n, job in enumerate(contenders):
            if not self.is_locked_out(job, [*self.running, *contenders[:n]]):
                return job
        return None

    def end(self, job: JobId, result: str) -> None:
        del self.running[job]
        for key in self.requests[job].keys:
            if result == "bad":
                self.failures.setdefault(key, []).append(self.now)
            recent = [at for at in self.failures.get(key, []) if at > self.now - WINDOW]
            if key in self.half_open and self.half_open[key] == job:
                del self.half_open[key]
                if result == "bad":
                    self.until[key] = self.now + COOL_DOWN
                elif result == "good":
                    self.failures.pop(key, None)
                else:
                    self.half_open[key] = None
            elif (
                result == "bad"
                and key not in self.until
                and key not in self.half_open
                and len(recent) >= self.max_failures
            ):
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
        self.scheduler.configure(start_timeout=timedelta(days=1))  # unconfirmed starts are no sign of silence here
        self.configure(limit=self.model.max_failures)
        self.connection = sqlite3.connect(self.home / "rota.db", isolation_level=None)
        self.start_failures: dict[JobId, int] = {}
        self.confirmed: set[JobId] = set()

    def teardown(self) -> None:
        self.connection.close()
        self.scheduler.close()
        shutil.rmtree(self.home)

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    @property
    def now(self) -> datetime:
        return self.scheduler.clock.moment

    @initialize(limit=figures)
    def begin(self, limit: int) -> None:
        self.configure(limit)

    @rule(limit=figures)
    def configure(self, limit: int) -> None:
        self.model.max_failures = limit
        self.scheduler.set_breaker_policy(failures=limit, window=WINDOW, cool_down=COOL_DOWN)

    @rule(request=requests)
    def submit(self, request: JobRequest) -> None:
        locks = [f"{key}:{mode}" for key, mode in request.locks.items()]
        fields: dict[str, Any] = {"type": request.type, "target": request.target, "priority": request.priority}
        job = self.scheduler.submit(locks=locks, delay=f"{request.delay}s", **fields)
        self.model.requests[job] = request
        self.model.waiting[job] = None
        if request.delay:
            self.model.not_before[job] = self.now + timedelta(seconds=request.delay)

    @rule(jobs=st.lists(requests, min_size=2, max_size=5))
    def submit_many(self, jobs: list[JobRequest]) -> None:
        for request in jobs:
            self.submit(request)
            self.check_model()

    @rule(pauses=st.lists(st.tuples(st.sampled_from([0, 20, 30, 60]), st.booleans()), min_size=2, max_size=5))
    def fail(self, pauses: list[tuple[int, bool]]) -> None:
        """Submit failing runs as long as they may start, and after each let time pass or crash."""
        for seconds, is_crash in pauses:
            self.submit(JobRequest(type="x", target=None, locks={}, delay=0, priority=0))
            self.check_model()
            job = max(self.model.requests)
            if job in self.model.running:
                self.scheduler.end_run(job, 1)
                self.model.end(job, "bad")
            self.check_model()
            if is_crash:
                self.crash(seconds)
            else:
                self.advance(seconds)
            self.check_model()

    def pick(self, n: int) -> JobId:
        return list(self.model.running)[n % len(self.model.running)]

    @precondition(lambda self: self.model.running)
    @rule(n=picks, result=st.sampled_from(["bad", "bad", "bad", "good", "skipped", "lost"]))
    def end(self, n: int, result: str) -> None:
        job = self.pick(n)
        ends: dict[str, dict[str, Any]] = {
            "bad": {"code": 1},
            "good": {"code": 0},
            "skipped": {"code": 0, "skip_reason": "no"},
            "lost": {"code": None, "is_observed": False},
        }
        self.scheduler.end_run(job, **ends[result])
        self.model.end(job, result)

    @precondition(lambda self: self.model.running.keys() - self.confirmed)
    @rule(n=picks)
    def fail_to_start(self, n: int) -> None:
        unconfirmed = sorted(self.model.running.keys() - self.confirmed)
        job = unconfirmed[n % len(unconfirmed)]
        self.scheduler.receive(StartFailure(run=self.scheduler.find_run(job), error="no"))
        self.model.end(job, "nothing")
        self.start_failures[job] = self.start_failures.get(job, 0) + 1
        if self.start_failures[job] < 3:
            self.model.waiting[job] = None
            self.model.not_before[job] = self.now + timedelta(seconds=self.start_failures[job])

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
        self.scheduler.end_run(job, None, signal=15, ended_by="stop")
        self.model.end(job, "nothing")

    @rule(seconds=st.sampled_from([1, 4, 29, 30, 60]))
    def advance(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.run_turns()

    @rule(key=st.sampled_from(["type/x", "target/y"]))
    def reset(self, key: str) -> None:
        is_known = key in self.model.until or key in self.model.half_open or self.recent(key)
        try:
            self.scheduler.run_request(lambda tx: reset_breaker(tx, key, actor="tester"))
        except NotFound:
            assert not is_known
        else:
            assert is_known
            self.model.close(key)

    def recent(self, key: str) -> bool:
        return any(at > self.now - WINDOW for at in self.model.failures.get(key, []))

    @rule(seconds=st.sampled_from([0, 0, 1, 30, 45, 60]))
    def crash(self, seconds: int) -> None:
        """Crash, and restart after this time."""
        self.scheduler.clock.advance(seconds=seconds)
        runs = [self.scheduler.find_run(job) for job in self.model.running]
        before = self.scheduler.executor
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.orders = list(before.orders)
        self.scheduler.executor.inbox = [
            RunInventory(runs=[RunReport(run=run, pid=1, has_ended=False) for run in runs])
        ]
        self.scheduler.start_engine()
        self.confirmed.update(self.model.running)

    @rule(n=picks, late=st.integers(1, 3))
    def report_end_again(self, n: int, late: int) -> None:
        """Report the end of a run that has already ended."""
        ended = [start for start in self.scheduler.executor.starts if start.job not in self.model.running]
        runs = [ended[n % len(ended)].run] if ended else []
        at = self.now.timestamp()
        open_runs = {row[0] for row in self.run_sql("SELECT id FROM run WHERE status IS NULL")}
        self.scheduler.receive(*(ExitReport(run=run, at=at, code=late % 2) for run in runs if run not in open_runs))

    @invariant()
    def check_model(self) -> None:
        self.model.now = self.now
        jobs = self.scheduler.reader.jobs.find_all(list(self.model.requests))
        started = {job.id for job in jobs if job.status in STARTED}
        self.update_model(started)
        assert started == set(self.model.running)
        assert {job.id for job in jobs if job.status not in TERMINAL | STARTED} == set(self.model.waiting)
        shown = {form.id: form for form in render_jobs(self.scheduler.reader, jobs, self.scheduler.view_context)}
        for job in self.model.waiting:
            form, held = shown[f"job-{job}"], self.model.holder(job)
            assert form.wait is not None
            if self.model.is_delayed(job):
                assert form.wait.kind == "delay"
            elif held is not None:
                assert (form.status, form.wait.kind, form.wait.detail) == ("QUEUED", "paused", held)
                assert self.run_sql(f"SELECT 1 FROM lock WHERE job = {job} AND state <> 'idle'") == []
            else:
                assert (form.status, form.wait.kind) == (Status.WAITING_ON_LOCKS, "locks")
        check_store(self.run_sql)
        self.check_idle()

    def update_model(self, started: set[JobId]) -> None:
        self.model.go()

    def check_idle(self) -> None:
        """Check that nothing is left to do, and that the timer is set for the next due time."""
        before = (len(self.scheduler.executor.orders), len(self.scheduler.events))
        self.scheduler.run_turns()
        assert (len(self.scheduler.executor.orders), len(self.scheduler.events)) == before
        due = [self.model.not_before[job] for job in self.model.waiting if self.model.is_delayed(job)]
        assert self.scheduler.engine.next_due == min([*due, *self.model.until.values()], default=None)


class PagedMachine(Machine):
    """Probe candidates are read one by one: which of them comes first is not exact, that one comes is."""

    @rule(jobs=st.lists(requests, min_size=2, max_size=5))
    def submit_many_while_open(self, jobs: list[JobRequest]) -> None:
        """Submit jobs of which some need a lock that a job of another kind holds."""
        self.submit_many([JobRequest(type=None, target=None, locks={"a": "exclusive"}, delay=0, priority=0)])
        self.fail([(0, False)] * self.model.max_failures)
        self.submit_many(jobs)
        self.advance(30)

    def update_model(self, started: set[JobId]) -> None:
        latest = list(dict.fromkeys(reversed(self.scheduler.started_jobs())))[::-1]
        self.model.follow([job for job in latest if job in started and job not in self.model.running])


def run(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sample(examples), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )


def test_breaker_holds_exactly_the_right_jobs() -> None:
    run(Machine, 25)


def test_half_open_breaker_always_finds_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker, "MAX_PROBE_CANDIDATES", 1)
    run(PagedMachine, 10)
