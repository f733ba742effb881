"""Many lanes: a plan reads the first lanes, and more only when those cannot start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.ids import JobId
from tests.harness import Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases

MANY = 200


@pytest.fixture
def lanes(make_scheduler: Callable[..., Scheduler]) -> tuple[Scheduler, list[JobId]]:
    """Scheduler with a flow for each job, more flows than a snapshot holds."""
    scheduler = make_scheduler(**{"global": 0})
    return scheduler, [scheduler.submit(flow=f"f{n}", priority=n % 3) for n in range(MANY)]


def sort_by_rank(jobs: list[JobId]) -> list[JobId]:
    return sorted(jobs, key=lambda job: (-((job - jobs[0]) % 3), job))


def test_inv_004_order_holds_over_many_lanes(lanes: tuple[Scheduler, list[JobId]]) -> None:
    scheduler, jobs = lanes
    scheduler.set_pools(**{"global": 7})
    assert scheduler.drain() == sort_by_rank(jobs)


def test_lanes_behind_blocked_ones_start(lanes: tuple[Scheduler, list[JobId]]) -> None:
    scheduler, jobs = lanes
    order = sort_by_rank(jobs)
    held = {f"flow__f{job - jobs[0]}": 0 for job in order[:150]}
    scheduler.set_pools(**{"global": 2, **held})
    assert scheduler.started_jobs() == order[150:152]
    assert scheduler.wait_detail(order[152]) == "waiting on pool global (2/2)"
    scheduler.set_pools(**{"global": -1})
    assert len(scheduler.started_jobs()) == MANY - 150
    assert scheduler.wait_detail(order[0]) == f"waiting on pool flow/f{order[0] - jobs[0]} (0/0)"


def test_lane_has_the_rank_of_its_first_ready_job(lanes: tuple[Scheduler, list[JobId]], run_sql: SqlRunner) -> None:
    scheduler, jobs = lanes
    first = sort_by_rank(jobs)[0]
    urgent = scheduler.submit(flow=f"f{first - jobs[0]}", priority=9)
    heads = "SELECT job FROM lane WHERE ready_count > 0 ORDER BY precedence, position, created_at, job LIMIT 1"
    assert run_sql(heads) == [(urgent,)]
    scheduler.cancel(urgent)
    assert run_sql(heads) == [(first,)]


def test_new_head_of_a_lane_with_equal_count_takes_effect(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """The lane has as many ready jobs as before, but another head: the higher priority is the lock's next job."""
    blocker = scheduler.submit()
    low = scheduler.submit(locks=["repo"])
    middle = scheduler.submit(flow="f", priority=3)
    heads = "SELECT job FROM lane WHERE ready_count > 0 ORDER BY precedence, position, created_at, job"
    assert run_sql(heads) == [(middle,), (low,)]
    high = scheduler.submit(locks=["repo"], priority=5)
    assert run_sql(heads) == [(high,), (middle,)]
    assert scheduler.drain() == [blocker, high, middle, low]
