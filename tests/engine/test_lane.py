"""Many lanes: the plan sees the first of them, and more only when those are held up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Raw, Scheduler
from rota.ids import JobId

MANY = 200


@pytest.fixture
def many(make_scheduler: Callable[..., Scheduler]) -> tuple[Scheduler, list[JobId]]:
    """A flow for each job, more of them than a snapshot holds."""
    scheduler = make_scheduler(**{"global": 0})
    return scheduler, [scheduler.submit(flow=f"f{n}", priority=n % 3) for n in range(MANY)]


def in_order(jobs: list[JobId]) -> list[JobId]:
    return sorted(jobs, key=lambda job: (-((job - jobs[0]) % 3), job))


def test_inv_004_the_order_holds_over_many_lanes(many: tuple[Scheduler, list[JobId]]) -> None:
    scheduler, jobs = many
    scheduler.set_pools(**{"global": 7})
    assert scheduler.drain() == in_order(jobs)


def test_lanes_behind_those_that_are_held_up_are_found(many: tuple[Scheduler, list[JobId]]) -> None:
    scheduler, jobs = many
    order = in_order(jobs)
    held = {f"flow__f{job - jobs[0]}": 0 for job in order[:150]}
    scheduler.set_pools(**{"global": 2, **held})
    assert scheduler.started() == order[150:152]
    assert scheduler.detail(order[152]) == "waiting on pool global (2/2)"
    scheduler.set_pools(**{"global": -1})
    assert len(scheduler.started()) == MANY - 150
    assert scheduler.detail(order[0]) == f"waiting on pool flow/f{order[0] - jobs[0]} (0/0)"


def test_a_lane_keeps_the_rank_of_its_first_ready_job(many: tuple[Scheduler, list[JobId]], raw: Raw) -> None:
    scheduler, jobs = many
    first = in_order(jobs)[0]
    urgent = scheduler.submit(flow=f"f{first - jobs[0]}", priority=9)
    heads = "SELECT job FROM lane WHERE ready > 0 ORDER BY precedence, position, created_at, job LIMIT 1"
    assert raw(heads) == [(urgent,)]
    scheduler.cancel(urgent)
    assert raw(heads) == [(first,)]


def test_a_lane_where_one_comes_and_another_goes_has_another_first(scheduler: Scheduler, raw: Raw) -> None:
    """As many as before, and yet not the same: the higher priority takes the turn of the lock."""
    blocker = scheduler.submit()
    low = scheduler.submit(locks=["repo"])
    middle = scheduler.submit(flow="f", priority=3)
    heads = "SELECT job FROM lane WHERE ready > 0 ORDER BY precedence, position, created_at, job"
    assert raw(heads) == [(middle,), (low,)]
    high = scheduler.submit(locks=["repo"], priority=5)
    assert raw(heads) == [(high,), (middle,)]
    assert scheduler.drain() == [blocker, high, middle, low]
