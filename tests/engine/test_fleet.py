"""The agent scheduler of seed 003, as it is written there: a card is a unique key, a phase lock an exclusive lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harness import Scheduler
from rota.command.backpressure import Deferred
from rota.command.retry import retry
from rota.command.submit import AlreadyActive, Submitted
from rota.core.backpressure import QueueLimit
from rota.core.retry import RetryPolicies, RetryPolicy
from rota.core.status import Status
from rota.ids import JobId

FLEET = RetryPolicy(
    max_retries=5, base=timedelta(seconds=30), multiplier=2.0, jitter=0.1, cap=timedelta(minutes=5)
)  # fmt: skip


@pytest.fixture
def fleet(make_scheduler: Callable[..., Scheduler]) -> Callable[..., Scheduler]:
    """One with its configuration: `maxConcurrent` in all, 1 for each flow, the shared retry policy."""

    def make(most: int = 1, **flows: int) -> Scheduler:
        scheduler = make_scheduler(**{"global": most}, **{f"flow__{flow}": size for flow, size in flows.items()})
        policies = RetryPolicies(named={"fleet": FLEET})
        scheduler.settings = msgspec.structs.replace(scheduler.settings, retry=policies)
        scheduler.engine.settings = scheduler.settings
        scheduler.set_queue(QueueLimit(soft="auto", hard="auto"))
        return scheduler

    return make


def card(scheduler: Scheduler, path: str, **fields: Any) -> JobId:
    body = {"flow": "implement", "phase": "phase-5", **fields}
    return scheduler.submit(unique=path, **body)


def running(scheduler: Scheduler, jobs: Sequence[JobId]) -> list[JobId]:
    return [job for job in jobs if scheduler.status(job) in (Status.DISPATCHED, Status.RUNNING)]


def test_enqueue_a_locked_card_is_already_running(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    job = card(scheduler, "cards/7.md")
    assert scheduler.job(job).spec.locks[0].key == "phase/phase-5/implement"
    assert scheduler.answer(unique="cards/7.md", flow="review", phase="phase-5") == AlreadyActive(
        active={"cards/7.md": job}
    )
    scheduler.end(job)
    assert isinstance(scheduler.answer(unique="cards/7.md", flow="review", phase="phase-5"), Submitted)


def test_drain_the_oldest_of_each_flow_below_its_cap(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(3, implement=2)
    jobs = [card(scheduler, f"{n}", parallelizable=True) for n in range(4)]
    reviews = [card(scheduler, f"r{n}", flow="review", parallelizable=True) for n in range(2)]
    assert scheduler.started() == [jobs[0], jobs[1], reviews[0]]
    scheduler.end(jobs[1])
    assert scheduler.started()[-1] == jobs[2], "the place goes to the next of its flow, at once"
    scheduler.end(reviews[0])
    assert scheduler.started()[-1] == reviews[1]


def test_cards_of_one_phase_and_flow_run_one_by_one_even_if_capacity_remains(fleet: Callable[..., Scheduler]) -> None:
    """LESSONS Waiting: finishing a parallel run freed a phase lock that it did not own."""
    scheduler = fleet(10, implement=10)
    serial = [card(scheduler, f"{n}") for n in range(3)]
    free = [card(scheduler, f"p{n}", parallelizable=True) for n in range(2)]
    elsewhere = card(scheduler, "e", phase="phase-6")
    review = card(scheduler, "r", flow="review")
    assert running(scheduler, [*serial, *free, elsewhere, review]) == [serial[0], *free, elsewhere, review]
    assert scheduler.detail(serial[1]) == "waiting on locks"
    scheduler.end(free[0])
    assert scheduler.started()[-1] == review, "finishing a parallel run frees no phase lock"
    scheduler.end(serial[0])
    assert scheduler.started()[-1] == serial[1]


def test_caps_are_evaluated_after_the_phase_lock(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(2)
    first, second = card(scheduler, "a"), card(scheduler, "b")
    assert scheduler.detail(second) == "waiting on locks", "and not on the pool of its flow, which is full as well"
    scheduler.submit(flow="research")
    scheduler.set_pools(**{"global": 1})
    scheduler.end(first)
    assert scheduler.detail(second) == "waiting on pool global (1/1)"


def test_who_names_the_phase_lock_himself_has_it_once(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    job = card(scheduler, "a", locks=["phase/phase-5/implement:shared", "repo:shared"])
    assert [(lock.key, lock.mode.value) for lock in scheduler.job(job).spec.locks] == [
        ("phase/phase-5/implement", "exclusive"),
        ("repo", "shared"),
    ]
    shown = scheduler.show(job)
    assert (shown.phase, shown.flow) == ("phase-5", "implement")


def test_backpressure_figures(fleet: Callable[..., Scheduler]) -> None:
    """Soft is four for each place and at least 8, hard twice that; what is deferred leaves its card unlocked."""
    scheduler = fleet(3, implement=3)
    jobs = [card(scheduler, f"{n}", parallelizable=True) for n in range(3 + 24)]
    assert scheduler.reader.depth().total == 24
    assert isinstance(scheduler.answer(unique="late", flow="implement"), Deferred)
    scheduler.end(jobs[0])
    assert isinstance(scheduler.answer(unique="late", flow="implement"), Submitted)


def test_a_failure_backs_off_and_keeps_the_card_but_not_the_phase(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    job, other = card(scheduler, "a"), card(scheduler, "b")
    scheduler.end(job, 1)
    again = JobId(other + 1)
    assert scheduler.job(again).not_before == scheduler.clock.moment + timedelta(seconds=30)
    assert scheduler.answer(unique="a", flow="implement") == AlreadyActive(active={"a": again})
    assert scheduler.started()[-1] == other, "nobody else of its phase waits for its delay"


def test_five_retries_then_the_card_is_free(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    last, delays = card(scheduler, "a"), list[float]()
    for _ in range(5):
        scheduler.end(last, 1)
        found = scheduler.reader.last_of_chain(last)
        assert found is not None
        last = found[0]
        due = scheduler.job(last).not_before
        assert due is not None
        delays.append((due - scheduler.clock.moment).total_seconds())
        scheduler.clock.moment = due
        scheduler.turn()
    assert delays == [30, 60, 120, 240, 300]
    scheduler.end(last, 1)
    assert scheduler.job(last).permanently_failed
    assert isinstance(scheduler.answer(unique="a", flow="implement"), Submitted)


def test_a_manual_rerun_clears_counter_and_timer(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet()
    job = card(scheduler, "a")
    scheduler.end(job, 1)
    waiting = JobId(job + 1)
    told = scheduler.do(lambda work: retry(work, f"job-{job}", actor="user"))
    assert told.job == waiting
    assert "its delay" in told.text
    assert (scheduler.job(waiting).retries, scheduler.job(waiting).not_before) == (0, None)
    assert scheduler.started()[-1] == waiting


def test_crash_recovery_fails_what_nobody_can_account_for_and_frees_its_locks(fleet: Callable[..., Scheduler]) -> None:
    scheduler = fleet(5, implement=5)
    lost, next_one = card(scheduler, "a", retries=0), card(scheduler, "b")
    scheduler.start(lost)
    scheduler.crash()
    assert (scheduler.status(lost), scheduler.job(lost).reason) == (Status.FAILED, "Scheduler crash recovery")
    assert scheduler.started() == [next_one], "the phase lock is free"
    assert isinstance(scheduler.answer(unique="a", flow="implement"), Submitted), "and so is the card"
