"""What the executor is given to start by itself: only where it is certain, stored before it is told, and booked in its
order whatever comes between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clockwork import Clockwork, SetClock
from engine.test_commit import Flaky, FlakySession, FlakyStore
from harness import FakeClock, FakeExecutor, Raw, Scheduler
from rota.command.edit import Edit, edit
from rota.core.ahead import BRIEF, DEPTH
from rota.core.status import Status
from rota.engine.work import Request
from rota.errors import StorageFull
from rota.executor.port import (
    Account,
    Accounts,
    Ahead,
    Exited,
    FailedToStart,
    Lost,
    Message,
    Order,
    Started,
    Taken,
    Withdrawn,
)
from rota.ids import JobId, RunId, show_job
from rota.store.database import Superseded
from rota.store.port import Store
from rota.store.session import Reader

SECOND = timedelta(seconds=1)
SERIES = 2
"""The first in which anything is given: a new connection ends the one before."""


class Forerunner(FakeExecutor):
    """One that can start things by itself. What it does of that is the test's to say."""

    goes_ahead = True

    def __init__(self) -> None:
        super().__init__()
        self.is_frozen = False
        """It does not answer in time."""
        self.withdrawn: list[int] = []
        """What was asked back."""
        self.unsaid: list[Message] = []
        """What it has done and says when it is asked."""
        self.took: list[RunId] = []
        """Without what was said twice."""

    def receive(self) -> list[Message]:
        messages = super().receive()
        said = [message.run for message in messages if isinstance(message, Taken)]
        self.took += [run for run in dict.fromkeys(said) if run not in self.took]
        return messages

    def withdraw(self, series: int, patience: float) -> None:
        self.withdrawn.append(series)
        if not self.is_frozen:
            self.inbox += [*self.unsaid, Withdrawn(series=series)]
            self.unsaid = []

    @property
    def aheads(self) -> list[Ahead]:
        return [order for order in self.orders if isinstance(order, Ahead)]

    @property
    def given(self) -> dict[JobId, RunId]:
        """All that it was ever given, in order, with the last number of each."""
        return {start.job: start.run for order in self.aheads for start in order.starts}

    @property
    def begun(self) -> list[RunId]:
        """All runs that it was told to start, or said that it did: each number is of one."""
        runs = [*(start.run for start in self.starts), *self.took]
        assert len(set(runs)) == len(runs)
        return runs


def equip(scheduler: Scheduler, executor: Forerunner | None = None) -> Forerunner:
    """The same scheduler with an executor that goes ahead."""
    forerunner = executor or Forerunner()
    scheduler.session.close()
    scheduler.executor = forerunner
    scheduler.boot()
    return forerunner


def under_way(scheduler: Scheduler, count: int = 5) -> list[JobId]:
    """One has ended, one runs, and the others are given."""
    jobs = [scheduler.submit() for _ in range(count)]
    scheduler.end(jobs[0])
    return jobs


def at(scheduler: Scheduler) -> float:
    return scheduler.clock.moment.timestamp()


def exited(scheduler: Scheduler, run: RunId, code: int = 0) -> Exited:
    return Exited(run=run, at=at(scheduler), code=code)


def taken(scheduler: Scheduler, run: RunId) -> Taken:
    return Taken(run=run, at=at(scheduler))


def dispatched(scheduler: Scheduler) -> list[tuple[JobId | None, str]]:
    return [(event.job, event.cause) for event in scheduler.events if event.kind == "job.dispatched"]


def statuses(scheduler: Scheduler, jobs: Sequence[JobId]) -> list[str]:
    return [scheduler.status(job).value for job in jobs]


