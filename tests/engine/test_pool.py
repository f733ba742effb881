"""Pools: weights, wildcards, and limits that change while jobs run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from rota.control.queries import list_unstartable, show_status
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.kernel.reservations import lock_owner
from rota.kernel.status import Status
from tests.harness import Scheduler


def test_one_job_at_a_time_by_default(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    assert scheduler.started_jobs() == jobs[:1]
    assert scheduler.wait_detail(jobs[1]) == "waiting on pool global (1/1)"


def test_unlimited_pool_starts_a_job_in_the_turn_of_its_submit(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    jobs = [scheduler.submit() for _ in range(200)]
    assert scheduler.started_jobs() == jobs


def test_pool_of_size_zero_starts_nothing(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    job = scheduler.submit()
    assert scheduler.started_jobs() == []
    assert scheduler.wait_detail(job) == "waiting on pool global (0/0)"


def test_raised_limit_starts_jobs_immediately(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit() for _ in range(10)]
    scheduler.set_pools(**{"global": 4})
    assert scheduler.started_jobs() == jobs[:4]
    scheduler.set_pools(**{"global": -1})
    assert scheduler.started_jobs() == jobs


def test_lowered_limit_drains_and_kills_nothing(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit() for _ in range(4)]
    waiting = unlimited_scheduler.submit(delay="1s")
    unlimited_scheduler.set_pools(**{"global": 2})
    unlimited_scheduler.clock.advance(seconds=1)
    for ended, running in ((0, 4), (1, 3), (2, 2)):
        if ended:
            unlimited_scheduler.end_run(jobs[ended - 1])
        assert unlimited_scheduler.reader.queue.pool_usage()[0] == {"global": running}
        assert unlimited_scheduler.wait_detail(waiting) == f"waiting on pool global ({running}/2)"
    assert unlimited_scheduler.executor.stops == []
    unlimited_scheduler.end_run(jobs[2])
    assert unlimited_scheduler.started_jobs()[-1] == waiting


def test_wildcard_gives_each_flow_its_own_pool(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "flow__b": 2})
    jobs = {flow: [scheduler.submit(flow=flow) for _ in range(3)] for flow in "abc"}
    assert scheduler.started_jobs() == [jobs["a"][0], *jobs["b"][:2], jobs["c"][0]]
    assert scheduler.wait_detail(jobs["a"][1]) == "waiting on pool flow/a (1/1)"
    assert scheduler.wait_detail(jobs["b"][2]) == "waiting on pool flow/b (2/2)"


@pytest.mark.parametrize("kind", ["type", "flow", "target", "resource"])
def test_wildcard_limits_pools_without_their_own_size(make_scheduler: Callable[..., Scheduler], kind: str) -> None:
    """Changed while jobs run: an explicit size takes precedence over the wildcard."""
    scheduler = make_scheduler(**{"global": -1, "flow__*": -1, f"{kind}__*": 1})

    def submit(name: str) -> JobId:
        return scheduler.submit(**({"pools": {f"resource/{name}": 1}} if kind == "resource" else {kind: name}))

    first, second, other = submit("a"), submit("a"), submit("b")
    assert scheduler.started_jobs() == [first, other]
    assert scheduler.wait_detail(second) == f"waiting on pool {kind}/a (1/1)"
    scheduler.set_pools(**{f"{kind}__a": 2})
    assert scheduler.started_jobs() == [first, other, second]
    scheduler.set_pools(**{f"{kind}__*": 0, f"{kind}__a": 1})
    third = submit("a")
    scheduler.end_run(first)
    assert scheduler.wait_detail(third) == f"waiting on pool {kind}/a (1/1)"
    scheduler.end_run(second)
    assert scheduler.started_jobs()[-1] == third


def test_full_flow_does_not_block_other_flows(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    busy = scheduler.submit(flow="a")
    for _ in range(100):
        scheduler.submit(flow="a")
    other = scheduler.submit(flow="b")
    assert scheduler.started_jobs() == [busy, other]


def test_con_002_one_job_at_ollama(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    first, second = (scheduler.submit(pools={"resource/ollama": 1}) for _ in range(2))
    assert scheduler.started_jobs() == [first]
    assert scheduler.wait_detail(second) == "waiting on pool resource/ollama (1/1)"


def test_heavy_job_is_not_starved_by_light_ones(unlimited_scheduler: Scheduler) -> None:
    """LESSONS Waiting: the same tail deferred each tick."""
    unlimited_scheduler.set_pools(resource__gpu=4)
    light = [unlimited_scheduler.submit(pools={"resource/gpu": 1}) for _ in range(2)]
    heavy = unlimited_scheduler.submit(pools={"resource/gpu": 4})
    behind = [unlimited_scheduler.submit(pools={"resource/gpu": 1}) for _ in range(2)]
    assert unlimited_scheduler.started_jobs() == light  # those behind would fit
    assert unlimited_scheduler.wait_detail(heavy) == "waiting on pool resource/gpu (2/4)"
    assert unlimited_scheduler.wait_detail(behind[0]) == "waiting on pool resource/gpu (2/4)"
    assert unlimited_scheduler.drain() == [*light, heavy, *behind]


def test_full_pool_closes_no_other_pool(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=1, resource__cpu=1)
    busy = unlimited_scheduler.submit(pools={"resource/gpu": 1})
    both = unlimited_scheduler.submit(pools={"resource/gpu": 1, "resource/cpu": 1})
    cpu = unlimited_scheduler.submit(pools={"resource/cpu": 1})
    assert unlimited_scheduler.started_jobs() == [busy, cpu]
    assert unlimited_scheduler.status(both) is Status.QUEUED


def test_job_that_needs_two_pools_is_passed_in_the_free_one(unlimited_scheduler: Scheduler) -> None:
    """The accepted price of not blocking a free pool: it may be passed in both pools in turn, while such jobs come."""
    unlimited_scheduler.set_pools(resource__gpu=1, resource__cpu=1)
    running, kinds = unlimited_scheduler.submit(pools={"resource/gpu": 1}), ["cpu", "gpu"]
    both = unlimited_scheduler.submit(pools={"resource/gpu": 1, "resource/cpu": 1})
    for n in range(6):
        passing = unlimited_scheduler.submit(pools={f"resource/{kinds[n % 2]}": 1})
        unlimited_scheduler.end_run(running)
        assert (unlimited_scheduler.started_jobs()[-1], unlimited_scheduler.status(both)) == (passing, Status.QUEUED)
        running = passing
    unlimited_scheduler.end_run(running)
    assert unlimited_scheduler.started_jobs()[-1] == both  # it starts as soon as no other comes


def test_weight_above_pool_size_is_refused_and_nothing_is_stored(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=4)
    with pytest.raises(InvalidInput, match="needs 9 of resource/gpu, whose size is 4") as refused:
        unlimited_scheduler.submit(pools={"resource/gpu": 9})
    assert refused.value.path == ".jobs[0].pools"
    assert unlimited_scheduler.reader.jobs.list_ids(Status, limit=1) == []


@pytest.mark.parametrize("size", [0, -1])
def test_closed_and_unlimited_pools_refuse_no_weight(unlimited_scheduler: Scheduler, size: int) -> None:
    unlimited_scheduler.set_pools(resource__gpu=size)
    job = unlimited_scheduler.submit(pools={"resource/gpu": 9})
    assert unlimited_scheduler.started_jobs() == ([] if size == 0 else [job])
    if size == 0:
        assert unlimited_scheduler.wait_detail(job) == "waiting on pool resource/gpu (0/0)"


@pytest.mark.parametrize("locks", [[], ["k"]])
def test_job_that_cannot_start_after_a_pool_shrank_lets_others_pass(
    unlimited_scheduler: Scheduler, locks: list[str]
) -> None:
    unlimited_scheduler.set_pools(resource__gpu=9)
    busy = unlimited_scheduler.submit(pools={"resource/gpu": 9})
    stuck = unlimited_scheduler.submit(pools={"resource/gpu": 9}, locks=locks)
    unlimited_scheduler.set_pools(resource__gpu=4)
    light = unlimited_scheduler.submit(pools={"resource/gpu": 1}, locks=locks)
    unlimited_scheduler.end_run(busy)
    assert unlimited_scheduler.started_jobs() == [busy, light]
    assert unlimited_scheduler.wait_detail(stuck) == "needs 9 of resource/gpu, whose size is 4"
    text = f"job-{stuck} is QUEUED: needs 9 of resource/gpu, whose size is 4; it cannot start until the pool grows"
    assert unlimited_scheduler.explain_wait(stuck)["text"] == text
    assert list_unstartable(unlimited_scheduler.reader, unlimited_scheduler.view_context.limits) == [
        f"job-{stuck} cannot start: needs 9 of resource/gpu, whose size is 4"
    ]
    unlimited_scheduler.end_run(light)
    unlimited_scheduler.set_pools(resource__gpu=9)
    assert unlimited_scheduler.started_jobs() == [busy, light, stuck]
    assert list_unstartable(unlimited_scheduler.reader, unlimited_scheduler.view_context.limits) == []


def test_reservation_that_cannot_start_after_a_pool_shrank_yields_its_locks(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=9)
    busy = unlimited_scheduler.submit(pools={"resource/gpu": 9})
    stuck = unlimited_scheduler.reserve("x", pools={"resource/gpu": 9}, locks=["k"])
    light = unlimited_scheduler.submit(locks=["k"])
    assert unlimited_scheduler.started_jobs() == [busy]
    unlimited_scheduler.set_pools(resource__gpu=4)
    assert unlimited_scheduler.started_jobs() == [busy, light]
    wait = unlimited_scheduler.show_reservation(stuck).wait
    assert wait is not None
    assert (wait.kind, wait.detail) == ("capacity", "needs 9 of resource/gpu, whose size is 4")
    unlimited_scheduler.set_pools(resource__gpu=9)
    unlimited_scheduler.end_run(light)
    unlimited_scheduler.end_run(busy)
    assert unlimited_scheduler.started_jobs() == [busy, light, lock_owner(stuck)]


def test_jobs_that_cannot_start_are_counted_and_not_ready(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=9)
    busy = unlimited_scheduler.submit(pools={"resource/gpu": 9})
    first, *_ = [unlimited_scheduler.submit(pools={"resource/gpu": 9}) for _ in range(12)]
    unlimited_scheduler.set_pools(resource__gpu=2)
    unlimited_scheduler.end_run(busy)
    lines = list_unstartable(unlimited_scheduler.reader, unlimited_scheduler.view_context.limits)
    assert lines[0] == f"job-{first} cannot start: needs 9 of resource/gpu, whose size is 2"
    assert lines[10:] == ["2 more cannot start because a pool is too small"]
    assert show_status(unlimited_scheduler.reader, unlimited_scheduler.view_context).ready == 0
    assert unlimited_scheduler.explain_wait(first)["warnings"] == []


def test_global_weight_above_its_new_size_does_not_stop_other_jobs(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 9})
    busy = scheduler.submit()
    stuck = scheduler.submit(pools={"global": 9})
    scheduler.set_pools(**{"global": 2})
    light = scheduler.submit()
    assert scheduler.started_jobs() == [busy, light]
    assert scheduler.wait_detail(stuck) == "needs 9 of global, whose size is 2"


def test_retry_above_pool_size_waits_and_is_not_refused(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=9)
    failing = unlimited_scheduler.submit(pools={"resource/gpu": 9}, retries=1)
    unlimited_scheduler.set_pools(resource__gpu=4)
    unlimited_scheduler.end_run(failing, 3)
    unlimited_scheduler.clock.advance(hours=1)
    unlimited_scheduler.run_turns()
    light = unlimited_scheduler.submit(pools={"resource/gpu": 1})
    assert unlimited_scheduler.started_jobs()[-1] == light
    assert unlimited_scheduler.wait_detail(JobId(failing + 1)) == "needs 9 of resource/gpu, whose size is 4"


def test_global_pool_accepts_weights(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    jobs = [scheduler.submit(pools={"global": 2}) for _ in range(2)]
    assert scheduler.started_jobs() == jobs[:1]
    assert scheduler.reader.queue.pool_usage()[0] == {"global": 2}


@pytest.mark.parametrize("batch", [1, 3])
def test_batch_size_limits_one_turn_and_not_the_queue(unlimited_scheduler: Scheduler, batch: int) -> None:
    """LESSONS Waiting: the same tail deferred each tick."""
    unlimited_scheduler.engine.settings = msgspec.structs.replace(unlimited_scheduler.settings, batch_size=batch)
    unlimited_scheduler.engine.is_draining = True
    jobs = [unlimited_scheduler.submit() for _ in range(7)]
    unlimited_scheduler.engine.is_draining = False
    unlimited_scheduler.engine.turn()
    assert unlimited_scheduler.started_jobs() == jobs[:batch]
    assert unlimited_scheduler.engine.has_more
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == jobs


def test_more_ready_jobs_than_a_snapshot_holds_all_start(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.engine.is_draining = True
    jobs = [unlimited_scheduler.submit() for _ in range(150)]
    unlimited_scheduler.engine.is_draining = False
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == jobs


def test_workers_are_numbered_from_one_and_reused(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit() for _ in range(3)]
    unlimited_scheduler.end_run(jobs[1])
    again = unlimited_scheduler.submit()
    run = unlimited_scheduler.job(again).run
    assert run is not None
    assert run.worker == "local/2"
