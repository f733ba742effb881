"""Anything that can happen, in any order, checked against the oracle after each step.

Upholds: no pool above its limit unless the limit was lowered, no conflicting holders, no start before its edges,
its delay and its turn, every wait true, statuses only along the table, INV-001 to INV-004, one open run a job; a
failed run is tried again as often as was asked for and not once more, and edges follow the chain.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from datetime import datetime, timedelta
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

from engine.oracle import Oracle, Wish, conflicting, is_met, outcomes_of, used
from harness import FakeExecutor, Scheduler
from rota.command.retry import retry
from rota.core.job import Job
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.run import CANCELLED, CRASH_RECOVERY
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.engine import dispatch
from rota.errors import Conflict
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Started
from rota.ids import JobId, RunId
from rota.store.sqlite.store import SqliteStore
from rota.view.job import forms
from sample import sample
from store.invariants import check_store

MEMORY = Path("/dev/shm")
"""Where a commit costs no wait for the disk: this is about order, not durability."""
POOLS = {"global": "global", "gpu": "resource/gpu"}
picks = st.integers(0, 1000)
policies = st.sampled_from(["success", "success", "finished", "failed"])
modes = st.sampled_from(["exclusive", "shared"])


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks for; `after` names jobs by number, counted round."""

    after: list[tuple[int, str]]
    locks: dict[str, str]
    gpu: int
    priority: int
    delay: int
    retries: int


wants = st.builds(
    Want,
    after=st.just([]) | st.lists(st.tuples(picks, policies), max_size=3),
    locks=st.just({}) | st.dictionaries(st.sampled_from("ab"), modes, min_size=1, max_size=2),
    gpu=st.sampled_from([0, 0, 1, 2]),
    priority=st.sampled_from([0, 0, 0, 5, -5]),
    delay=st.sampled_from([0, 0, 0, 1, 7]),
    retries=st.sampled_from([0, 0, 1, 3]),
)


