"""State machine of pools and locks: a start never exceeds a limit, and no job is passed for longer than documented.

After each step, for every start of that step in its order:

- no pool is above its size as it is then, and no key is held against another;
- once a job is the first that does not fit, no job behind it starts that uses a pool in which it lacks capacity: it
    waits only for jobs that ran before it became the first;
- a job for which a pool is too small is refused, or, after the pool shrank, keeps no turn;
- once a job waits for an exclusive lock, no later job that needs that key starts before it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from rota.db.sqlite.store import SqliteStore
from rota.errors import InvalidInput
from rota.executor.port import RunReport, StartFailure
from rota.ids import JobId
from rota.kernel.pools import PoolSizes
from rota.kernel.status import STARTED, WAITING
from tests.harness import Scheduler
from tests.sample import sample

MEMORY = Path("/dev/shm")
POOLS = ("global", "flow/a", "flow/b", "type/t", "resource/gpu", "resource/cpu")
LINES = (*POOLS, "flow/*", "resource/*")
picks = st.integers(0, 1000)
modes = st.sampled_from(["exclusive", "shared"])


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    priority: int
    flow: str | None
    type: str | None
    pools: dict[str, int]
    locks: dict[str, str]


requests = st.builds(
    JobRequest,
    priority=st.sampled_from([0, 0, 0, 3, -3]),
    flow=st.sampled_from([None, "a", "b"]),
    type=st.sampled_from([None, "t"]),
    pools=st.dictionaries(st.sampled_from(["global", "resource/gpu", "resource/cpu"]), st.integers(1, 4), max_size=2),
    locks=st.just({}) | st.dictionaries(st.sampled_from("ab"), modes, min_size=1, max_size=2),
)


class QueuedRequest(msgspec.Struct, frozen=True, kw_only=True):
    rank: tuple[int, int]
    pool_demand: dict[str, int]
    locks: dict[str, str]

    def conflicting_keys(self, other: QueuedRequest) -> set[str]:
        return {
            key for key in self.locks.keys() & other.locks.keys() if "exclusive" in (self.locks[key], other.locks[key])
        }


class PoolMachine(RuleBasedStateMachine):
    pacing: Literal["events", "ticks"] = "events"

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="rota-pools-", dir=MEMORY if MEMORY.is_dir() else None))
        self.queued: dict[JobId, QueuedRequest] = {}
        self.running: list[JobId] = []
        self.checked = 0
        self.first: dict[JobId, set[str]] = {}
        """Jobs that are the first that does not fit, with the pools in which they lack capacity."""
        self.contending: set[JobId] = set()
        """Jobs in the queues of their locks."""

    @initialize(sizes=st.dictionaries(st.sampled_from(LINES), st.integers(-1, 4)))
    def open(self, sizes: dict[str, int]) -> None:
        self.sizes = {"global": 2, "flow/*": 1, "resource/ollama": 1, **sizes}
        self.scheduler = Scheduler(SqliteStore(self.home / "rota.db"), self.home, self.sizes)
        if self.pacing == "ticks":
            self.scheduler.configure(dispatch_interval=timedelta(seconds=1), batch_size=2)

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.close()
        shutil.rmtree(self.home)

    @rule(request=requests)
    def submit(self, request: JobRequest) -> None:
        fields = {name: value for name, value in (("flow", request.flow), ("type", request.type)) if value is not None}
        if self.is_oversized(request.pools):
            with pytest.raises(InvalidInput, match="it could never start"):
                self.scheduler.submit(pools=request.pools, **fields)
            return
        job = self.scheduler.submit(
            priority=request.priority,
            pools=request.pools,
            locks=[f"{key}:{mode}" for key, mode in request.locks.items()],
            **fields,
        )
        demand = dict(self.scheduler.job(job).demand)
        self.queued[job] = QueuedRequest(rank=(-request.priority, job), pool_demand=demand, locks=request.locks)

    @precondition(lambda self: self.running)
    @rule(n=picks, code=st.sampled_from([0, 0, 1]))
    def end(self, n: int, code: int) -> None:
        job = self.running.pop(n % len(self.running))
        self.scheduler.end_run(job, code)
        last = self.scheduler.reader.chains.last_job(job)
        assert last is not None
        self.queued[last[0]] = self.queued[job]  # a retry has the same place

    @precondition(lambda self: self.running)
    @rule(n=picks)
    def fail_to_start(self, n: int) -> None:
        job = self.running.pop(n % len(self.running))
        self.forget(job)
        self.scheduler.receive(StartFailure(run=self.scheduler.find_run(job), error="no"))

    @precondition(lambda self: self.queued)
    @rule(n=picks)
    def cancel(self, n: int) -> None:
        job = list(self.queued)[n % len(self.queued)]
        if self.scheduler.status(job) in WAITING:
            self.scheduler.cancel(job)

    @rule(pool=st.sampled_from(LINES), size=st.integers(-1, 4))
    def set_limit(self, pool: str, size: int) -> None:
        """Change a size. The first job that did not fit may fit, or lack capacity elsewhere."""
        self.sizes[pool] = size
        self.first.clear()
        self.contending = {job for job in self.contending if not self.is_oversized(self.queued[job].pool_demand)}
        self.scheduler.set_pools(**{pool.replace("/", "__"): size})

    @rule(seconds=st.sampled_from([1, 5]))
    def wait(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.run_turns()

    @rule(batch=st.integers(1, 4))
    def tick(self, batch: int) -> None:
        expected = self.scheduler.dry_run_tick(batch)
        result = self.scheduler.tick(batch)
        assert (result["dispatched"], result["skipped"], result["reason"]) == (
            expected["would_dispatch"],
            expected["skipped"],
            expected["reason"],
        )

    @rule()
    def crash(self) -> None:
        runs = [self.scheduler.find_run(job) for job in self.running]
        starts = self.scheduler.executor.starts
        self.scheduler.crash([RunReport(run=run, pid=1000 + run, has_ended=False) for run in runs])
        self.scheduler.executor.orders[:0] = starts  # `find_run` reads them
        self.checked = len(starts)
        new = self.scheduler.executor.starts[self.checked :]
        self.check(new_starts=[start.job for start in new])

    def forget(self, job: JobId) -> None:
        """Forget the turn of a job whose start failed: it holds none during its delay."""
        self.first.pop(job, None)
        self.contending.discard(job)

    @invariant()
    def check_starts(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.check([start.job for start in self.scheduler.executor.starts[self.checked :]])
        self.remember()

    def check(self, new_starts: list[JobId]) -> None:
        self.checked = len(self.scheduler.executor.starts)
        limits = PoolSizes(self.sizes)
        for job in new_starts:
            started = self.queued[job]
            for other in self.running:
                assert not started.conflicting_keys(self.queued[other]), f"{job} and {other} hold one key"
            self.running.append(job)
            for name in started.pool_demand:
                size = limits.size(name)
                assert size is None or self.usage(name) <= size, f"{job} takes {name} to {self.usage(name)}/{size}"
            self.check_passed(job, started)
            self.first.pop(job, None)
            self.contending.discard(job)

    def check_passed(self, job: JobId, started: QueuedRequest) -> None:
        for waiting, lacking in self.first.items():
            if waiting != job and self.is_waiting(waiting) and self.queued[waiting].rank < started.rank:
                passed = {name for name in lacking & started.pool_demand.keys() if self.lacked(waiting, name, started)}
                assert not passed, f"{waiting} was passed by {job} in {passed}"
        for waiting in self.contending:
            other = self.queued[waiting]
            if waiting != job and self.is_waiting(waiting) and other.rank < started.rank:
                assert not other.conflicting_keys(started), (
                    f"{waiting} waits for {other.conflicting_keys(started)} and was passed by {job}"
                )

    def lacked(self, waiting: JobId, name: str, started: QueuedRequest) -> bool:
        """Return whether the waiting job lacked capacity in a pool just before the other job started."""
        size = PoolSizes(self.sizes).size(name)
        used = self.usage(name) - started.pool_demand[name]
        return size is not None and used + self.queued[waiting].pool_demand[name] > size

    def usage(self, name: str) -> int:
        return sum(self.queued[job].pool_demand.get(name, 0) for job in self.running)

    def is_oversized(self, demand: Mapping[str, int]) -> bool:
        limits = PoolSizes(self.sizes)
        return any(0 < (limits.size(name) or 0) < weight for name, weight in demand.items())

    def is_waiting(self, job: JobId) -> bool:
        return self.scheduler.status(job) in WAITING

    def remember(self) -> None:
        """Record the first jobs that do not fit, and the jobs in the queues of locks."""
        limits = PoolSizes(self.sizes)
        jobs = {job.id: job for job in self.scheduler.reader.jobs.find_all(list(self.queued))}
        for job in self.running:
            assert jobs[job].status in STARTED
        waiting = sorted((job for job in jobs if jobs[job].status in WAITING), key=lambda job: self.queued[job].rank)
        able = [job for job in waiting if not self.is_oversized(self.queued[job].pool_demand)]
        due = [job for job in able if (at := jobs[job].not_before) is None or at <= self.scheduler.clock.moment]
        self.contending = {job for job in due if self.queued[job].locks}
        closed: set[str] = set()
        self.first = {}
        for job in due:
            if any(self.queued[job].conflicting_keys(self.queued[other]) for other in self.running) or any(
                self.queued[job].conflicting_keys(self.queued[other])
                for other in due
                if self.queued[other].rank < self.queued[job].rank
            ):
                continue
            demand = self.queued[job].pool_demand
            lacking = {
                name
                for name, weight in demand.items()
                if (size := limits.size(name)) is not None and self.usage(name) + weight > size
            }
            if lacking and not closed & demand.keys():
                self.first[job] = lacking
                closed |= lacking


class TickedMachine(PoolMachine):
    pacing = "ticks"


def explore(machine: type[PoolMachine], examples: int) -> None:
    run_machine(
        machine,
        settings=settings(
            max_examples=sample(examples), stateful_step_count=30, suppress_health_check=list(HealthCheck)
        ),
    )


def test_no_start_exceeds_a_pool_or_lock_and_no_job_is_passed() -> None:
    """LESSONS Waiting: shared holders starve an exclusive waiter. LESSONS Store: cap lowered mid-run was ignored."""
    explore(PoolMachine, 30)


def test_ticks_exceed_no_pool_or_lock_and_pass_no_job() -> None:
    explore(TickedMachine, 15)


def test_heavy_job_waits_only_for_jobs_that_ran_before_it(unlimited_scheduler: Scheduler) -> None:
    """The bound: with endless light jobs, it starts with the last end of those that ran when it became the first."""
    unlimited_scheduler.set_pools(resource__gpu=4)
    light = [unlimited_scheduler.submit(pools={"resource/gpu": 1}) for _ in range(4)]
    heavy = unlimited_scheduler.submit(pools={"resource/gpu": 4})
    for job in light:
        assert heavy not in unlimited_scheduler.started_jobs()
        unlimited_scheduler.submit(pools={"resource/gpu": 1})
        unlimited_scheduler.end_run(job)
    assert unlimited_scheduler.started_jobs() == [*light, heavy]


def test_exclusive_waiter_waits_only_for_earlier_holders(unlimited_scheduler: Scheduler) -> None:
    shared = [unlimited_scheduler.submit(locks=["repo:shared"]) for _ in range(4)]
    exclusive = unlimited_scheduler.submit(locks=["repo"])
    for job in shared:
        assert exclusive not in unlimited_scheduler.started_jobs()
        unlimited_scheduler.submit(locks=["repo:shared"])
        unlimited_scheduler.end_run(job)
    assert unlimited_scheduler.started_jobs() == [*shared, exclusive]
