"""Locks: who may have a key, and that nobody waits for ever (LESSONS, waiting and fairness)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.clockwork import SetClock
from harness import Scheduler
from rota.core.lock import Front
from rota.core.status import Status
from rota.executor.port import Account, FailedToStart
from rota.wire.job import LockForm


def test_an_exclusive_lock_has_one_holder_and_passes_on_in_order(wide: Scheduler) -> None:
    jobs = [wide.submit(locks=["repo"]) for _ in range(4)]
    assert wide.started() == jobs[:1]
    assert wide.drain() == jobs


def test_shared_holders_run_together(wide: Scheduler) -> None:
    jobs = [wide.submit(locks=["repo:shared"]) for _ in range(4)]
    assert wide.started() == jobs


def test_a_stream_of_shared_holders_does_not_starve_an_exclusive_waiter(wide: Scheduler) -> None:
    """LESSONS Waiting: shared holders starve an exclusive waiter."""
    first = wide.submit(locks=["repo:shared"])
    exclusive = wide.submit(locks=["repo"])
    stream = [wide.submit(locks=["repo:shared"]) for _ in range(3)]
    assert wide.started() == [first]
    wide.end(first)
    assert wide.started() == [first, exclusive]
    wide.end(exclusive)
    assert wide.started() == [first, exclusive, *stream]


def test_the_front_of_shared_waiters_goes_together_up_to_the_next_exclusive_one(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo"])
    shared = [wide.submit(locks=["repo:shared"]) for _ in range(3)]
    exclusive = wide.submit(locks=["repo"])
    late = wide.submit(locks=["repo:shared"])
    wide.end(holder)
    assert wide.started() == [holder, *shared]
    assert [wide.status(job) for job in (exclusive, late)] == [Status.WAITING_ON_LOCKS] * 2


def test_an_earlier_job_that_waits_for_a_pool_keeps_its_turn(wide: Scheduler) -> None:
    wide.set_pools(resource__gpu=1)
    busy = wide.submit(pools={"resource/gpu": 1})
    first = wide.submit(locks=["repo"], pools={"resource/gpu": 1})
    second = wide.submit(locks=["repo"])
    assert wide.started() == [busy]
    assert wide.detail(first) == "waiting on pool resource/gpu (1/1)"
    assert wide.detail(second) == "waiting on locks"
    assert wide.drain() == [busy, first, second]


def test_a_job_held_at_an_earlier_gate_has_no_turn_to_keep(wide: Scheduler) -> None:
    slow = wide.submit()
    waiting = wide.submit(after=[slow], locks=["repo"])
    delayed = wide.submit(delay="1h", locks=["repo"])
    second = wide.submit(locks=["repo"])
    assert wide.started() == [slow, second]
    assert wide.status(waiting) is Status.WAITING_ON_DEPS
    assert wide.status(delayed) is Status.QUEUED


def test_a_higher_priority_arrival_takes_the_turn_of_one_that_is_ready_and_not_started(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    low = scheduler.submit(locks=["repo"])
    assert scheduler.status(low) is Status.QUEUED
    high = scheduler.submit(locks=["repo"], priority=5)
    assert scheduler.status(low) is Status.WAITING_ON_LOCKS
    assert scheduler.drain() == [blocker, high, low]


def test_several_keys_are_taken_all_or_nothing(wide: Scheduler) -> None:
    first = wide.submit(locks=["a"])
    both = wide.submit(locks=["a", "b"])
    third = wide.submit(locks=["b"])
    assert wide.started() == [first]  # `both` has its turn at b, though nobody holds it
    assert wide.drain() == [first, both, third]


def test_two_jobs_that_name_keys_in_opposite_order_do_not_deadlock(wide: Scheduler) -> None:
    jobs = [wide.submit(locks=["a", "b"]), wide.submit(locks=["b", "a"])]
    assert wide.drain() == jobs


def test_ending_frees_only_its_own_locks(wide: Scheduler) -> None:
    """LESSONS: finishing a parallel run freed a phase lock that it did not own."""
    holder = wide.submit(locks=["repo"])
    other = wide.submit()
    waiting = wide.submit(locks=["repo"])
    wide.end(other)
    assert wide.started() == [holder, other]
    wide.end(holder)
    assert wide.started()[-1] == waiting


@pytest.mark.parametrize("way", ["exit", "failed start", "cancel", "lost", "never started", "unwatched"])
def test_a_dead_holders_lock_is_freed_at_its_end_whoever_finds_it(wide: Scheduler, way: str) -> None:
    """LESSONS Waiting: dead holder blocks its lock for ever."""
    holder = wide.submit(locks=["repo"], priority=-1)
    if way in ("exit", "cancel", "lost"):
        wide.start(holder)
    waiting = wide.submit(locks=["repo"])
    assert wide.status(waiting) is Status.WAITING_ON_LOCKS
    match way:
        case "exit":
            wide.end(holder, 1)
        case "failed start":
            wide.say(FailedToStart(run=wide.run_of(holder), error="no"))
        case "cancel":
            wide.cancel(holder)
            wide.end(holder, None, signal=15, ended_by="stop")
        case "lost" | "never started":
            wide.crash()
        case "unwatched":
            wide.end(holder, None, watched=False)
    assert wide.started()[-1] == waiting
    assert wide.status(waiting) is Status.DISPATCHED


def test_locks_are_kept_over_a_crash_by_what_still_runs(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo"])
    waiting = wide.submit(locks=["repo"])
    run = wide.run_of(holder)
    wide.crash([Account(run=run, pid=1)])
    assert wide.started() == []
    assert wide.status(waiting) is Status.WAITING_ON_LOCKS


def test_cancelling_a_waiter_lets_those_behind_it_through(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo:shared"])
    exclusive = wide.submit(locks=["repo"])
    shared = wide.submit(locks=["repo:shared"])
    wide.cancel(exclusive)
    assert wide.started() == [holder, shared]


def test_a_key_named_twice_is_exclusive_if_either_says_so(wide: Scheduler) -> None:
    job = wide.submit(locks=["repo:shared", "repo", "repo:shared"])
    assert wide.show(job).locks == [LockForm(key="repo", mode="exclusive")]


def test_the_fronts_of_many_keys_are_those_of_each(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    jobs = [
        scheduler.submit(locks=["held", "shared:shared"]),
        scheduler.submit(locks=["shared:shared"]),
        scheduler.submit(locks=["held:shared", "queue:shared"], priority=1),
        scheduler.submit(locks=["held", "queue"]),
        scheduler.submit(locks=["queue:shared", "nobody's"], delay="1h"),
    ]
    keys = ["held", "shared", "queue", "nobody's"]
    assert scheduler.reader.fronts_of(jobs) == scheduler.reader.fronts(keys)
    assert scheduler.reader.fronts_of(jobs[1:2]) == scheduler.reader.fronts(["shared"])
    assert scheduler.reader.fronts_of(jobs[4:])["nobody's"] == Front()


def test_who_joins_a_queue_in_the_look_in_which_another_leaves_it_has_his_turn(wide: Scheduler) -> None:
    wide.set_pools(resource__gpu=0)
    before = wide.submit()
    wide.end(before)
    first = wide.submit(after=[before], locks=["repo"], pools={"resource/gpu": 1})
    second = wide.submit(locks=["repo"], delay="1s")
    assert wide.detail(first) == "waiting on pool resource/gpu (0/0)"
    wide.clock.advance(seconds=1)
    wide.rewind(before)
    assert wide.detail(first) == f"waiting on job job-{before}"
    assert wide.started()[-1] == second


def test_a_clock_that_is_set_back_lets_nobody_stand_in_the_way(scheduler: Scheduler) -> None:
    """A job whose delay was over queues for its lock; when its time is still to come after all, it does not."""
    clock = scheduler.clock = scheduler.engine._clock = SetClock()
    scheduler.set_pools(**{"global": 3})
    holder = scheduler.submit(locks=["k"])
    delayed = scheduler.submit(locks=["k"], delay="60s", priority=5)
    clock.advance(seconds=90)
    scheduler.turn()
    assert scheduler.detail(delayed) == "waiting on locks"
    clock.set("2026-01-01T00:00:30")
    scheduler.turn()
    assert scheduler.detail(delayed) == "not before 2026-01-01T00:01:00Z"
    other = scheduler.submit(locks=["k"])
    scheduler.end(holder)
    assert scheduler.started() == [holder, other]
