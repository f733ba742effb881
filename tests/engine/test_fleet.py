"""The agent scheduler of seed 003: a card is a unique key, a phase lock an exclusive lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota.ids import JobId
from rota.jobs.retry import retry
from rota.jobs.submit import AcceptedSubmit, DeferredSubmit, DuplicateSubmit
from rota.kernel.backpressure import QueueLimit
from rota.kernel.retry import RetryPolicies, RetryPolicy
from rota.kernel.status import Status
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases

FLEET = RetryPolicy(max_retries=5, base=timedelta(seconds=30), multiplier=2.0, jitter=0.1, cap=timedelta(minutes=5))


@pytest.fixture
def fleet(make_scheduler: Callable[..., Scheduler]) -> Callable[..., Scheduler]:
    """Function that makes a scheduler configured with `maxConcurrent`, 1 job for each flow and the retry policy."""

    def make(limit: int = 1, **flows: int) -> Scheduler:
        scheduler = make_scheduler(**{"global": limit}, **{f"flow__{flow}": size for flow, size in flows.items()})
        policies = RetryPolicies(named={"fleet": FLEET})
        scheduler.settings = msgspec.structs.replace(scheduler.settings, retry=policies)
        scheduler.engine.settings = scheduler.settings
        scheduler.set_queue_limits(QueueLimit(soft="auto", hard="auto"))
        return scheduler

    return make


def submit_card(scheduler: Scheduler, path: str, **fields: Any) -> JobId:
    body = {"flow": "implement", "phase": "phase-5", **fields}
    return scheduler.submit(unique=path, **body)


def running(scheduler: Scheduler, jobs: Sequence[JobId]) -> list[JobId]:
    return [job for job in jobs if scheduler.status(job) in (Status.DISPATCHED, Status.RUNNING)]


def test_card_that_is_running_is_refused(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    job = submit_card(scheduler, "cards/7.md")
    assert scheduler.job(job).spec.locks[0].key == "phase/phase-5/implement"
    assert scheduler.try_submit(unique="cards/7.md", flow="review", phase="phase-5") == DuplicateSubmit(
        active={"cards/7.md": job}
    )
    scheduler.end_run(job)
    assert isinstance(scheduler.try_submit(unique="cards/7.md", flow="review", phase="phase-5"), AcceptedSubmit)


def test_oldest_cards_of_each_flow_start_below_its_cap(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(3, implement=2)
    jobs = [submit_card(scheduler, f"{n}", parallelizable=True) for n in range(4)]
    reviews = [submit_card(scheduler, f"r{n}", flow="review", parallelizable=True) for n in range(2)]
    assert scheduler.started_jobs() == [jobs[0], jobs[1], reviews[0]]
    scheduler.end_run(jobs[1])
    assert scheduler.started_jobs()[-1] == jobs[2], "the capacity goes to the next of its flow"
    scheduler.end_run(reviews[0])
    assert scheduler.started_jobs()[-1] == reviews[1]


def test_cards_of_one_phase_and_flow_run_one_by_one(fleet: Callable[..., Scheduler]) -> None:
    """LESSONS Waiting: finishing a parallel run freed a phase lock that it did not own."""
    scheduler = fleet(10, implement=10)
    serial = [submit_card(scheduler, f"{n}") for n in range(3)]
    free = [submit_card(scheduler, f"p{n}", parallelizable=True) for n in range(2)]
    elsewhere = submit_card(scheduler, "e", phase="phase-6")
    review = submit_card(scheduler, "r", flow="review")
    assert running(scheduler, [*serial, *free, elsewhere, review]) == [serial[0], *free, elsewhere, review]
    assert scheduler.wait_detail(serial[1]) == "waiting on locks"
    scheduler.end_run(free[0])
    assert scheduler.started_jobs()[-1] == review, "finishing a parallel run frees no phase lock"
    scheduler.end_run(serial[0])
    assert scheduler.started_jobs()[-1] == serial[1]


def test_pools_are_evaluated_after_the_phase_lock(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(2)
    first, second = submit_card(scheduler, "a"), submit_card(scheduler, "b")
    assert scheduler.wait_detail(second) == "waiting on locks", "and not on the pool of its flow, which is full as well"
    scheduler.submit(flow="research")
    scheduler.set_pools(**{"global": 1})
    scheduler.end_run(first)
    assert scheduler.wait_detail(second) == "waiting on pool global (1/1)"


def test_explicit_phase_lock_is_held_once(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    job = submit_card(scheduler, "a", locks=["phase/phase-5/implement:shared", "repo:shared"])
    assert [(lock.key, lock.mode.value) for lock in scheduler.job(job).spec.locks] == [
        ("phase/phase-5/implement", "exclusive"),
        ("repo", "shared"),
    ]
    shown = scheduler.show_job(job)
    assert (shown.phase, shown.flow) == ("phase-5", "implement")


def test_backpressure_limits_follow_pool_sizes(fleet: Callable[..., Scheduler]) -> None:
    """The soft limit is 4 for each slot and at least 8, the hard limit twice that. A deferred card stays unlocked."""
    scheduler = fleet(3, implement=3)
    jobs = [submit_card(scheduler, f"{n}", parallelizable=True) for n in range(3 + 24)]
    assert scheduler.reader.queue.depth().total == 24
    assert isinstance(scheduler.try_submit(unique="late", flow="implement"), DeferredSubmit)
    scheduler.end_run(jobs[0])
    assert isinstance(scheduler.try_submit(unique="late", flow="implement"), AcceptedSubmit)


def test_failed_card_keeps_its_key_but_not_its_phase(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    job, other = submit_card(scheduler, "a"), submit_card(scheduler, "b")
    scheduler.end_run(job, 1)
    again = JobId(other + 1)
    assert scheduler.job(again).not_before == scheduler.clock.moment + timedelta(seconds=30)
    assert scheduler.try_submit(unique="a", flow="implement") == DuplicateSubmit(active={"a": again})
    assert scheduler.started_jobs()[-1] == other, "other cards of its phase do not wait for its delay"


def test_card_is_free_after_five_retries(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    last, delays = submit_card(scheduler, "a"), list[float]()
    for _ in range(5):
        scheduler.end_run(last, 1)
        tail = scheduler.reader.chains.last_job(last)
        assert tail is not None
        last = tail[0]
        due = scheduler.job(last).not_before
        assert due is not None
        delays.append((due - scheduler.clock.moment).total_seconds())
        scheduler.clock.moment = due
        scheduler.run_turns()
    assert delays == [30, 60, 120, 240, 300]
    scheduler.end_run(last, 1)
    assert scheduler.job(last).permanently_failed
    assert isinstance(scheduler.try_submit(unique="a", flow="implement"), AcceptedSubmit)


def test_manual_rerun_clears_retry_count_and_delay(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    job = submit_card(scheduler, "a")
    scheduler.end_run(job, 1)
    waiting = JobId(job + 1)
    result = scheduler.run_request(lambda tx: retry(tx, f"job-{job}", actor="user"))
    assert result.job == waiting
    assert "its delay" in result.message
    assert (scheduler.job(waiting).retries, scheduler.job(waiting).not_before) == (0, None)
    assert scheduler.started_jobs()[-1] == waiting


def test_crash_recovery_fails_unaccounted_runs_and_frees_their_locks(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    lost, waiting = submit_card(scheduler, "a", retries=0), submit_card(scheduler, "b")
    scheduler.confirm_start(lost)
    scheduler.crash()
    assert (scheduler.status(lost), scheduler.job(lost).reason) == (Status.FAILED, "Scheduler crash recovery")
    assert scheduler.started_jobs() == [waiting], "the phase lock is free"
    assert isinstance(scheduler.try_submit(unique="a", flow="implement"), AcceptedSubmit), "and so is the card"
