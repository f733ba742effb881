"""Locks: admission, order and starvation (LESSONS, waiting and fairness)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.executor.port import RunReport, StartFailure
from rota.jobs.schemas import LockView
from rota.kernel.locks import LockFront
from rota.kernel.status import Status
from tests.engine.schedule_harness import AdjustableClock
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases


def test_exclusive_lock_has_one_holder_and_passes_on_in_order(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit(locks=["repo"]) for _ in range(4)]
    assert unlimited_scheduler.started_jobs() == jobs[:1]
    assert unlimited_scheduler.drain() == jobs


def test_shared_holders_run_together(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit(locks=["repo:shared"]) for _ in range(4)]
    assert unlimited_scheduler.started_jobs() == jobs


def test_shared_holders_do_not_starve_exclusive_waiter(unlimited_scheduler: Scheduler) -> None:
    """LESSONS Waiting: shared holders starve an exclusive waiter."""
    first = unlimited_scheduler.submit(locks=["repo:shared"])
    exclusive = unlimited_scheduler.submit(locks=["repo"])
    stream = [unlimited_scheduler.submit(locks=["repo:shared"]) for _ in range(3)]
    assert unlimited_scheduler.started_jobs() == [first]
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.started_jobs() == [first, exclusive]
    unlimited_scheduler.end_run(exclusive)
    assert unlimited_scheduler.started_jobs() == [first, exclusive, *stream]


def test_shared_waiters_start_together_up_to_the_next_exclusive_one(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    shared = [unlimited_scheduler.submit(locks=["repo:shared"]) for _ in range(3)]
    exclusive = unlimited_scheduler.submit(locks=["repo"])
    late = unlimited_scheduler.submit(locks=["repo:shared"])
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.started_jobs() == [holder, *shared]
    assert [unlimited_scheduler.status(job) for job in (exclusive, late)] == [Status.WAITING_ON_LOCKS] * 2


def test_earlier_job_waiting_for_a_pool_keeps_its_turn(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=1)
    busy = unlimited_scheduler.submit(pools={"resource/gpu": 1})
    first = unlimited_scheduler.submit(locks=["repo"], pools={"resource/gpu": 1})
    second = unlimited_scheduler.submit(locks=["repo"])
    assert unlimited_scheduler.started_jobs() == [busy]
    assert unlimited_scheduler.wait_detail(first) == "waiting on pool resource/gpu (1/1)"
    assert unlimited_scheduler.wait_detail(second) == "waiting on locks"
    assert unlimited_scheduler.drain() == [busy, first, second]


def test_job_held_at_an_earlier_gate_has_no_turn(unlimited_scheduler: Scheduler) -> None:
    slow = unlimited_scheduler.submit()
    waiting = unlimited_scheduler.submit(after=[slow], locks=["repo"])
    delayed = unlimited_scheduler.submit(delay="1h", locks=["repo"])
    second = unlimited_scheduler.submit(locks=["repo"])
    assert unlimited_scheduler.started_jobs() == [slow, second]
    assert unlimited_scheduler.status(waiting) is Status.WAITING_ON_DEPS
    assert unlimited_scheduler.status(delayed) is Status.QUEUED


def test_job_with_higher_priority_takes_the_turn_of_a_ready_one(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    low = scheduler.submit(locks=["repo"])
    assert scheduler.status(low) is Status.QUEUED
    high = scheduler.submit(locks=["repo"], priority=5)
    assert scheduler.status(low) is Status.WAITING_ON_LOCKS
    assert scheduler.drain() == [blocker, high, low]


def test_several_keys_are_taken_all_or_nothing(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit(locks=["a"])
    both = unlimited_scheduler.submit(locks=["a", "b"])
    third = unlimited_scheduler.submit(locks=["b"])
    assert unlimited_scheduler.started_jobs() == [first]  # `both` has its turn at b, although b is not held
    assert unlimited_scheduler.drain() == [first, both, third]


def test_keys_in_opposite_order_do_not_deadlock(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit(locks=["a", "b"]), unlimited_scheduler.submit(locks=["b", "a"])]
    assert unlimited_scheduler.drain() == jobs


def test_end_frees_only_its_own_locks(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: finishing a parallel run freed a phase lock that it did not own."""
    holder = unlimited_scheduler.submit(locks=["repo"])
    other = unlimited_scheduler.submit()
    waiting = unlimited_scheduler.submit(locks=["repo"])
    unlimited_scheduler.end_run(other)
    assert unlimited_scheduler.started_jobs() == [holder, other]
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.started_jobs()[-1] == waiting


