"""Queue order (INV-004), delay, and the horizon that keeps both over long looks."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harness import Scheduler
from rota.core.status import Status
from rota.engine import dispatch
from rota.executor.port import Account, Exited
from rota.ids import RunId


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


def test_the_order_holds_over_lanes(scheduler: Scheduler) -> None:
    """Jobs with different draws stand in different lanes, and still go by rank."""
    blocker = scheduler.submit()
    jobs = [scheduler.submit(flow=flow, type=kind) for flow, kind in zip("abcab", "xxyyz", strict=True)]
    assert scheduler.drain() == [blocker, *jobs]


def test_a_delayed_job_is_not_started_a_microsecond_early(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="10s")
    due = scheduler.clock.moment + timedelta(seconds=10)
    assert scheduler.engine.next_due == due
    scheduler.clock.moment = due - timedelta(microseconds=1)
    scheduler.turn()
    assert scheduler.started() == []
    assert scheduler.detail(job) == "not before 2026-01-01T00:00:10Z"
    scheduler.clock.advance(microseconds=1)
    scheduler.turn()
    assert scheduler.started() == [job]
    assert scheduler.engine.next_due is None


def test_the_next_due_is_the_earliest(scheduler: Scheduler) -> None:
    now = scheduler.clock.moment
    scheduler.submit(delay="1h")
    soon = scheduler.submit(delay="1m")
    scheduler.submit(delay="2h")
    assert scheduler.engine.next_due == now + timedelta(minutes=1)
    scheduler.cancel(soon)
    assert scheduler.engine.next_due == now + timedelta(hours=1)


def test_a_delay_survives_a_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="10s")
    due = scheduler.clock.moment + timedelta(seconds=10)
    scheduler.clock.advance(seconds=9)
    scheduler.crash()
    assert scheduler.started() == []
    assert scheduler.engine.next_due == due
    scheduler.clock.advance(seconds=1)
    scheduler.crash()
    assert scheduler.started() == [job]


def test_a_delay_stands_behind_the_edges(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    job = scheduler.submit(after=[first], delay="10s")
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.end(first)
    assert scheduler.status(job) is Status.QUEUED
    assert scheduler.detail(job) == "not before 2026-01-01T00:00:10Z"
    scheduler.clock.advance(seconds=10)
    scheduler.turn()
    assert scheduler.started() == [first, job]


def test_a_delayed_job_stands_at_its_own_place_when_its_time_has_come(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    delayed = scheduler.submit(delay="10s")
    later = scheduler.submit()
    scheduler.clock.advance(seconds=10)
    scheduler.turn()
    assert scheduler.drain() == [blocker, delayed, later]


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job is looked at in a transaction."""
    monkeypatch.setattr(dispatch, "LOOK", 1)
    monkeypatch.setattr(dispatch, "LOOKS", 1)


@pytest.mark.usefixtures("short_looks")
def test_looks_that_take_many_turns_come_to_an_end_without_a_new_event(wide: Scheduler) -> None:
    root = wide.submit()
    jobs = [wide.submit(after=[root]) for _ in range(5)]
    wide.end(root, 1)
    assert [wide.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_looks")
def test_looks_go_on_while_every_place_is_taken(scheduler: Scheduler) -> None:
    root, running = scheduler.submit(), scheduler.submit()
    jobs = [scheduler.submit(after=[root]) for _ in range(5)]
    scheduler.end(root, 1)
    assert scheduler.status(running) is Status.DISPATCHED
    assert [scheduler.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_looks")
def test_looks_go_on_while_nothing_new_may_start(scheduler: Scheduler) -> None:
    root = scheduler.submit()
    jobs = [scheduler.submit(after=[root]) for _ in range(5)]
    scheduler.engine.is_draining = True
    scheduler.end(root, 1)
    assert [scheduler.status(job) for job in jobs] == [Status.BLOCKED_BY_DEPENDENCY] * 5


@pytest.mark.usefixtures("short_looks")
def test_nothing_starts_before_an_earlier_job_that_has_not_been_looked_at(wide: Scheduler) -> None:
    root = wide.submit()
    early = [wide.submit(after=[root]) for _ in range(5)]
    wide.set_pools(**{"global": 1})
    ready = wide.submit()
    assert wide.drain() == [root, *early, ready]


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.usefixtures("short_looks")
def test_a_crash_between_an_end_and_the_looks_it_asks_for_loses_no_wake_up(wide: Scheduler, turns: int) -> None:
    root = wide.submit()
    jobs = [wide.submit(after=[root]) for _ in range(5)]
    last = wide.submit(after=jobs)
    wide.executor.inbox.append(exited(wide, wide.run_of(root)))
    for _ in range(turns):
        wide.engine.turn()
    ended = set(wide.executor.acknowledged)
    running = [start.run for start in wide.executor.starts if start.run not in ended]
    wide.crash([Account(run=run, pid=1) for run in running])
    wide.say(*(exited(wide, run) for run in running))
    wide.drain()
    assert {wide.status(job) for job in (root, *jobs, last)} == {Status.COMPLETED}


def exited(scheduler: Scheduler, run: RunId) -> Exited:
    return Exited(run=run, at=scheduler.clock.moment.timestamp(), code=0)