def account(run: RunId, is_over: bool) -> Account:
    return Account(run=run, pid=None if is_over else 1000 + run, has_ended=is_over)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="rota-machine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.wishes: dict[JobId, Wish] = {}
        self.delays: dict[JobId, datetime | None] = {}
        self.ended: dict[JobId, tuple[Status, int | None, str | None]] = {}
        """What is over, as it was when it was first seen to be."""
        self.executed: set[JobId] = set()
        """Jobs that had a child: they are never started a second time."""
        self.unwanted: set[JobId] = set()
        """Jobs that somebody cancelled: they are never started again."""
        self.alive: dict[RunId, JobId] = {}
        """What the executor has, as it knows it."""
        self.confirmed: set[RunId] = set()
        self.told: list[RunId] = []
        self.seen = 0

    @initialize(size=st.sampled_from([1, 1, 2, 3, -1]), gpu=st.integers(0, 3), first=st.lists(wants, max_size=6))
    def open(self, size: int, gpu: int, first: list[Want]) -> None:
        self.limits = {"global": size, "resource/gpu": gpu}
        self.scheduler = Scheduler(SqliteStore(self.home / "rota.db"), self.home, self.limits)
        quick = RetryPolicies(default=RetryPolicy(base=timedelta(seconds=1)))
        self.scheduler.settings = msgspec.structs.replace(self.scheduler.settings, retry=quick)
        self.scheduler.engine.settings = self.scheduler.settings
        self.connection = sqlite3.connect(self.home / "rota.db", isolation_level=None)
        for want in first:
            self.submit_one(want)
            self.holds()

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.connection.close()
            self.scheduler.close()
        shutil.rmtree(self.home)

    # What happens.

    @rule(want=wants)
    def submit(self, want: Want) -> None:
        self.submit_one(want)

    @rule(want=wants)
    def submit_urgently(self, want: Want) -> None:
        """One that goes before most, and may take the turn of one that is ready."""
        self.submit_one(msgspec.structs.replace(want, priority=9))

    def submit_one(self, want: Want) -> None:
        jobs = list(self.wishes)
        edges = tuple(dict.fromkeys((jobs[n % len(jobs)], policy) for n, policy in want.after if jobs))
        command = ("true", str(len(jobs)))
        now = self.scheduler.clock.moment
        pools = {"resource/gpu": want.gpu} if want.gpu else {}
        job = self.scheduler.submit(
            *command,
            after=[f"job-{predecessor}:{policy}" for predecessor, policy in edges],
            locks=[f"{key}:{mode}" for key, mode in want.locks.items()],
            pools=pools,
            priority=want.priority,
            delay=f"{want.delay}s",
            retries=want.retries,
        )
        draws = {"global": 1, **pools}
        self.wishes[job] = Wish(
            job=job, command=command, edges=edges, locks=want.locks, draws=draws, priority=want.priority,
            chain=job, max_retries=want.retries,
        )  # fmt: skip
        self.delays[job] = now + timedelta(seconds=want.delay) if want.delay else None

    def pick(self, runs: list[RunId], n: int) -> RunId:
        return runs[n % len(runs)]

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks)
    def start(self, n: int) -> None:
        run = self.pick(sorted(self.alive.keys() - self.confirmed), n)
        self.confirmed.add(run)
        self.executed.add(self.alive[run])
        self.scheduler.say(Started(run=run, pid=1000 + run, start_time=1))

    @precondition(lambda self: self.alive)
    @rule(n=picks, code=st.sampled_from([0, 0, 0, 1]), with_start=st.booleans())
    def end(self, n: int, code: int, with_start: bool) -> None:
        """By itself, whether or not it was asked to stop."""
        run = self.pick(sorted(self.alive), n)
        job = self.alive.pop(run)
        self.executed.add(job)
        self.told.append(run)
        exited = Exited(run=run, at=self.now, code=code)
        if with_start and run not in self.confirmed:
            self.scheduler.say(Started(run=run, pid=1000 + run, start_time=1), exited)
        else:
            self.scheduler.say(exited)
        assert self.scheduler.status(job) is (Status.COMPLETED if code == 0 else Status.FAILED)

    @precondition(lambda self: self.stoppable())
    @rule(n=picks)
    def end_by_stop(self, n: int) -> None:
        run = self.pick(self.stoppable(), n)
        job = self.alive.pop(run)
        self.told.append(run)
        self.scheduler.say(Exited(run=run, at=self.now, signal=15, ended_by="stop"))
        if job in self.unwanted:
            assert (self.scheduler.status(job), self.scheduler.job(job).exit_code) == (Status.CANCELLED, CANCELLED)

    def stoppable(self) -> list[RunId]:
        return sorted(self.alive.keys() & set(self.scheduler.executor.stops))

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks)
    def fail_to_start(self, n: int) -> None:
        run = self.pick(sorted(self.alive.keys() - self.confirmed), n)
        job = self.alive.pop(run)
        self.told.append(run)
        before = self.scheduler.job(job).dispatch_failures
        self.scheduler.say(FailedToStart(run=run, error="no"))
        found = self.scheduler.job(job)
        if job in self.unwanted:
            assert found.status is Status.CANCELLED
        elif before < 2:
            assert (found.status, found.dispatch_failures) == (Status.QUEUED, before + 1)
            self.delays[job] = self.scheduler.clock.moment + timedelta(seconds=before + 1)
        else:
            assert (found.status, found.reason, found.current_run) == (Status.FAILED, "circuit-broken: no", None)

    @precondition(lambda self: self.wishes)
    @rule(n=picks, is_running=st.booleans())
    def cancel(self, n: int, is_running: bool) -> None:
        jobs = sorted(self.alive.values()) if is_running and self.alive else list(self.wishes)
        named = jobs[n % len(jobs)]
        job = self.last(named)
        before = self.scheduler.status(job)
        if before in TERMINAL - {Status.CANCELLED}:
            with pytest.raises(Conflict):
                self.scheduler.cancel(named)
            return
        self.scheduler.cancel(named)
        self.unwanted.add(job)
        if before not in STARTED:
            assert self.scheduler.status(job) is Status.CANCELLED

    @precondition(lambda self: self.wishes)
    @rule(n=picks)
    def retry(self, n: int) -> None:
        named = list(self.wishes)[n % len(self.wishes)]
        job = self.last(named)
        before, is_decided = self.scheduler.status(job), self.oracle().is_decided(self.wishes[job])

        def ask() -> None:
            self.scheduler.do(lambda work: retry(work, f"job-{named}", actor="tester"))

        if before in WAITING:
            self.delays[job] = None
            self.wishes[job] = msgspec.structs.replace(self.wishes[job], retries=0)
            ask()
            return
        if before in (*STARTED, Status.COMPLETED, Status.SKIPPED) or is_decided:
            with pytest.raises(Conflict):
                ask()
            return
        ask()
        self.meet_retries()
        assert (self.wishes[self.last(job)].retries, self.scheduler.job(self.last(job)).retry_of) == (0, job)

    @precondition(lambda self: self.wishes)
    @rule(n=picks, is_ended=st.booleans())
    def rewind(self, n: int, is_ended: bool) -> None:
        """Of what is downstream everything is as it was when it was submitted, and nothing else is touched."""
        jobs = [job for job in self.wishes if not is_ended or job in self.ended] or list(self.wishes)
        named = jobs[n % len(jobs)]
        members = {self.last(job) for job in self.downstream(self.wishes[named].chain)}
        before = {job: self.scheduler.job(job) for job in self.wishes}
        running = [job for job in members if before[job].status in STARTED]
        if running:
            with pytest.raises(Conflict, match="cannot rewind while jobs are running in the rewind set"):
                self.scheduler.rewind(named)
            return
        for job in members:
            self.delays[job] = None
            self.wishes[job] = msgspec.structs.replace(self.wishes[job], retries=0)
            self.ended.pop(job, None)
            self.executed.discard(job)
            self.unwanted.discard(job)
        report = self.scheduler.rewind(named)
        assert set(report.rewind_set) == {f"job-{job}" for job in members}
        assert report.root == f"job-{self.last(named)}"
        assert set(report.cancelled) == {f"job-{job}" for job in members if before[job].status is Status.CANCELLED}
        for job in self.wishes.keys() - members:
            if before[job].status in TERMINAL:
                assert self.scheduler.job(job) == before[job]

    def downstream(self, chain: JobId) -> set[JobId]:
        """Chains, by their first jobs."""
        found, wave = {chain}, {chain}
        while wave:
            wave = {
                wish.chain
                for wish in self.wishes.values()
                if any(self.wishes[predecessor].chain in wave for predecessor, _ in wish.edges)
            } - found
            found |= wave
        return found

    def last(self, job: JobId) -> JobId:
        return max(other for other, wish in self.wishes.items() if wish.chain == self.wishes[job].chain)

    def meet_retries(self) -> None:
        """Jobs that nobody submitted continue a chain; a delay says that it was by itself."""
        newest = max(self.wishes, default=0)
        for job, before, retries in self.raw(f"SELECT id, retry_of, retries FROM job WHERE id > {newest} ORDER BY id"):
            self.wishes[job] = msgspec.structs.replace(self.wishes[before], job=job, retries=retries)
            if retries:
                assert retries == self.wishes[before].retries + 1 <= self.wishes[before].max_retries
                assert before not in self.unwanted, "retried though it was cancelled"
            delay = timedelta(seconds=2 ** (retries - 1)) if retries else None
            self.delays[job] = None if delay is None else self.scheduler.clock.moment + delay

    @rule(seconds=st.sampled_from([1, 2, 8]))
    def advance(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.turn()

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule()
    def let_starts_be_overdue(self) -> None:
        waiting = self.alive.keys() - self.confirmed
        self.scheduler.clock.advance(minutes=6)
        self.scheduler.turn()
        self.holds()
        assert waiting <= set(self.scheduler.executor.stops)
        failures = {self.alive[run]: self.scheduler.job(self.alive[run]).dispatch_failures for run in waiting}
        self.told += sorted(waiting)
        for run in waiting:
            del self.alive[run]
        self.scheduler.say(*(Exited(run=run, at=self.now, signal=15, ended_by="stop") for run in sorted(waiting)))
        for job, before in failures.items():
            if self.scheduler.status(job) not in TERMINAL:
                self.delays[job] = self.scheduler.clock.moment + timedelta(seconds=before + 1)

    @rule(pool=st.sampled_from(sorted(POOLS.values())), size=st.integers(-1, 3))
    def set_limit(self, pool: str, size: int) -> None:
        self.limits[pool] = size
        self.scheduler.set_pools(**{pool.replace("/", "__"): size})

    @precondition(lambda self: self.told)
    @rule(n=picks, code=st.integers(0, 2))
    def repeat_an_end(self, n: int, code: int) -> None:
        run = self.pick(self.told, n)
        self.scheduler.say(Exited(run=run, at=self.now, code=code), FailedToStart(run=run, error="late"))

    @rule(over=st.sets(picks, max_size=2), is_unheard=st.booleans(), is_all_lost=st.booleans())
    def crash(self, over: set[int], is_unheard: bool, is_all_lost: bool) -> None:
        """The scheduler dies. The last orders may not have arrived, some children may end meanwhile, and the
        supervisor may be lost too: then nobody can account for anything."""
        runs = sorted(self.alive)
        never = {run for run in runs if self.alive[run] not in self.executed} if is_unheard or is_all_lost else set()
        finished = {runs[n % len(runs)] for n in over if runs} - never
        lost = set(runs) if is_all_lost else never
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.inbox = [
            Accounts(
                runs=[
                    Account(run=run, pid=None if run in finished else 1000 + run, has_ended=run in finished)
                    for run in runs
                    if run not in lost
                ]
            ),
            *(Exited(run=run, at=self.now, code=0) for run in sorted(finished - lost)),
        ]
        gone = {run: self.alive.pop(run) for run in runs if run in lost or run in finished}
        self.executed |= {job for run, job in gone.items() if run in finished - lost} | set(self.alive.values())
        self.told += sorted(finished - lost)
        was_confirmed = self.confirmed & gone.keys()
        self.confirmed |= self.alive.keys()  # an account with a pid is as good as a confirmation
        self.seen = 0
        self.scheduler.boot()
        for run, job in gone.items():
            if run in finished and run not in lost:
                assert self.scheduler.status(job) is Status.COMPLETED
            elif run in was_confirmed:
                assert self.scheduler.job(job).reason == CRASH_RECOVERY
        asked_again = {run for run, job in self.alive.items() if job in self.unwanted and job in self.executed}
        assert asked_again <= set(self.scheduler.executor.stops)

    @property
    def now(self) -> float:
        return self.scheduler.clock.moment.timestamp()

    # What is true afterwards.

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.meet_retries()
        jobs = self.scheduler.reader.jobs(list(self.wishes))
        statuses = {job.id: job.status for job in jobs}
        oracle = self.oracle()
        started = self.check_starts(statuses)
        oracle.check_turns(started)
        self.check_ends(jobs)
        check_store(self.raw)
        self.check_waits(jobs, oracle)
        self.check_rest(statuses)

    def oracle(self) -> Oracle:
        statuses = {job.id: job.status for job in self.scheduler.reader.jobs(list(self.wishes))}
        return Oracle(self.wishes, statuses, self.delays, self.limits, self.scheduler.clock.moment)

    def check_starts(self, statuses: dict[JobId, Status]) -> list[Wish]:
        new = self.scheduler.executor.starts[self.seen :]
        self.seen += len(new)
        outcomes = outcomes_of(self.wishes, statuses)
        for start in new:
            wish = self.wishes[start.job]
            assert tuple(start.argv) == wish.command  # INV-001
            assert start.job not in self.executed, "started a second time"
            assert start.job not in self.unwanted, "started though it was cancelled"
            assert start.run not in self.alive
            assert all(is_met(edge, outcomes) for edge in wish.edges)
            until = self.delays[start.job]
            assert until is None or until <= self.scheduler.clock.moment
            self.alive[start.run] = start.job
        running = [self.wishes[job] for job in self.alive.values()]
        assert len({wish.job for wish in running}) == len(running)
        assert {wish.job for wish in running} == {job for job, status in statuses.items() if status in STARTED}
        assert conflicting(running) == []
        total = used(running)
        for start in new:
            for pool in self.wishes[start.job].draws:
                assert self.limits[pool] < 0 or total[pool] <= self.limits[pool], pool
        return [self.wishes[start.job] for start in new]

    def check_ends(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.status in TERMINAL:
                outcome = (job.status, job.exit_code, job.reason)
                assert self.ended.setdefault(job.id, outcome) == outcome
                if job.status is Status.FAILED and job.current_run is not None and job.id not in self.unwanted:
                    wish = self.wishes[job.id]
                    assert job.permanently_failed is (wish.retries >= wish.max_retries)
            else:
                assert job.id not in self.ended

    def check_waits(self, jobs: list[Job], oracle: Oracle) -> None:
        shown = {form.id: form for form in forms(self.scheduler.reader, jobs, self.scheduler.sight)}
        statuses = {job.id: job.status for job in jobs}
        assert oracle.closing()[0] == []  # nobody could start and has not
        for wish in oracle.waiting:
            assert not oracle.is_decided(wish)
            form = shown[f"job-{wish.job}"]
            kind = oracle.expected_kind(wish)
            assert form.wait is not None
            assert form.wait.kind == kind
            assert form.wait.detail
            stored = {"dependencies": Status.WAITING_ON_DEPS, "locks": Status.WAITING_ON_LOCKS}
            assert statuses[wish.job] is stored.get(str(kind), Status.QUEUED)
            if kind == "locks":
                assert form.wait.on == [f"lock:{key}" for key in oracle.holds_on_locks(wish)]
            if kind == "capacity":
                pool = form.wait.on[0].removeprefix("pool:")
                assert pool in oracle.closing()[1] | oracle.lacks(wish, used(oracle.running))

    def check_rest(self, statuses: dict[JobId, Status]) -> None:
        """When nothing changes, another turn changes nothing: what is explained is what happens."""
        before = (len(self.scheduler.executor.orders), len(self.scheduler.events))
        self.scheduler.turn()
        assert (len(self.scheduler.executor.orders), len(self.scheduler.events)) == before
        now = self.scheduler.clock.moment
        held = (self.delays[job] for job, status in statuses.items() if status is Status.QUEUED)
        due = [until for until in held if until is not None and until > now]
        assert self.scheduler.engine.next_due == min(due, default=None)


def explore(examples: int) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=sample(examples),
            stateful_step_count=35,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_happens_the_promises_hold() -> None:
    explore(40)


def test_they_hold_too_when_looks_take_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LOOK", 1)
    monkeypatch.setattr(dispatch, "LOOKS", 1)
    explore(20)
