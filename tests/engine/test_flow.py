"""Flows: each has its cap, and a flow whose head cannot start continues with the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.ids import JobId
from rota.kernel.facts import BranchHead
from tests.harness import Scheduler

Block = Callable[[Scheduler], JobId]


def behind_a_lock(scheduler: Scheduler) -> JobId:
    scheduler.submit(locks=["key"])
    return scheduler.submit(flow="f", locks=["key"])


def behind_a_dependency(scheduler: Scheduler) -> JobId:
    return scheduler.submit(flow="f", after=[scheduler.submit()])


def behind_its_phase(scheduler: Scheduler) -> JobId:
    scheduler.submit(locks=["phase/p/f"])
    return scheduler.submit(flow="f", phase="p")


def behind_a_pin(scheduler: Scheduler) -> JobId:
    head = BranchHead("/repo/.git", "main")
    scheduler.probe.values[head] = "a" * 40
    return scheduler.submit(flow="f", pin="main@" + "b" * 40)


def delayed(scheduler: Scheduler) -> JobId:
    return scheduler.submit(flow="f", delay="1h")


def behind_a_pool(scheduler: Scheduler) -> JobId:
    scheduler.submit(pools={"resource/ollama": 1})
    return scheduler.submit(flow="f", pools={"resource/ollama": 1})


@pytest.mark.parametrize(
    "block", [behind_a_lock, behind_a_dependency, behind_its_phase, behind_a_pin, delayed, behind_a_pool]
)
@pytest.mark.parametrize("priority", [0, 9])
def test_blocked_head_does_not_block_the_rest_of_its_flow(
    make_scheduler: Callable[..., Scheduler], block: Block, priority: int
) -> None:
    scheduler = make_scheduler(**{"global": 10})
    head = block(scheduler)
    rest = [scheduler.submit(flow="f", priority=-priority) for _ in range(3)]
    for job in rest:
        assert scheduler.started_jobs()[-1] == job
        scheduler.end_run(job)
    assert head not in scheduler.started_jobs()


def test_flow_runs_one_job_at_a_time_by_default(make_scheduler: Callable[..., Scheduler]) -> None:
    """Without a configured size, the pool of a flow has the size 1."""
    scheduler = make_scheduler(**{"global": 10, "flow__review": 2})
    jobs = {flow: [scheduler.submit(flow=flow) for _ in range(3)] for flow in ("implement", "review", "research")}
    assert scheduler.started_jobs() == [jobs["implement"][0], *jobs["review"][:2], jobs["research"][0]]
    scheduler.end_run(jobs["implement"][0])
    assert scheduler.started_jobs()[-1] == jobs["implement"][1]
