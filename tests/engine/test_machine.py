"""State machine of arbitrary operations, checked against the oracle after each step.

Upholds: no pool above its limit unless the limit was lowered, no conflicting holders, no start before its edges,
its delay and its turn, every wait reason true, statuses only along the table, INV-001 to INV-004, one open run a job;
a failed run is retried exactly as often as requested, and edges follow the chain.
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

from rota.db.sqlite.store import SqliteStore
from rota.engine import dispatch
from rota.errors import Conflict, InvalidInput
from rota.executor.port import ExitReport, RunInventory, RunReport, StartConfirmation, StartFailure
from rota.ids import JobId, RunId
from rota.jobs.queries import render_jobs
from rota.jobs.retry import retry
from rota.kernel.job import Job
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.run import CRASH_RECOVERY, EXIT_CANCELLED
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status
from tests.db.invariants import check_store
from tests.engine.oracle import Oracle, SubmittedJob, chain_outcomes, find_conflicts, is_met, sum_demand
from tests.harness import FakeExecutor, Scheduler
from tests.sample import sample

MEMORY = Path("/dev/shm")
"""A directory in memory: these tests check order, not durability."""
POOLS = {"global": "global", "gpu": "resource/gpu"}
picks = st.integers(0, 1000)
policies = st.sampled_from(["success", "success", "finished", "failed"])
modes = st.sampled_from(["exclusive", "shared"])


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a submit; `after` names jobs by number, modulo the number of jobs."""

    after: list[tuple[int, str]]
    locks: dict[str, str]
    gpu: int
    priority: int
    delay: int
    retries: int


requests = st.builds(
    JobRequest,
    after=st.just([]) | st.lists(st.tuples(picks, policies), max_size=3),
    locks=st.just({}) | st.dictionaries(st.sampled_from("ab"), modes, min_size=1, max_size=2),
    gpu=st.sampled_from([0, 0, 1, 2]),
    priority=st.sampled_from([0, 0, 0, 5, -5]),
    delay=st.sampled_from([0, 0, 0, 1, 7]),
    retries=st.sampled_from([0, 0, 1, 3]),
)