def worker_of(scheduler: Scheduler, job: JobId) -> str:
    found = scheduler.job(job).run
    assert found is not None
    return found.worker


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One job at a time."""
    return make_scheduler()


@pytest.fixture
def forerunner(scheduler: Scheduler) -> Forerunner:
    return equip(scheduler)


# When.


def test_after_a_brief_success_the_next_are_given_in_their_order(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = [scheduler.submit() for _ in range(4)]
    urgent = scheduler.submit(priority=9)
    assert forerunner.aheads == []  # nothing has succeeded yet
    scheduler.end(jobs[0])
    assert scheduler.started() == [jobs[0], urgent]
    assert list(forerunner.given) == jobs[1:]
    (order,) = forerunner.aheads
    assert order.width == 1
    assert [type(order).__name__ for order in forerunner.orders[-3:]] == ["Start", "Ahead", "Acknowledge"]


def test_as_many_as_run_are_to_run(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    forerunner = equip(scheduler)
    jobs = [scheduler.submit() for _ in range(6)]
    scheduler.end(jobs[0])
    (order,) = forerunner.aheads
    assert (order.width, list(forerunner.given)) == (3, jobs[4:])


def test_more_are_given_when_half_of_them_are_gone(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler, 2 * DEPTH)
    assert list(forerunner.given) == jobs[2 : 2 + DEPTH]
    runner = scheduler.run_of(jobs[1])
    for job in jobs[2 : 2 + DEPTH // 2]:
        assert len(forerunner.aheads) == 1
        run = forerunner.given[job]
        scheduler.say(exited(scheduler, runner), taken(scheduler, run))
        runner = run
    assert list(forerunner.given) == jobs[2:]
    assert [order.series for order in forerunner.aheads] == [SERIES, SERIES]


def brief(scheduler: Scheduler) -> None:
    scheduler.clock.advance(seconds=(BRIEF - timedelta(milliseconds=1)).total_seconds())


def lasting(scheduler: Scheduler) -> None:
    scheduler.clock.advance(seconds=1)


@pytest.mark.parametrize(("passes", "is_given"), [(brief, True), (lasting, False)])
def test_who_runs_longer_gains_nothing_by_it(
    scheduler: Scheduler, forerunner: Forerunner, passes: Callable[[Scheduler], None], is_given: bool
) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    passes(scheduler)
    scheduler.end(jobs[0])
    assert bool(forerunner.aheads) is is_given
    assert scheduler.started() == jobs[:2]


def test_a_failure_gives_nothing(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    scheduler.end(jobs[0], 1)
    assert forerunner.aheads == []
    assert scheduler.started() == jobs[:2]


def test_one_that_does_not_know_of_it_is_given_nothing(scheduler: Scheduler) -> None:
    jobs = under_way(scheduler, 3)
    assert {type(order).__name__ for order in scheduler.executor.orders} == {"Environment", "Start", "Acknowledge"}
    assert scheduler.started() == jobs[:2]


Prepare = Callable[[Scheduler], object]


def fire_a_schedule(scheduler: Scheduler) -> None:
    works = Clockwork(scheduler)
    works.add("* * * * *")
    works.go("2026-01-01T00:01")


PREPARED: dict[str, Prepare] = {
    "a job of another lane is ready": lambda scheduler: scheduler.submit(type="other"),
    "a group": lambda scheduler: scheduler.submit_group({"priority": 9}, {"priority": 9}),
    "a direct execution waits": lambda scheduler: scheduler.reserve("x", pools={"resource/ollama": 1}),
    "something is paused": lambda scheduler: scheduler.pause("flow/other"),
    "a batch": lambda scheduler: scheduler.configure(batch_size=1),
    "a heartbeat": lambda scheduler: scheduler.configure(heartbeat=SECOND),
    "a delay between starts": lambda scheduler: scheduler.configure(spawn_delay=SECOND),
    "the hold file": lambda scheduler: scheduler.hold("not now"),
    "the scheduler stops": lambda scheduler: setattr(scheduler.engine, "is_draining", True),
}


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_where_something_else_than_room_decides_nothing_is_given(
    make_scheduler: Callable[..., Scheduler], prepare: Prepare
) -> None:
    scheduler = make_scheduler()
    forerunner = equip(scheduler)
    first, *_ = [scheduler.submit() for _ in range(5)]
    prepare(scheduler)
    before = len(forerunner.aheads)
    scheduler.end(first)
    assert len(forerunner.aheads) == before == 0


def test_nor_while_a_breaker_is_open(scheduler: Scheduler, forerunner: Forerunner) -> None:
    scheduler.set_breaker(failures=1, window=timedelta(minutes=10), cool_down=timedelta(minutes=5))
    scheduler.end(scheduler.submit(type="flaky"), 1)
    jobs = under_way(scheduler)
    assert (scheduler.started()[1:], forerunner.aheads) == (jobs[:2], [])


SPECIAL: dict[str, dict[str, Any]] = {
    "a lock": {"locks": ["repo"]},
    "an artifact that it makes": {"produces": ["file:/plan.md"]},
    "a command that says whether it is needed": {"skip_if": "true"},
}


@pytest.mark.parametrize("fields", SPECIAL.values(), ids=SPECIAL)
def test_they_are_given_up_to_the_first_whose_end_matters(
    scheduler: Scheduler, forerunner: Forerunner, fields: dict[str, Any]
) -> None:
    before = [scheduler.submit() for _ in range(3)]
    special = scheduler.submit(**fields)
    behind = scheduler.submit()
    scheduler.end(before[0])
    assert special not in forerunner.given
    assert behind not in forerunner.given
    scheduler.end(before[1])
    assert scheduler.started()[:2] == before[:2]


@pytest.mark.parametrize("fields", SPECIAL.values(), ids=SPECIAL)
def test_nothing_is_given_while_one_runs_whose_end_matters(
    scheduler: Scheduler, forerunner: Forerunner, fields: dict[str, Any]
) -> None:
    first, special = scheduler.submit(), scheduler.submit(**fields)
    for _ in range(3):
        scheduler.submit()
    scheduler.end(first)
    assert scheduler.started() == [first, special]
    assert forerunner.aheads == []


def test_nothing_is_given_while_somebody_waits_for_who_runs(scheduler: Scheduler, forerunner: Forerunner) -> None:
    first, second, third = (scheduler.submit() for _ in range(3))
    follower = scheduler.submit(after=[second], priority=9)
    scheduler.end(first)
    assert forerunner.aheads == []
    scheduler.end(second)
    assert scheduler.started() == [first, second, follower]
    assert list(forerunner.given) == [third]


def test_nor_what_a_schedule_has_made(scheduler: Scheduler, forerunner: Forerunner) -> None:
    first = scheduler.submit()
    fire_a_schedule(scheduler)
    scheduler.end(first)
    scheduled = scheduler.started()[-1]
    assert scheduler.show(scheduled).schedule == "schedule-1"
    assert forerunner.aheads == []


# On disk.


class Witness(Forerunner):
    """Looks, through a connection of its own, whether what it is given is already in the store."""

    def __init__(self, raw: Raw, reader: Reader) -> None:
        super().__init__()
        self._raw = raw
        self._reader = reader
        self.seen: list[JobId] = []

    def send(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order, Ahead):
                stored: dict[int, int] = dict(self._raw("SELECT run, job FROM ahead"))
                assert {start.run: start.job for start in order.starts}.items() <= stored.items()
                waiting = [self._reader.job(start.job) for start in order.starts]
                assert {job.status for job in waiting if job is not None} == {Status.QUEUED}
                self.seen += [start.job for start in order.starts]
        super().send(orders)


def test_what_is_given_is_on_disk_before_it_is_told(scheduler: Scheduler, raw: Raw, store: Store) -> None:
    reader = store.reader()
    witness = Witness(raw, reader)
    equip(scheduler, witness)
    jobs = under_way(scheduler, 4)
    reader.close()
    assert witness.seen == jobs[2:]


# Taken.


def test_who_was_taken_is_claimed_as_it_was_begun(scheduler: Scheduler, forerunner: Forerunner, raw: Raw) -> None:
    jobs = under_way(scheduler)
    scheduler.start(jobs[1])
    run = forerunner.given[jobs[2]]
    scheduler.clock.advance(milliseconds=40)
    begun = scheduler.clock.moment
    messages = exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run)
    scheduler.clock.advance(milliseconds=20)
    scheduler.say(*messages)
    found = scheduler.job(jobs[2])
    assert found.run is not None
    assert (found.run.id, found.started_at, found.run.worker) == (run, begun, "local/1")
    assert scheduler.show(jobs[2]).status == "RUNNING"  # to who reads, with or without a child
    assert scheduler.status(jobs[1]) is Status.COMPLETED
    assert dispatched(scheduler) == [(jobs[0], "tick"), (jobs[1], "tick"), (jobs[2], "ahead")]
    assert raw("SELECT run FROM ahead ORDER BY run") == [(forerunner.given[job],) for job in jobs[3:]]
    scheduler.say(Started(run=run, pid=77, start_time=1))
    assert (scheduler.job(jobs[2]).pid, scheduler.started()) == (77, jobs[:2])


def test_it_has_the_place_of_who_ended(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    forerunner = equip(scheduler)
    jobs = [scheduler.submit() for _ in range(7)]
    scheduler.end(jobs[0])
    worker = worker_of(scheduler, jobs[2])
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[2])), taken(scheduler, forerunner.given[jobs[4]]))
    assert worker_of(scheduler, jobs[4]) == worker
    assert len({worker_of(scheduler, job) for job in (jobs[1], jobs[3], jobs[4])}) == 3


def test_a_clock_that_was_ahead_is_not_believed(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), Taken(run=run, at=at(scheduler) + 60))
    assert scheduler.job(jobs[2]).started_at == scheduler.clock.moment


def test_a_whole_course_in_one_turn(scheduler: Scheduler, forerunner: Forerunner, raw: Raw) -> None:
    jobs = under_way(scheduler)
    messages: list[Message] = [exited(scheduler, scheduler.run_of(jobs[1]))]
    for job in jobs[2:]:
        run = forerunner.given[job]
        messages.append(taken(scheduler, run))
        messages.append(Started(run=run, pid=100 + run, start_time=1))
        scheduler.clock.advance(milliseconds=5)
        messages.append(exited(scheduler, run))
    scheduler.say(*messages)
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 5
    for job in jobs[2:]:
        found = scheduler.job(job)
        assert found.run is not None
        assert found.run.id == forerunner.given[job]
        assert found.started_at is not None
        assert found.finished_at is not None
        assert found.finished_at - found.started_at == timedelta(milliseconds=5)
    assert forerunner.acknowledged == sorted(forerunner.begun)
    assert raw("SELECT * FROM ahead") == []
    assert scheduler.submit() == scheduler.started()[-1]  # there is room again


def test_who_fails_is_booked_and_the_next_claimed_as_ever(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    scheduler.say(
        exited(scheduler, scheduler.run_of(jobs[1])),
        taken(scheduler, run),
        Started(run=run, pid=7, start_time=1),
        exited(scheduler, run, 3),
        Withdrawn(series=SERIES),
    )
    assert statuses(scheduler, jobs) == ["COMPLETED", "COMPLETED", "FAILED", "DISPATCHED", "QUEUED"]
    assert scheduler.started() == [*jobs[:2], jobs[3]]
    assert forerunner.begun


def test_who_cannot_be_started_is_tried_again_later(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    scheduler.say(
        exited(scheduler, scheduler.run_of(jobs[1])),
        taken(scheduler, run),
        FailedToStart(run=run, error="no such program"),
        Withdrawn(series=SERIES),
    )
    assert (scheduler.status(jobs[2]), scheduler.job(jobs[2]).dispatch_failures) == (Status.QUEUED, 1)
    assert scheduler.started() == [*jobs[:2], jobs[3]]
    scheduler.clock.advance(seconds=1)
    scheduler.end(jobs[3])
    assert scheduler.started() == [*jobs[:2], jobs[3], jobs[2]]


def test_told_twice_it_changes_nothing(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    ended, begun = exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run)
    started = Started(run=run, pid=7, start_time=1)
    scheduler.say(ended, begun, ended, begun, started, started)
    first = scheduler.job(jobs[2])
    scheduler.clock.advance(milliseconds=20)
    scheduler.say(begun)
    assert scheduler.job(jobs[2]) == first
    assert dispatched(scheduler).count((jobs[2], "ahead")) == 1
    scheduler.clock.advance(minutes=6)  # its start is not awaited a second time
    scheduler.turn()
    assert forerunner.stops == []
    scheduler.say(exited(scheduler, run))
    before = scheduler.job(jobs[2])
    scheduler.say(begun)
    assert scheduler.job(jobs[2]) == before
    assert before.status is Status.COMPLETED


def test_a_start_that_nobody_confirms_is_called_back_like_any_other(
    scheduler: Scheduler, forerunner: Forerunner
) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run))
    scheduler.clock.advance(minutes=5)
    scheduler.turn()
    assert forerunner.stops == [run]
    forerunner.inbox += [Withdrawn(series=SERIES)]
    scheduler.say(Exited(run=run, at=at(scheduler), signal=15, ended_by="stop"))
    assert (scheduler.status(jobs[2]), scheduler.job(jobs[2]).dispatch_failures) == (Status.QUEUED, 1)


# Something else happens.


def test_before_a_request_all_is_withdrawn_and_what_was_taken_is_booked(
    scheduler: Scheduler, forerunner: Forerunner, raw: Raw
) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    forerunner.unsaid = [exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run)]
    seen: list[tuple[list[str], list[tuple[Any, ...]]]] = []

    def look(_: object) -> None:
        stored = raw("SELECT status FROM job ORDER BY id")
        seen.append(([status for (status,) in stored], raw("SELECT run FROM ahead")))

    scheduler.do(look)
    assert forerunner.withdrawn == [SERIES]
    # In a transaction before that of the request.
    assert seen == [(["COMPLETED", "COMPLETED", "DISPATCHED", "QUEUED", "QUEUED"], [])]


def test_who_is_urgent_goes_before_those_that_were_given(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    forerunner.unsaid = [exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run)]
    urgent = scheduler.submit(priority=9)
    assert scheduler.started() == jobs[:2]
    scheduler.say(exited(scheduler, run))
    assert scheduler.started() == [*jobs[:2], urgent]
    assert [order.series for order in forerunner.aheads] == [SERIES, SERIES + 1]  # and they are given anew, behind it
    assert list(forerunner.given) == jobs[2:]
    assert forerunner.begun


def test_after_the_answer_of_a_pause_nothing_starts(scheduler: Scheduler, forerunner: Forerunner, raw: Raw) -> None:
    jobs = under_way(scheduler)
    scheduler.pause()
    assert (forerunner.withdrawn, raw("SELECT * FROM ahead")) == ([SERIES], [])
    orders = len(forerunner.orders)
    scheduler.end(jobs[1])
    assert [type(order).__name__ for order in forerunner.orders[orders:]] == ["Acknowledge"]
    assert statuses(scheduler, jobs[2:]) == ["QUEUED"] * 3
    scheduler.resume()
    assert scheduler.started() == jobs[:3]


def test_the_hold_file_and_a_stop_withdraw_it_too(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.hold("not now")
    assert forerunner.withdrawn == [SERIES]
    scheduler.hold(None)
    scheduler.end(jobs[1])
    assert list(forerunner.given) == jobs[2:]
    assert [start.job for start in forerunner.aheads[-1].starts] == jobs[3:]
    scheduler.engine.is_draining = True
    scheduler.turn()
    assert forerunner.withdrawn == [SERIES, SERIES + 1]
    scheduler.end(jobs[2])
    assert scheduler.started() == jobs[:3]


def test_other_settings_withdraw_it_too(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.set_pools(**{"global": 3})
    assert forerunner.withdrawn == [SERIES]
    assert scheduler.started() == jobs[:4]


def test_a_limit_that_was_lowered_is_come_down_to(make_scheduler: Callable[..., Scheduler]) -> None:
    """While more run than there may, an end makes no room for the next."""
    scheduler = make_scheduler(**{"global": 3})
    forerunner = equip(scheduler)
    jobs = [scheduler.submit() for _ in range(8)]
    scheduler.set_pools(**{"global": 1})
    scheduler.end(jobs[0])
    assert forerunner.aheads == []
    scheduler.end(jobs[1])
    (order,) = forerunner.aheads
    assert (order.width, list(forerunner.given)) == (1, jobs[3:])
    assert scheduler.started() == jobs[:3]


class CreepingClock(FakeClock):
    """Time passes between two looks at it."""

    step = timedelta()

    def now(self) -> datetime:
        moment = self.moment
        self.moment += self.step
        return moment


def test_a_timer_that_comes_in_the_middle_of_a_turn_is_not_forgotten(make_scheduler: Callable[..., Scheduler]) -> None:
    """Between its looks at the clock: who is due then has room of its own and must not wait for the others."""
    scheduler = make_scheduler(**{"global": 10, "flow/a": 1})
    clock = scheduler.clock = CreepingClock()
    forerunner = equip(scheduler)
    jobs = [scheduler.submit(flow="a") for _ in range(6)]
    other = scheduler.submit(flow="b", delay="10s")
    scheduler.end(jobs[0])
    assert list(forerunner.given) == jobs[2:]
    clock.moment += timedelta(seconds=10) - timedelta(microseconds=1)
    clock.step = timedelta(microseconds=1)
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, forerunner.given[jobs[2]]))
    clock.step = timedelta()
    scheduler.turn()
    assert forerunner.withdrawn == [SERIES]
    assert scheduler.started()[-1] == other


def test_a_delay_between_starts_counts_from_what_was_taken(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.clock.advance(seconds=8)
    run = forerunner.given[jobs[2]]
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run))
    scheduler.configure(spawn_delay=timedelta(seconds=10))
    scheduler.say(exited(scheduler, run))
    scheduler.clock.advance(seconds=9)
    scheduler.turn()
    assert scheduler.started() == jobs[:2]
    scheduler.clock.advance(seconds=1)
    scheduler.turn()
    assert scheduler.started() == [*jobs[:2], jobs[3]]


def test_as_many_run_as_ran_though_an_end_is_told_before_who_took_its_place(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    scheduler = make_scheduler(**{"global": 3})
    forerunner = equip(scheduler)
    jobs = [scheduler.submit() for _ in range(2 * DEPTH)]
    scheduler.end(jobs[0])
    running = [scheduler.run_of(job) for job in jobs[1:4]]
    for job in jobs[4 : 3 + DEPTH // 2]:
        run = forerunner.given[job]
        scheduler.say(exited(scheduler, running.pop(0)), taken(scheduler, run))
        running.append(run)
    run = forerunner.given[jobs[3 + DEPTH // 2]]
    scheduler.say(exited(scheduler, running.pop(0)))
    scheduler.say(taken(scheduler, run))
    scheduler.say(exited(scheduler, running.pop(0)))
    assert [order.width for order in forerunner.aheads] == [3, 3]


def test_a_record_that_cannot_be_used_stops_nobody_else(scheduler: Scheduler, forerunner: Forerunner, raw: Raw) -> None:
    jobs = [scheduler.submit() for _ in range(5)]
    raw(f"UPDATE job SET ready_at = 9000000000000000000 WHERE id = {jobs[3]}")
    scheduler.end(jobs[0])
    assert scheduler.engine.trouble is None
    assert scheduler.started() == jobs[:2]
    assert list(forerunner.given) == jobs[2:3]


def test_told_again_after_its_end_it_changes_nothing(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler, 3)
    run = forerunner.given[jobs[2]]
    begun = taken(scheduler, run)
    started = Started(run=run, pid=7, start_time=1)
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), begun, started, exited(scheduler, run))
    scheduler.say(begun)
    assert forerunner.stops == []
    later = scheduler.submit()
    assert scheduler.started()[-1] == later


def test_a_timer_withdraws_it_too(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = [scheduler.submit() for _ in range(4)]
    delayed = scheduler.submit(delay="10s", priority=9)
    scheduler.end(jobs[0])
    assert list(forerunner.given) == jobs[2:]
    scheduler.clock.advance(seconds=10)
    scheduler.turn()
    assert forerunner.withdrawn == [SERIES]
    scheduler.end(jobs[1])
    assert scheduler.started() == [*jobs[:2], delayed]


def test_a_clock_that_is_set_back_withdraws_it_too(scheduler: Scheduler, forerunner: Forerunner) -> None:
    """What was given because its delay was over has to wait once more."""
    clock = scheduler.clock = scheduler.engine._clock = SetClock()
    scheduler.set_pools(**{"global": 0})
    first, second, delayed = scheduler.submit(), scheduler.submit(), scheduler.submit(delay="60s")
    clock.advance(seconds=90)
    scheduler.set_pools(**{"global": 1})
    scheduler.end(first)
    assert list(forerunner.given) == [delayed]
    clock.set("2026-01-01T00:00:45")
    scheduler.turn()
    assert forerunner.withdrawn == [SERIES]
    scheduler.end(second)
    assert scheduler.started() == [first, second]
    assert scheduler.detail(delayed) == "not before 2026-01-01T00:01:00Z"


def test_a_given_job_that_is_cancelled_never_runs(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.cancel(jobs[2])
    assert forerunner.withdrawn == [SERIES]
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    scheduler.end(jobs[1])
    assert scheduler.started() == [*jobs[:2], jobs[3]]
    assert [start.job for start in forerunner.aheads[-1].starts] == jobs[4:]


def test_what_was_taken_and_is_not_wanted_any_more_is_stopped(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler, 3)
    run = forerunner.given[jobs[2]]
    forerunner.is_frozen = True
    scheduler.cancel(jobs[2])
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run), Withdrawn(series=SERIES))
    assert forerunner.stops == [run]
    other = scheduler.submit()
    assert scheduler.status(other) is Status.QUEUED, "the one that is not wanted still lives"
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    scheduler.say(Started(run=run, pid=7, start_time=1))
    scheduler.say(Exited(run=run, at=at(scheduler), signal=15, ended_by="stop"))
    assert run in forerunner.acknowledged
    assert scheduler.run_of(other) not in forerunner.took, "its number is spent"
    assert scheduler.status(jobs[2]) is Status.CANCELLED


def test_while_anything_is_given_nothing_is_claimed(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.end(jobs[1])  # and who takes its place is not told yet
    assert scheduler.started() == jobs[:2]
    scheduler.say(Withdrawn(series=SERIES))
    assert scheduler.started() == jobs[:3]


def test_the_end_of_a_series_that_is_over_changes_nothing(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    scheduler.pause()
    scheduler.resume()
    scheduler.end(jobs[1])
    assert [order.series for order in forerunner.aheads] == [SERIES, SERIES + 1]
    before = scheduler.executor.orders.copy()
    scheduler.say(Withdrawn(series=SERIES))
    scheduler.end(jobs[2])
    assert [type(order).__name__ for order in forerunner.orders[len(before) :]] == ["Acknowledge"]  # still given
    run = forerunner.given[jobs[3]]
    scheduler.say(taken(scheduler, run))
    assert scheduler.job(jobs[3]).run is not None
    assert dispatched(scheduler)[-1] == (jobs[3], "ahead")


def test_one_that_does_not_answer_holds_up_nobody(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    forerunner.is_frozen = True
    urgent = scheduler.submit(priority=9)
    scheduler.pause("flow/other")
    assert forerunner.withdrawn == [SERIES]  # asked once
    assert scheduler.status(urgent) is Status.QUEUED
    scheduler.end(jobs[1])
    assert scheduler.started() == jobs[:2]  # it may have taken the room
    scheduler.say(taken(scheduler, run), Started(run=run, pid=7, start_time=1))
    assert scheduler.show(jobs[2]).pid == 7
    scheduler.say(exited(scheduler, run))
    assert scheduler.status(jobs[2]) is Status.COMPLETED
    assert scheduler.started() == jobs[:2]
    scheduler.say(Withdrawn(series=SERIES))
    assert scheduler.started() == [*jobs[:2], urgent]


def test_who_came_to_wait_for_one_that_is_given_meanwhile_is_let_go(
    scheduler: Scheduler, forerunner: Forerunner
) -> None:
    """What was foreseen of it, that its end matters to nobody, is not so any more."""
    jobs = under_way(scheduler, 3)
    run = forerunner.given[jobs[2]]
    forerunner.is_frozen = True
    follower = scheduler.submit(after=[jobs[2]])
    scheduler.say(
        exited(scheduler, scheduler.run_of(jobs[1])),
        taken(scheduler, run),
        Started(run=run, pid=7, start_time=1),
        exited(scheduler, run),
        Withdrawn(series=SERIES),
    )
    assert scheduler.started() == [*jobs[:2], follower]


def test_who_came_to_wait_for_one_that_was_taken_is_let_go(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    run = forerunner.given[jobs[2]]
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run))
    follower = scheduler.submit(after=[jobs[2]], priority=9)
    scheduler.say(exited(scheduler, run))
    assert scheduler.started() == [*jobs[:2], follower]


# Crashes.


def test_after_a_crash_what_was_taken_is_adopted_and_the_rest_waits_where_it_stood(
    scheduler: Scheduler, forerunner: Forerunner, raw: Raw
) -> None:
    jobs = under_way(scheduler)
    runner, ended, living = scheduler.run_of(jobs[1]), *(forerunner.given[job] for job in jobs[2:4])
    given_at = scheduler.clock.moment
    used = forerunner.begun
    scheduler.clock.advance(seconds=3)
    scheduler.crash(
        [
            Account(run=runner, pid=None, has_ended=True),
            Account(run=ended, pid=None, has_ended=True),
            Account(run=living, pid=77, start_time=1),
        ]
    )
    assert raw("SELECT * FROM ahead") == []
    found = scheduler.job(jobs[3])
    assert found.run is not None
    assert (found.status, found.pid, found.run.id, found.started_at) == (Status.RUNNING, 77, living, given_at)
    assert scheduler.started() == []
    scheduler.say(exited(scheduler, runner), exited(scheduler, ended))
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 3 + ["RUNNING", "QUEUED"]
    urgent = scheduler.submit(priority=9)
    scheduler.say(exited(scheduler, living))
    assert scheduler.drain() == [urgent, jobs[4]]
    assert not {*used, ended, living} & {start.run for start in scheduler.executor.starts}
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 5


def test_after_a_crash_before_it_was_told_all_wait_again(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    used = forerunner.begun
    scheduler.crash()
    assert scheduler.drain() == jobs[1:]  # nobody knows of the second either
    assert not set(used) & {start.run for start in scheduler.executor.starts}


def test_after_a_crash_what_was_taken_and_cancelled_is_ended_first(
    scheduler: Scheduler, forerunner: Forerunner
) -> None:
    jobs = under_way(scheduler)
    runner, run = scheduler.run_of(jobs[1]), forerunner.given[jobs[2]]
    forerunner.is_frozen = True
    scheduler.cancel(jobs[2])
    scheduler.crash([Account(run=runner, pid=None, has_ended=True), Account(run=run, pid=77, start_time=1)])
    scheduler.say(exited(scheduler, runner))
    assert (scheduler.executor.stops, scheduler.started()) == ([run], [])
    scheduler.say(Exited(run=run, at=at(scheduler), signal=15, ended_by="stop"))
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    assert scheduler.started() == [jobs[3]]


def test_a_new_connection_settles_it_likewise(scheduler: Scheduler, forerunner: Forerunner, raw: Raw) -> None:
    jobs = under_way(scheduler)
    runner, run = scheduler.run_of(jobs[1]), forerunner.given[jobs[2]]
    scheduler.say(Lost(reason="it was killed"))
    forerunner.is_frozen = True  # nobody is there to answer
    urgent = scheduler.submit(priority=9)
    assert scheduler.started() == jobs[:2]
    accounts = Accounts(runs=[Account(run=runner, pid=None, has_ended=True), Account(run=run, pid=77, start_time=1)])
    scheduler.say(accounts, exited(scheduler, runner))
    assert (scheduler.job(jobs[2]).pid, raw("SELECT * FROM ahead")) == (77, [])
    assert scheduler.started() == jobs[:2]
    scheduler.say(exited(scheduler, run))
    assert scheduler.started() == [*jobs[:2], urgent]
    assert [order.series for order in forerunner.aheads] == [SERIES, SERIES + 1]
    assert forerunner.begun


# A store that cannot be written to.


@pytest.fixture
def flaky(store: Store, tmp_path: Path) -> Iterator[Flaky]:
    scheduler = Flaky(FlakyStore(store), tmp_path)
    yield scheduler
    scheduler.close()


def test_what_was_taken_while_the_disk_was_full_is_booked_once(flaky: Flaky) -> None:
    forerunner = equip(flaky)
    jobs = under_way(flaky)
    run = forerunner.given[jobs[2]]
    begun = flaky.clock.moment
    flaky.fail(2)
    flaky.say(exited(flaky, flaky.run_of(jobs[1])), taken(flaky, run), Started(run=run, pid=7, start_time=1))
    assert flaky.is_in_trouble()
    flaky.clock.advance(seconds=1)
    flaky.turn()
    assert (flaky.is_in_trouble(), flaky.status(jobs[2])) == (True, Status.QUEUED)
    flaky.clock.advance(seconds=1)
    flaky.turn()
    found = flaky.job(jobs[2])
    assert (flaky.is_in_trouble(), found.started_at, found.pid) == (False, begun, 7)
    assert dispatched(flaky).count((jobs[2], "ahead")) == 1
    flaky.say(exited(flaky, run))
    assert flaky.status(jobs[2]) is Status.COMPLETED
    assert forerunner.stops == []


def test_while_nothing_can_be_stored_nothing_is_started(flaky: Flaky) -> None:
    forerunner = equip(flaky)
    jobs = under_way(flaky)
    flaky.fail(3)
    flaky.say(exited(flaky, flaky.run_of(jobs[1])), taken(flaky, forerunner.given[jobs[2]]))
    assert flaky.is_in_trouble()
    assert forerunner.withdrawn == [SERIES]
    for _ in range(3):
        flaky.turn()
    assert statuses(flaky, jobs) == ["COMPLETED", "COMPLETED", "DISPATCHED", "QUEUED", "QUEUED"]


def test_nothing_is_given_by_a_turn_that_could_not_be_stored(flaky: Flaky) -> None:
    forerunner = equip(flaky)
    jobs = [flaky.submit() for _ in range(4)]
    flaky.fail()
    flaky.end(jobs[0])
    assert forerunner.aheads == []
    flaky.turn()
    assert list(forerunner.given) == jobs[2:]


def test_a_request_that_comes_while_the_disk_is_full_is_told_so_and_what_was_taken_is_kept(flaky: Flaky) -> None:
    forerunner = equip(flaky)
    jobs = under_way(flaky)
    run = forerunner.given[jobs[2]]
    forerunner.unsaid = [exited(flaky, flaky.run_of(jobs[1])), taken(flaky, run)]
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit(priority=9)
    assert flaky.status(jobs[2]) is Status.QUEUED
    flaky.turn()
    assert dispatched(flaky)[-1] == (jobs[2], "ahead")
    assert forerunner.withdrawn == [SERIES]
    flaky.say(exited(flaky, run))
    assert flaky.started() == [*jobs[:2], jobs[3]]


def test_nobody_is_left_without_an_answer_by_one_that_was_replaced(
    flaky: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what it was asked was not begun."""
    equip(flaky)
    under_way(flaky)
    monkeypatch.setattr(FlakySession, "trouble", Superseded("another scheduler has it"))
    flaky.fail()
    answers: list[object] = []
    begun: list[object] = []
    with pytest.raises(Superseded):
        flaky.engine.turn([Request(begun.append, answers.append)])
    assert [type(answer) for answer in answers] == [Superseded]
    assert begun == []


