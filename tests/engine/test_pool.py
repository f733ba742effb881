"""Pools: weights, wildcards, limits that change while jobs run."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from harness import Scheduler
from rota.core.status import Status
from rota.ids import JobId


def test_one_job_at_a_time_by_default(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    assert scheduler.started() == jobs[:1]
    assert scheduler.detail(jobs[1]) == "waiting on pool global (1/1)"


def test_minus_one_starts_a_job_in_the_call_that_submits_it(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    jobs = [scheduler.submit() for _ in range(200)]
    assert scheduler.started() == jobs


def test_nought_lets_nothing_start(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    job = scheduler.submit()
    assert scheduler.started() == []
    assert scheduler.detail(job) == "waiting on pool global (0/0)"


def test_a_raised_limit_dispatches_at_once(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit() for _ in range(10)]
    scheduler.set_pools(**{"global": 4})
    assert scheduler.started() == jobs[:4]
    scheduler.set_pools(**{"global": -1})
    assert scheduler.started() == jobs


def test_a_lowered_limit_drains_and_kills_nothing(wide: Scheduler) -> None:
    jobs = [wide.submit() for _ in range(4)]
    waiting = wide.submit(delay="1s")
    wide.set_pools(**{"global": 2})
    wide.clock.advance(seconds=1)
    for ended, running in ((0, 4), (1, 3), (2, 2)):
        if ended:
            wide.end(jobs[ended - 1])
        assert wide.reader.used()[0] == {"global": running}
        assert wide.detail(waiting) == f"waiting on pool global ({running}/2)"
    assert wide.executor.stops == []
    wide.end(jobs[2])
    assert wide.started()[-1] == waiting


def test_each_flow_has_a_pool_of_its_own_by_the_wildcard(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "flow__b": 2})
    jobs = {flow: [scheduler.submit(flow=flow) for _ in range(3)] for flow in "abc"}
    assert scheduler.started() == [jobs["a"][0], *jobs["b"][:2], jobs["c"][0]]
    assert scheduler.detail(jobs["a"][1]) == "waiting on pool flow/a (1/1)"
    assert scheduler.detail(jobs["b"][2]) == "waiting on pool flow/b (2/2)"


@pytest.mark.parametrize("kind", ["type", "flow", "target", "resource"])
def test_a_wildcard_limits_each_pool_of_its_kind_that_has_no_line(
    make_scheduler: Callable[..., Scheduler], kind: str
) -> None:
    """Changed while they run: a line of its own is then above the wildcard."""
    scheduler = make_scheduler(**{"global": -1, "flow__*": -1, f"{kind}__*": 1})

    def submit(name: str) -> JobId:
        return scheduler.submit(**({"pools": {f"resource/{name}": 1}} if kind == "resource" else {kind: name}))

    first, second, other = submit("a"), submit("a"), submit("b")
    assert scheduler.started() == [first, other]
    assert scheduler.detail(second) == f"waiting on pool {kind}/a (1/1)"
    scheduler.set_pools(**{f"{kind}__a": 2})
    assert scheduler.started() == [first, other, second]
    scheduler.set_pools(**{f"{kind}__*": 0, f"{kind}__a": 1})
    third = submit("a")
    scheduler.end(first)
    assert scheduler.detail(third) == f"waiting on pool {kind}/a (1/1)"
    scheduler.end(second)
    assert scheduler.started()[-1] == third


def test_a_full_flow_in_front_does_not_hold_back_the_others(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    busy = scheduler.submit(flow="a")
    for _ in range(100):
        scheduler.submit(flow="a")
    other = scheduler.submit(flow="b")
    assert scheduler.started() == [busy, other]


def test_con_002_one_job_at_ollama(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1})
    first, second = (scheduler.submit(pools={"resource/ollama": 1}) for _ in range(2))
    assert scheduler.started() == [first]
    assert scheduler.detail(second) == "waiting on pool resource/ollama (1/1)"


def test_weights_are_all_or_nothing_and_a_heavy_job_is_not_starved(wide: Scheduler) -> None:
    """LESSONS Waiting: the same tail deferred each tick."""
    wide.set_pools(resource__gpu=4)
    light = [wide.submit(pools={"resource/gpu": 1}) for _ in range(2)]
    heavy = wide.submit(pools={"resource/gpu": 4})
    behind = [wide.submit(pools={"resource/gpu": 1}) for _ in range(2)]
    assert wide.started() == light  # there would be room for those behind
    assert wide.detail(heavy) == "waiting on pool resource/gpu (2/4)"
    assert wide.detail(behind[0]) == "waiting on pool resource/gpu (2/4)"
    assert wide.drain() == [*light, heavy, *behind]


def test_a_closed_pool_closes_no_other(wide: Scheduler) -> None:
    wide.set_pools(resource__gpu=1, resource__cpu=1)
    busy = wide.submit(pools={"resource/gpu": 1})
    both = wide.submit(pools={"resource/gpu": 1, "resource/cpu": 1})
    cpu = wide.submit(pools={"resource/cpu": 1})
    assert wide.started() == [busy, cpu]
    assert wide.status(both) is Status.QUEUED


def test_who_wants_two_pools_is_passed_in_the_one_where_it_had_room(wide: Scheduler) -> None:
    """So it is settled, and its price: in turn in the one and in the other, for as long as such jobs come."""
    wide.set_pools(resource__gpu=1, resource__cpu=1)
    holds, free = wide.submit(pools={"resource/gpu": 1}), ["cpu", "gpu"]
    both = wide.submit(pools={"resource/gpu": 1, "resource/cpu": 1})
    for n in range(6):
        passing = wide.submit(pools={f"resource/{free[n % 2]}": 1})
        wide.end(holds)
        assert (wide.started()[-1], wide.status(both)) == (passing, Status.QUEUED)
        holds = passing
    wide.end(holds)
    assert wide.started()[-1] == both  # and it is the next as soon as none comes


def test_a_weight_above_the_size_waits_until_the_pool_grows(wide: Scheduler) -> None:
    wide.set_pools(resource__gpu=1)
    told = wide.submitted(pools={"resource/gpu": 3})
    assert told.warnings == ["pool resource/gpu has size 1, the job draws 3: it cannot start until the pool grows"]
    assert wide.why(told.jobs[0])["warnings"] == told.warnings
    assert wide.started() == []
    wide.set_pools(resource__gpu=3)
    assert wide.started() == [told.jobs[0]]


def test_global_can_be_drawn_by_weight(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    jobs = [scheduler.submit(pools={"global": 2}) for _ in range(2)]
    assert scheduler.started() == jobs[:1]
    assert scheduler.reader.used()[0] == {"global": 2}


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_size_bounds_one_turn_and_not_the_queue(wide: Scheduler, batch: int) -> None:
    """LESSONS Waiting: the same tail deferred each tick."""
    wide.engine.settings = msgspec.structs.replace(wide.settings, batch_size=batch)
    wide.engine.is_draining = True
    jobs = [wide.submit() for _ in range(7)]
    wide.engine.is_draining = False
    wide.engine.turn()
    assert wide.started() == jobs[:batch]
    assert wide.engine.has_more
    wide.turn()
    assert wide.started() == jobs


def test_more_ready_jobs_than_one_snapshot_shows_all_start(wide: Scheduler) -> None:
    wide.engine.is_draining = True
    jobs = [wide.submit() for _ in range(150)]
    wide.engine.is_draining = False
    wide.turn()
    assert wide.started() == jobs


def test_workers_are_numbered_from_one_and_used_again(wide: Scheduler) -> None:
    jobs = [wide.submit() for _ in range(3)]
    wide.end(jobs[1])
    again = wide.submit()
    run = wide.job(again).run
    assert run is not None
    assert run.worker == "local/2"