@pytest.mark.parametrize("end", ["exit", "failed start", "cancel", "lost", "never started", "unwatched"])
def test_lock_of_dead_holder_is_freed(unlimited_scheduler: Scheduler, end: str) -> None:
    """LESSONS Waiting: dead holder blocks its lock for ever."""
    holder = unlimited_scheduler.submit(locks=["repo"], priority=-1)
    if end in ("exit", "cancel", "lost"):
        unlimited_scheduler.confirm_start(holder)
    waiting = unlimited_scheduler.submit(locks=["repo"])
    assert unlimited_scheduler.status(waiting) is Status.WAITING_ON_LOCKS
    match end:
        case "exit":
            unlimited_scheduler.end_run(holder, 1)
        case "failed start":
            unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(holder), error="no"))
        case "cancel":
            unlimited_scheduler.cancel(holder)
            unlimited_scheduler.end_run(holder, None, signal=15, ended_by="stop")
        case "lost" | "never started":
            unlimited_scheduler.crash()
        case "unwatched":
            unlimited_scheduler.end_run(holder, None, is_observed=False)
    assert unlimited_scheduler.started_jobs()[-1] == waiting
    assert unlimited_scheduler.status(waiting) is Status.DISPATCHED


def test_adopted_run_keeps_its_locks_over_a_crash(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    waiting = unlimited_scheduler.submit(locks=["repo"])
    run = unlimited_scheduler.find_run(holder)
    unlimited_scheduler.crash([RunReport(run=run, pid=1)])
    assert unlimited_scheduler.started_jobs() == []
    assert unlimited_scheduler.status(waiting) is Status.WAITING_ON_LOCKS


def test_cancel_of_a_waiter_lets_the_next_through(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo:shared"])
    exclusive = unlimited_scheduler.submit(locks=["repo"])
    shared = unlimited_scheduler.submit(locks=["repo:shared"])
    unlimited_scheduler.cancel(exclusive)
    assert unlimited_scheduler.started_jobs() == [holder, shared]


def test_key_named_twice_is_exclusive_if_either_is(unlimited_scheduler: Scheduler) -> None:
    job = unlimited_scheduler.submit(locks=["repo:shared", "repo", "repo:shared"])
    assert unlimited_scheduler.show_job(job).locks == [LockView(key="repo", mode="exclusive")]


def test_fronts_of_jobs_equal_fronts_of_their_keys(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    jobs = [
        scheduler.submit(locks=["held", "shared:shared"]),
        scheduler.submit(locks=["shared:shared"]),
        scheduler.submit(locks=["held:shared", "queue:shared"], priority=1),
        scheduler.submit(locks=["held", "queue"]),
        scheduler.submit(locks=["queue:shared", "unused"], delay="1h"),
    ]
    keys = ["held", "shared", "queue", "unused"]
    assert scheduler.reader.locks.fronts_of(jobs) == scheduler.reader.locks.fronts(keys)
    assert scheduler.reader.locks.fronts_of(jobs[1:2]) == scheduler.reader.locks.fronts(["shared"])
    assert scheduler.reader.locks.fronts_of(jobs[4:])["unused"] == LockFront()


def test_job_that_joins_a_queue_while_another_leaves_gets_its_turn(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.set_pools(resource__gpu=0)
    before = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(before)
    first = unlimited_scheduler.submit(after=[before], locks=["repo"], pools={"resource/gpu": 1})
    second = unlimited_scheduler.submit(locks=["repo"], delay="1s")
    assert unlimited_scheduler.wait_detail(first) == "waiting on pool resource/gpu (0/0)"
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.rewind(before)
    assert unlimited_scheduler.wait_detail(first) == f"waiting on job job-{before}"
    assert unlimited_scheduler.started_jobs()[-1] == second


def test_delay_that_is_over_stays_over_when_the_clock_is_set_back(scheduler: Scheduler) -> None:
    clock = scheduler.clock = scheduler.engine._clock = AdjustableClock()
    scheduler.set_pools(**{"global": 3})
    holder = scheduler.submit(locks=["k"])
    delayed = scheduler.submit(locks=["k"], delay="60s", priority=5)
    clock.advance(seconds=90)
    scheduler.run_turns()
    assert scheduler.wait_detail(delayed) == "waiting on locks"
    clock.set_time("2026-01-01T00:00:30")
    scheduler.run_turns()
    assert scheduler.wait_detail(delayed) == "waiting on locks"
    other = scheduler.submit(locks=["k"])
    scheduler.end_run(holder)
    assert scheduler.started_jobs() == [holder, delayed]
    scheduler.end_run(delayed)
    assert scheduler.started_jobs() == [holder, delayed, other]
