"""Capacity as in seed 004: modes, number and reason of a tick's starts, batches, and usage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from rota.control.queries import show_status
from rota.control.schemas import Pool
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput
from rota.executor.port import RunReport
from rota.ids import JobId, format_job_id
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import SubmitOutcome, submit
from rota.kernel.pools import PluginPolicy, PoolDemand, PoolInputs
from rota.kernel.status import Status
from tests.harness import Scheduler
from tests.kernel.test_start_plan import BOUNDS

pytestmark = pytest.mark.both_databases


def names(jobs: list[JobId]) -> list[str]:
    return [format_job_id(job) for job in jobs]


@pytest.mark.parametrize(("capacity", "batch", "ready", "n", "skipped", "reason"), BOUNDS)
def test_dispatch_count(
    make_scheduler: Callable[..., Scheduler], capacity: int, batch: int, ready: int, n: int, skipped: int, reason: str
) -> None:
    """`capacity` is the free capacity; below zero, more jobs run than the limit allows."""
    running = 3
    scheduler = make_scheduler(**{"global": running})
    for _ in range(running):
        scheduler.submit()
    scheduler.configure(dispatch_interval="manual")
    scheduler.set_pools(**{"global": running + capacity})
    jobs = [scheduler.submit() for _ in range(ready)]
    expected = {"skipped": skipped, "reason": reason, "blocker": None}
    assert scheduler.dry_run_tick(batch) == {"dispatched": [], "would_dispatch": names(jobs[:n]), **expected}
    assert scheduler.tick(batch) == {"dispatched": names(jobs[:n]), "would_dispatch": [], **expected}
    assert len(scheduler.started_jobs()) == running + n


@pytest.mark.parametrize(
    ("size", "mode", "started"), [(-1, "direct", 3), (0, "deferred", 0), (1, "deferred", 1), (5, "deferred", 3)]
)
def test_dispatch_modes(make_scheduler: Callable[..., Scheduler], size: int, mode: str, started: int) -> None:
    """The limit decides between the modes. Zero does not mean "no limit"."""
    scheduler = make_scheduler(**{"global": size})
    jobs = [scheduler.submit() for _ in range(3)]
    assert scheduler.started_jobs() == jobs[:started]
    assert show_status(scheduler.reader, scheduler.view_context).mode == mode


def test_direct_mode_starts_job_in_the_turn_that_stores_it(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    result = scheduler.run_request(
        partial(_submit, scheduler), lambda tx, _: [[claim.job for claim in tx.effects.plan.claims]]
    )
    assert result == scheduler.started_jobs() == [1], "started in the same call"


def test_dispatch_interval_of_three_minutes_starts_one_job_each(make_scheduler: Callable[..., Scheduler]) -> None:
    """`max_polecats = 5`, and defaults otherwise."""
    scheduler = make_scheduler(**{"global": 5})
    scheduler.configure(dispatch_interval=timedelta(minutes=3))
    jobs = [scheduler.submit() for _ in range(8)]
    counts = []
    for _ in range(7):
        scheduler.clock.advance(minutes=3)
        scheduler.run_turns()
        counts.append(len(scheduler.started_jobs()))
    assert counts == [1, 2, 3, 4, 5, 5, 5]
    scheduler.end_run(jobs[0])
    assert len(scheduler.started_jobs()) == 5
    scheduler.clock.advance(minutes=3)
    scheduler.run_turns()
    assert scheduler.started_jobs() == jobs[:6]


def test_batch_size_and_spawn_delay_as_in_the_seed(make_scheduler: Callable[..., Scheduler]) -> None:
    """`batch_size 2`, `spawn_delay 3s`: two jobs a tick, three seconds apart, without sleeping."""
    scheduler = make_scheduler(**{"global": 5})
    scheduler.configure(dispatch_interval=timedelta(minutes=3), batch_size=2, spawn_delay=timedelta(seconds=3))
    jobs = [scheduler.submit() for _ in range(5)]
    starts: dict[int, int] = {}
    for second in range(0, 600, 3):
        for job in scheduler.started_jobs():
            starts.setdefault(job, second)
        scheduler.clock.advance(seconds=3)
        scheduler.run_turns()
    first = starts[jobs[0]]
    assert [starts[job] - first for job in jobs] == [0, 3, 180, 183, 360]


def test_all_running_jobs_count_however_they_started(make_scheduler: Callable[..., Scheduler]) -> None:
    """Jobs started in direct mode, by a tick, or adopted count alike."""
    scheduler = make_scheduler(**{"global": -1})
    direct = [scheduler.submit() for _ in range(2)]
    scheduler.set_pools(**{"global": 3})
    by_event = scheduler.submit()
    waiting = scheduler.submit()
    assert scheduler.started_jobs() == [*direct, by_event]
    assert scheduler.wait_detail(waiting) == "waiting on pool global (3/3)"
    assert show_status(scheduler.reader, scheduler.view_context).pools["global"] == Pool(size=3, used=3)


def test_capacity_below_zero_is_reported_and_starts_nothing(make_scheduler: Callable[..., Scheduler]) -> None:
    """LESSONS Dispatch: nothing ran for 12 h (capacity 5−7=−2) and nothing was logged."""
    scheduler = make_scheduler(**{"global": 7})
    running = [scheduler.submit() for _ in range(7)]
    scheduler.set_pools(**{"global": 5})
    waiting = scheduler.submit()
    assert scheduler.tick() == {
        "dispatched": [],
        "would_dispatch": [],
        "skipped": 1,
        "reason": "capacity",
        "blocker": None,
    }
    assert scheduler.wait_detail(waiting) == "waiting on pool global (7/5)"
    for job in running[:2]:
        scheduler.end_run(job)
    assert scheduler.status(waiting) is Status.QUEUED
    scheduler.end_run(running[2])
    assert scheduler.started_jobs()[-1] == waiting
    assert scheduler.executor.stops == []


def test_waiting_jobs_are_not_ready(make_scheduler: Callable[..., Scheduler]) -> None:
    """Only ready jobs count: a job that waits for something else does not."""
    scheduler = make_scheduler(**{"global": 1})
    scheduler.configure(dispatch_interval="manual")
    first = scheduler.submit()
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    assert scheduler.dry_run_tick(9) == {
        "dispatched": [],
        "would_dispatch": names([first]),
        "skipped": 0,
        "reason": "capacity",
        "blocker": None,
    }
    scheduler.set_pools(**{"global": 2})
    assert scheduler.tick(9)["reason"] == "ready"


def _submit(scheduler: Scheduler, tx: Transaction) -> SubmitOutcome:
    environment = DefaultEnvironment(cwd="/", variables={})
    return submit(tx, [Submission(command=["true"])], environment, actor="tester")


# Three ways to limit concurrency, each of them a configuration.


def _running(scheduler: Scheduler, jobs: dict[str, JobId]) -> list[str]:
    return [name for name, job in jobs.items() if scheduler.status(job) is Status.DISPATCHED]


def test_option_a_global_limit(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler()
    jobs = {name: scheduler.submit() for name in ("Job1", "Job2", "Job3")}
    for name, job in jobs.items():
        assert _running(scheduler, jobs) == [name]
        scheduler.end_run(job)


def test_option_b_limit_per_type(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "type__story": 1, "type__research": 1})
    kinds = {"S": "story", "R": "research"}
    jobs = {name: scheduler.submit(type=kinds[name[0]]) for name in ("S1", "S2", "R1", "R2", "S3")}
    assert _running(scheduler, jobs) == ["S1", "R1"]
    scheduler.end_run(jobs["R1"])
    assert _running(scheduler, jobs) == ["S1", "R2"]
    scheduler.end_run(jobs["S1"])
    assert _running(scheduler, jobs) == ["S2", "R2"]
    scheduler.end_run(jobs["R2"])
    assert _running(scheduler, jobs) == ["S2"]
    scheduler.end_run(jobs["S2"])
    assert _running(scheduler, jobs) == ["S3"]


def test_option_c_limit_per_resource(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__ollama": 1, "resource__remote": 2})
    resources = {"J1": "ollama", "J2": "remote", "J3": "ollama", "J4": "remote", "J5": "remote"}
    jobs = {name: scheduler.submit(pools={f"resource/{resource}": 1}) for name, resource in resources.items()}
    assert _running(scheduler, jobs) == ["J1", "J2", "J4"]
    scheduler.end_run(jobs["J2"])
    assert _running(scheduler, jobs) == ["J1", "J4", "J5"]
    scheduler.end_run(jobs["J1"])
    assert _running(scheduler, jobs) == ["J3", "J4", "J5"]


def test_policy_that_exits_is_refused_and_harms_no_other_job(make_scheduler: Callable[..., Scheduler]) -> None:
    class ExitingPolicy:
        def pool_demand(self, job: PoolInputs) -> PoolDemand:
            raise SystemExit(3)

    scheduler = make_scheduler()
    scheduler.configure(policy=PluginPolicy("night", ExitingPolicy()))
    with pytest.raises(InvalidInput, match="the concurrency policy night failed: SystemExit"):
        scheduler.submit()


def test_remaining_starts_of_a_tick_survive_restart(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    scheduler.configure(dispatch_interval="manual", batch_size=3, spawn_delay=timedelta(seconds=2))
    jobs = [scheduler.submit() for _ in range(4)]
    assert scheduler.tick(3)["would_dispatch"] == names(jobs[1:3])
    scheduler.crash([RunReport(run=scheduler.find_run(jobs[0]), pid=1)])
    for _ in range(3):
        scheduler.clock.advance(seconds=2)
        scheduler.run_turns()
    assert scheduler.started_jobs() == jobs[1:3]


def test_why_names_jobs_that_use_the_pool(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 4, "resource__gpu": 1})
    first = scheduler.submit(pools={"resource/gpu": 1})
    second = scheduler.submit(pools={"resource/gpu": 1})
    third, heavy, light = scheduler.submit(), scheduler.submit(pools={"global": 4}), scheduler.submit()
    assert scheduler.started_jobs() == [first, third]
    assert scheduler.wait_detail(second) == "waiting on pool resource/gpu (1/1)", "later jobs close no pool to it"
    text = scheduler.explain_wait(light)["text"]
    assert "waiting on pool global (2/4), used by job-1, job-3; job-4 is before it and needs more room" in text
    shared = [scheduler.submit(locks=[lock], pools={"global": 1}) for lock in ("k:shared", "k", "k:shared")]
    scheduler.set_pools(**{"global": -1})
    assert "k (held by" in scheduler.explain_wait(shared[1])["text"]
    assert "k (others are before it)" in scheduler.explain_wait(shared[2])["text"]
    assert heavy in scheduler.started_jobs()