def run_report(run: RunId, is_over: bool) -> RunReport:
    return RunReport(run=run, pid=None if is_over else 1000 + run, has_ended=is_over)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="rota-machine-", dir=MEMORY if MEMORY.is_dir() else None))
        self.submitted: dict[JobId, SubmittedJob] = {}
        self.delays: dict[JobId, datetime | None] = {}
        self.backoffs: set[JobId] = set()
        """Jobs whose delay no client requested, so that a rewind drops it."""
        self.ended: dict[JobId, tuple[Status, int | None, str | None]] = {}
        """Ended jobs with their end, as first seen."""
        self.executed: set[JobId] = set()
        """Jobs that had a child: they never start a second time."""
        self.cancelled: set[JobId] = set()
        """Cancelled jobs: they never start again."""
        self.alive: dict[RunId, JobId] = {}
        """Runs that the executor has."""
        self.confirmed: set[RunId] = set()
        self.reported_ends: list[RunId] = []
        self.checked_starts = 0

    @initialize(size=st.sampled_from([1, 1, 2, 3, -1]), gpu=st.integers(0, 3), first=st.lists(requests, max_size=6))
    def open(self, size: int, gpu: int, first: list[JobRequest]) -> None:
        self.limits = {"global": size, "resource/gpu": gpu}
        self.scheduler = Scheduler(SqliteStore(self.home / "rota.db"), self.home, self.limits)
        quick = RetryPolicies(default=RetryPolicy(base=timedelta(seconds=1)))
        self.scheduler.settings = msgspec.structs.replace(self.scheduler.settings, retry=quick)
        self.scheduler.engine.settings = self.scheduler.settings
        self.connection = sqlite3.connect(self.home / "rota.db", isolation_level=None)
        for request in first:
            self.submit_one(request)
            self.check()

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.connection.close()
            self.scheduler.close()
        shutil.rmtree(self.home)

    # Operations.

    @rule(request=requests)
    def submit(self, request: JobRequest) -> None:
        self.submit_one(request)

    @rule(request=requests)
    def submit_urgently(self, request: JobRequest) -> None:
        """Submit a job with a higher priority, which may take the turn of a ready one."""
        self.submit_one(msgspec.structs.replace(request, priority=9))

    def submit_one(self, request: JobRequest) -> None:
        jobs = list(self.submitted)
        edges = tuple(dict.fromkeys((jobs[n % len(jobs)], policy) for n, policy in request.after if jobs))
        command = ("true", str(len(jobs)))
        now = self.scheduler.clock.moment
        pools = {"resource/gpu": request.gpu} if request.gpu else {}
        if 0 < self.limits["resource/gpu"] < request.gpu:
            with pytest.raises(InvalidInput, match="it could never start"):
                self.scheduler.submit(*command, pools=pools)
            return
        job = self.scheduler.submit(
            *command,
            after=[f"job-{predecessor}:{policy}" for predecessor, policy in edges],
            locks=[f"{key}:{mode}" for key, mode in request.locks.items()],
            pools=pools,
            priority=request.priority,
            delay=f"{request.delay}s",
            retries=request.retries,
        )
        demand = {"global": 1, **pools}
        self.submitted[job] = SubmittedJob(
            job=job,
            command=command,
            edges=edges,
            locks=request.locks,
            pool_demand=demand,
            priority=request.priority,
            chain=job,
            max_retries=request.retries,
        )
        self.delays[job] = now + timedelta(seconds=request.delay) if request.delay else None

    def pick(self, runs: list[RunId], n: int) -> RunId:
        return runs[n % len(runs)]

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks)
    def start(self, n: int) -> None:
        run = self.pick(sorted(self.alive.keys() - self.confirmed), n)
        self.confirmed.add(run)
        self.executed.add(self.alive[run])
        self.scheduler.receive(StartConfirmation(run=run, pid=1000 + run, start_time=1))

    @precondition(lambda self: self.alive)
    @rule(n=picks, code=st.sampled_from([0, 0, 0, 1]), with_start=st.booleans())
    def end(self, n: int, code: int, with_start: bool) -> None:
        """End a run by itself, whether or not a stop was requested."""
        run = self.pick(sorted(self.alive), n)
        job = self.alive.pop(run)
        self.executed.add(job)
        self.reported_ends.append(run)
        exited = ExitReport(run=run, at=self.now, code=code)
        if with_start and run not in self.confirmed:
            self.scheduler.receive(StartConfirmation(run=run, pid=1000 + run, start_time=1), exited)
        else:
            self.scheduler.receive(exited)
        assert self.scheduler.status(job) is (Status.COMPLETED if code == 0 else Status.FAILED)

    @precondition(lambda self: self.stoppable())
    @rule(n=picks)
    def end_by_stop(self, n: int) -> None:
        run = self.pick(self.stoppable(), n)
        job = self.alive.pop(run)
        self.reported_ends.append(run)
        self.scheduler.receive(ExitReport(run=run, at=self.now, signal=15, ended_by="stop"))
        if job in self.cancelled:
            assert (self.scheduler.status(job), self.scheduler.job(job).exit_code) == (Status.CANCELLED, EXIT_CANCELLED)

    def stoppable(self) -> list[RunId]:
        return sorted(self.alive.keys() & set(self.scheduler.executor.stops))

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule(n=picks)
    def fail_to_start(self, n: int) -> None:
        run = self.pick(sorted(self.alive.keys() - self.confirmed), n)
        job = self.alive.pop(run)
        self.reported_ends.append(run)
        before = self.scheduler.job(job).dispatch_failures
        self.scheduler.receive(StartFailure(run=run, error="no"))
        record = self.scheduler.job(job)
        if job in self.cancelled:
            assert record.status is Status.CANCELLED
        elif before < 2:
            assert (record.status, record.dispatch_failures) == (Status.QUEUED, before + 1)
            self.delays[job] = self.scheduler.clock.moment + timedelta(seconds=before + 1)
            self.backoffs.add(job)
        else:
            assert (record.status, record.reason, record.current_run) == (Status.FAILED, "circuit-broken: no", None)

    @precondition(lambda self: self.submitted)
    @rule(n=picks, is_running=st.booleans())
    def cancel(self, n: int, is_running: bool) -> None:
        jobs = sorted(self.alive.values()) if is_running and self.alive else list(self.submitted)
        named = jobs[n % len(jobs)]
        job = self.last(named)
        before = self.scheduler.status(job)
        if before in TERMINAL - {Status.CANCELLED}:
            with pytest.raises(Conflict):
                self.scheduler.cancel(named)
            return
        self.scheduler.cancel(named)
        self.cancelled.add(job)
        if before not in STARTED:
            assert self.scheduler.status(job) is Status.CANCELLED

    @precondition(lambda self: self.submitted)
    @rule(n=picks)
    def retry(self, n: int) -> None:
        named = list(self.submitted)[n % len(self.submitted)]
        job = self.last(named)
        before, is_decided = self.scheduler.status(job), self.oracle().has_unmeetable_edge(self.submitted[job])

        def retry_job() -> None:
            self.scheduler.run_request(lambda tx: retry(tx, f"job-{named}", actor="tester"))

        if before in WAITING:
            self.delays[job] = None
            self.submitted[job] = msgspec.structs.replace(self.submitted[job], retries=0)
            retry_job()
            return
        if before in (*STARTED, Status.COMPLETED, Status.SKIPPED) or is_decided:
            with pytest.raises(Conflict):
                retry_job()
            return
        retry_job()
        self.record_retries()
        assert (self.submitted[self.last(job)].retries, self.scheduler.job(self.last(job)).retry_of) == (0, job)

    @precondition(lambda self: self.submitted)
    @rule(n=picks, is_ended=st.booleans())
    def rewind(self, n: int, is_ended: bool) -> None:
        """Rewind a job. Its downstream is reset to the state after submit, and no other job changes."""
        jobs = [job for job in self.submitted if not is_ended or job in self.ended] or list(self.submitted)
        named = jobs[n % len(jobs)]
        members = {self.last(job) for job in self.downstream(self.submitted[named].chain)}
        before = {job: self.scheduler.job(job) for job in self.submitted}
        running = [job for job in members if before[job].status in STARTED]
        if running:
            with pytest.raises(Conflict, match="cannot rewind while jobs are running in the rewind set"):
                self.scheduler.rewind(named)
            return
        for job in members:
            if job in self.backoffs:
                self.delays[job] = None
            self.submitted[job] = msgspec.structs.replace(self.submitted[job], retries=0)
            self.ended.pop(job, None)
            self.executed.discard(job)
            self.cancelled.discard(job)
        report = self.scheduler.rewind(named)
        assert set(report.rewind_set) == {f"job-{job}" for job in members}
        assert report.root == f"job-{self.last(named)}"
        assert set(report.cancelled) == {f"job-{job}" for job in members if before[job].status is Status.CANCELLED}
        for job in self.submitted.keys() - members:
            if before[job].status in TERMINAL:
                assert self.scheduler.job(job) == before[job]

    def downstream(self, chain: JobId) -> set[JobId]:
        """Return the chains downstream, by their first jobs."""
        result, wave = {chain}, {chain}
        while wave:
            wave = {
                record.chain
                for record in self.submitted.values()
                if any(self.submitted[predecessor].chain in wave for predecessor, _ in record.edges)
            } - result
            result |= wave
        return result

    def last(self, job: JobId) -> JobId:
        return max(other for other, record in self.submitted.items() if record.chain == self.submitted[job].chain)

    def record_retries(self) -> None:
        """Record retries that the engine created. A delay tells automatic retries from manual ones."""
        newest = max(self.submitted, default=0)
        for job, before, retries in self.run_sql(
            f"SELECT id, retry_of, retries FROM job WHERE id > {newest} ORDER BY id"
        ):
            self.submitted[job] = msgspec.structs.replace(self.submitted[before], job=job, retries=retries)
            if retries:
                assert retries == self.submitted[before].retries + 1 <= self.submitted[before].max_retries
                assert before not in self.cancelled, "retried although it was cancelled"
            delay = timedelta(seconds=2 ** (retries - 1)) if retries else None
            self.delays[job] = None if delay is None else self.scheduler.clock.moment + delay
            self.backoffs.add(job)

    @rule(seconds=st.sampled_from([1, 2, 8]))
    def advance(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.run_turns()

    @precondition(lambda self: self.alive.keys() - self.confirmed)
    @rule()
    def wait_past_start_timeout(self) -> None:
        """An overdue start stays ordered: it is not withdrawn, or one run could become two."""
        waiting = self.alive.keys() - self.confirmed
        stops = set(self.scheduler.executor.stops)
        self.scheduler.clock.advance(minutes=6)
        self.scheduler.run_turns()
        self.check()
        assert waiting <= self.alive.keys()
        assert set(self.scheduler.executor.stops) == stops

    @rule(pool=st.sampled_from(sorted(POOLS.values())), size=st.integers(-1, 3))
    def set_limit(self, pool: str, size: int) -> None:
        self.limits[pool] = size
        self.scheduler.set_pools(**{pool.replace("/", "__"): size})

    @precondition(lambda self: self.reported_ends)
    @rule(n=picks, code=st.integers(0, 2))
    def repeat_an_end(self, n: int, code: int) -> None:
        run = self.pick(self.reported_ends, n)
        self.scheduler.receive(ExitReport(run=run, at=self.now, code=code), StartFailure(run=run, error="late"))

    @rule(over=st.sets(picks, max_size=2), is_order_lost=st.booleans(), is_all_lost=st.booleans())
    def crash(self, over: set[int], is_order_lost: bool, is_all_lost: bool) -> None:
        """Kill the scheduler. The last orders may not have arrived, some children may end meanwhile, and the supervisor
        may be lost too: then every run is unaccounted for."""
        runs = sorted(self.alive)
        never = {run for run in runs if self.alive[run] not in self.executed} if is_order_lost or is_all_lost else set()
        finished = {runs[n % len(runs)] for n in over if runs} - never
        lost = set(runs) if is_all_lost else never
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.inbox = [
            RunInventory(
                runs=[
                    RunReport(run=run, pid=None if run in finished else 1000 + run, has_ended=run in finished)
                    for run in runs
                    if run not in lost
                ]
            ),
            *(ExitReport(run=run, at=self.now, code=0) for run in sorted(finished - lost)),
        ]
        gone = {run: self.alive.pop(run) for run in runs if run in lost or run in finished}
        self.executed |= {job for run, job in gone.items() if run in finished - lost} | set(self.alive.values())
        self.reported_ends += sorted(finished - lost)
        was_confirmed = self.confirmed & gone.keys()
        self.confirmed |= self.alive.keys()  # a report with a pid confirms the start
        self.checked_starts = 0
        self.scheduler.start_engine()
        for run, job in gone.items():
            if run in finished and run not in lost:
                assert self.scheduler.status(job) is Status.COMPLETED
            elif run in was_confirmed:
                assert self.scheduler.job(job).reason == CRASH_RECOVERY
        stopped_again = {run for run, job in self.alive.items() if job in self.cancelled and job in self.executed}
        assert stopped_again <= set(self.scheduler.executor.stops)

    @property
    def now(self) -> float:
        return self.scheduler.clock.moment.timestamp()

    # Checks.

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.record_retries()
        jobs = self.scheduler.reader.jobs.find_all(list(self.submitted))
        statuses = {job.id: job.status for job in jobs}
        oracle = self.oracle()
        started = self.check_starts(statuses)
        oracle.check_order(started)
        self.check_ends(jobs)
        check_store(self.run_sql)
        self.check_waits(jobs, oracle)
        self.check_rest(statuses)

    def oracle(self) -> Oracle:
        statuses = {job.id: job.status for job in self.scheduler.reader.jobs.find_all(list(self.submitted))}
        return Oracle(self.submitted, statuses, self.delays, self.limits, self.scheduler.clock.moment)

    def check_starts(self, statuses: dict[JobId, Status]) -> list[SubmittedJob]:
        new = self.scheduler.executor.starts[self.checked_starts :]
        self.checked_starts += len(new)
        outcomes = chain_outcomes(self.submitted, statuses)
        for start in new:
            record = self.submitted[start.job]
            assert tuple(start.argv) == record.command  # INV-001
            assert start.job not in self.executed, "started a second time"
            assert start.job not in self.cancelled, "started although it was cancelled"
            assert start.run not in self.alive
            assert all(is_met(edge, outcomes) for edge in record.edges)
            until = self.delays[start.job]
            assert until is None or until <= self.scheduler.clock.moment
            self.alive[start.run] = start.job
        running = [self.submitted[job] for job in self.alive.values()]
        assert len({record.job for record in running}) == len(running)
        assert {record.job for record in running} == {job for job, status in statuses.items() if status in STARTED}
        assert find_conflicts(running) == []
        total = sum_demand(running)
        for start in new:
            for pool in self.submitted[start.job].pool_demand:
                assert self.limits[pool] < 0 or total[pool] <= self.limits[pool], pool
        return [self.submitted[start.job] for start in new]

    def check_ends(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.status in TERMINAL:
                outcome = (job.status, job.exit_code, job.reason)
                assert self.ended.setdefault(job.id, outcome) == outcome
                if job.status is Status.FAILED and job.current_run is not None and job.id not in self.cancelled:
                    record = self.submitted[job.id]
                    assert job.permanently_failed is (record.retries >= record.max_retries)
            else:
                assert job.id not in self.ended

    def check_waits(self, jobs: list[Job], oracle: Oracle) -> None:
        shown = {
            shown_job.id: shown_job
            for shown_job in render_jobs(self.scheduler.reader, jobs, self.scheduler.view_context)
        }
        statuses = {job.id: job.status for job in jobs}
        assert oracle.walk_queue()[0] == []  # no job could start and has not
        for record in oracle.waiting:
            assert not oracle.has_unmeetable_edge(record)
            shown_job = shown[f"job-{record.job}"]
            kind = oracle.expected_wait_kind(record)
            assert shown_job.wait is not None
            assert shown_job.wait.kind == kind
            assert shown_job.wait.detail
            stored = {"dependencies": Status.WAITING_ON_DEPS, "locks": Status.WAITING_ON_LOCKS}
            assert statuses[record.job] is stored.get(str(kind), Status.QUEUED)
            if kind == "locks":
                assert shown_job.wait.topics == [f"lock:{key}" for key in oracle.blocked_keys(record)]
            if kind == "capacity":
                pool = shown_job.wait.topics[0].removeprefix("pool:")
                assert pool in oracle.walk_queue()[1] | oracle.lacking_pools(record, sum_demand(oracle.running))

    def check_rest(self, statuses: dict[JobId, Status]) -> None:
        """Check that another turn changes nothing: the explanation is complete."""
        before = (len(self.scheduler.executor.orders), len(self.scheduler.events))
        self.scheduler.run_turns()
        assert (len(self.scheduler.executor.orders), len(self.scheduler.events)) == before
        now = self.scheduler.clock.moment
        held = (self.delays[job] for job, status in statuses.items() if status is Status.QUEUED)
        due = [until for until in held if until is not None and until > now]
        assert self.scheduler.engine.next_due == min(due, default=None)


def explore(examples: int) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=sample(examples), stateful_step_count=35, suppress_health_check=list(HealthCheck)
        ),
    )


def test_any_sequence_of_operations_upholds_the_invariants() -> None:
    explore(40)


def test_invariants_hold_when_evaluation_takes_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "EVALUATE_BATCH_SIZE", 1)
    monkeypatch.setattr(dispatch, "MAX_EVALUATE_BATCHES", 1)
    explore(20)