# What is said of it.


def test_what_is_given_waits_like_any_other(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    shown = scheduler.show(jobs[2])
    assert (shown.status, scheduler.detail(jobs[2])) == ("QUEUED", "waiting on pool global (1/1)")
    assert "waiting on pool global (1/1)" in str(scheduler.why(jobs[2]))
    said = scheduler.dry_run()
    assert (said["dispatched"], said["would_dispatch"], said["reason"]) == ([], [], "capacity")
    assert forerunner.withdrawn == []  # who only looks disturbs nobody


def test_a_tick_by_hand_withdraws_it(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler)
    forerunner.unsaid = [exited(scheduler, scheduler.run_of(jobs[1]))]
    assert scheduler.tick()["dispatched"] == [show_job(jobs[2])]
    assert forerunner.withdrawn == [SERIES]


def test_the_moment_is_that_of_the_executor(scheduler: Scheduler, forerunner: Forerunner) -> None:
    """The moment at which it was taken, not that at which it was given."""
    jobs = under_way(scheduler)
    scheduler.clock.advance(seconds=10)
    moment = datetime(2026, 1, 1, 0, 0, 4, tzinfo=UTC)
    scheduler.say(
        Exited(run=scheduler.run_of(jobs[1]), at=moment.timestamp(), code=0),
        Taken(run=forerunner.given[jobs[2]], at=moment.timestamp()),
    )
    assert scheduler.job(jobs[2]).started_at == scheduler.job(jobs[1]).finished_at == moment


def test_what_was_edited_while_the_executor_was_silent_is_not_booked_as_it_was(
    scheduler: Scheduler, forerunner: Forerunner
) -> None:
    """It would start what it was given, and the record would say something else."""
    jobs = under_way(scheduler, 3)
    run = forerunner.given[jobs[2]]
    forerunner.is_frozen = True
    scheduler.do(lambda work: edit(work, jobs[2], Edit(command=["other"]), actor="tester"))
    scheduler.say(exited(scheduler, scheduler.run_of(jobs[1])), taken(scheduler, run), Withdrawn(series=SERIES))
    assert forerunner.stops == [run]
    scheduler.say(Exited(run=run, at=at(scheduler), signal=15, ended_by="stop"))
    assert scheduler.started()[-1] == jobs[2]
    assert forerunner.starts[-1].argv == ("other",)


def test_that_nothing_starts_is_said_only_of_an_executor_that_does_not_answer(
    scheduler: Scheduler, forerunner: Forerunner
) -> None:
    """Whoever looks while it is asked sees nothing of it."""
    seen: list[list[str]] = []
    answer = forerunner.withdraw

    def withdraw(series: int, patience: float) -> None:
        answer(series, patience)
        seen.append(scheduler.engine.obstacles)

    forerunner.withdraw = withdraw  # type: ignore[method-assign]
    under_way(scheduler)
    scheduler.submit()
    assert seen == [[]]
    scheduler.end(scheduler.started()[-1])
    forerunner.is_frozen = True
    scheduler.submit()
    assert scheduler.engine.obstacles == ["nothing is started before the supervisor has said what it started by itself"]


def test_what_is_given_is_nobodys_in_a_store_that_was_restored(scheduler: Scheduler, forerunner: Forerunner) -> None:
    jobs = under_way(scheduler, 3)
    scheduler.session.begin()
    scheduler.session.drop_ahead()  # as a restore does
    scheduler.session.commit()
    scheduler.crash([Account(run=forerunner.given[jobs[2]], pid=7, start_time=1)])
    assert scheduler.status(jobs[2]) is Status.QUEUED
