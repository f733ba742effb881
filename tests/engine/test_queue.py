"""Queue order (INV-004), delays, and the horizon that keeps both over long evaluations."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.engine import dispatch
from rota.executor.port import ExitReport, RunReport
from rota.ids import RunId
from rota.kernel.status import Status
from tests.harness import Scheduler


def test_inv_004_priority_then_position_then_arrival(scheduler: Scheduler) -> None:
    """LESSONS Waiting: FIFO only: urgent work behind the rest."""
    blocker = scheduler.submit()
    low = scheduler.submit(priority=-1)
    first = scheduler.submit()
    urgent = scheduler.submit(priority=9)
    second = scheduler.submit()
    assert scheduler.drain() == [blocker, urgent, first, second, low]


def test_positions_leave_gaps_of_a_hundred(scheduler: Scheduler) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    assert [scheduler.job(job).position for job in jobs] == [100, 200, 300]


def test_order_holds_over_lanes(scheduler: Scheduler) -> None:
    """Jobs with different demand are in different lanes, and still start by rank."""
    blocker = scheduler.submit()
    jobs = [scheduler.submit(flow=flow, type=kind) for flow, kind in zip("abcab", "xxyyz", strict=True)]
    assert scheduler.drain() == [blocker, *jobs]


def test_delayed_job_does_not_start_a_microsecond_early(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="10s")
    due = scheduler.clock.moment + timedelta(seconds=10)
    assert scheduler.engine.next_due == due
    scheduler.clock.moment = due - timedelta(microseconds=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == []
    assert scheduler.wait_detail(job) == "not before 2026-01-01T00:00:10Z"
    scheduler.clock.advance(microseconds=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [job]
    assert scheduler.engine.next_due is None


def test_next_due_is_the_earliest(scheduler: Scheduler) -> None:
    now = scheduler.clock.moment
    scheduler.submit(delay="1h")
    soon = scheduler.submit(delay="1m")
    scheduler.submit(delay="2h")
    assert scheduler.engine.next_due == now + timedelta(minutes=1)
    scheduler.cancel(soon)
    assert scheduler.engine.next_due == now + timedelta(hours=1)


@pytest.mark.both_databases
def test_delay_survives_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="10s")
    due = scheduler.clock.moment + timedelta(seconds=10)
    scheduler.clock.advance(seconds=9)
    scheduler.crash()
    assert scheduler.started_jobs() == []
    assert scheduler.engine.next_due == due
    scheduler.clock.advance(seconds=1)
    scheduler.crash()
    assert scheduler.started_jobs() == [job]


def test_delay_comes_after_the_edges(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    job = scheduler.submit(after=[first], delay="10s")
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.end_run(first)
    assert scheduler.status(job) is Status.QUEUED
    assert scheduler.wait_detail(job) == "not before 2026-01-01T00:00:10Z"
    scheduler.clock.advance(seconds=10)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [first, job]


def test_delayed_job_keeps_its_place_in_the_queue(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    delayed = scheduler.submit(delay="10s")
    later = scheduler.submit()
    scheduler.clock.advance(seconds=10)
    scheduler.run_turns()
    assert scheduler.drain() == [blocker, delayed, later]


@pytest.fixture
def short_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate one job in a transaction."""
    monkeypatch.setattr(dispatch, "EVALUATE_BATCH_SIZE", 1)
    monkeypatch.setattr(dispatch, "MAX_EVALUATE_BATCHES", 1)


@pytest.mark.usefixtures("short_evaluations")
def test_evaluation_over_many_turns_ends_without_a_new_event(unlimited_scheduler: Scheduler) -> None:
    root = unlimited_scheduler.submit()
    jobs = [unlimited_scheduler.submit(after=[root]) for _ in range(5)]
    unlimited_scheduler.end_run(root, 1)
    assert [unlimited_scheduler.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_evaluations")
def test_evaluation_continues_while_all_workers_are_busy(scheduler: Scheduler) -> None:
    root, running = scheduler.submit(), scheduler.submit()
    jobs = [scheduler.submit(after=[root]) for _ in range(5)]
    scheduler.end_run(root, 1)
    assert scheduler.status(running) is Status.DISPATCHED
    assert [scheduler.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_evaluations")
def test_evaluation_continues_while_draining(scheduler: Scheduler) -> None:
    root = scheduler.submit()
    jobs = [scheduler.submit(after=[root]) for _ in range(5)]
    scheduler.engine.is_draining = True
    scheduler.end_run(root, 1)
    assert [scheduler.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_evaluations")
def test_nothing_starts_before_an_earlier_job_that_is_not_evaluated(unlimited_scheduler: Scheduler) -> None:
    root = unlimited_scheduler.submit()
    early = [unlimited_scheduler.submit(after=[root]) for _ in range(5)]
    unlimited_scheduler.set_pools(**{"global": 1})
    ready = unlimited_scheduler.submit()
    assert unlimited_scheduler.drain() == [root, *early, ready]


@pytest.mark.both_databases
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.usefixtures("short_evaluations")
def test_crash_between_an_end_and_its_evaluations_loses_no_wake_up(unlimited_scheduler: Scheduler, turns: int) -> None:
    root = unlimited_scheduler.submit()
    jobs = [unlimited_scheduler.submit(after=[root]) for _ in range(5)]
    last = unlimited_scheduler.submit(after=jobs)
    unlimited_scheduler.executor.inbox.append(exit_report(unlimited_scheduler, unlimited_scheduler.find_run(root)))
    for _ in range(turns):
        unlimited_scheduler.engine.turn()
    ended = set(unlimited_scheduler.executor.acknowledged)
    running = [start.run for start in unlimited_scheduler.executor.starts if start.run not in ended]
    unlimited_scheduler.crash([RunReport(run=run, pid=1) for run in running])
    unlimited_scheduler.receive(*(exit_report(unlimited_scheduler, run) for run in running))
    unlimited_scheduler.drain()
    assert {unlimited_scheduler.status(job) for job in (root, *jobs, last)} == {Status.COMPLETED}


def exit_report(scheduler: Scheduler, run: RunId) -> ExitReport:
    return ExitReport(run=run, at=scheduler.clock.moment.timestamp(), code=0)
