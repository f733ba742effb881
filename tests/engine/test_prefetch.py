"""Prefetch: jobs that the executor starts by itself. They are offered only where their order is certain, stored before
they are sent, and recorded in order, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.db.database import SupersededError
from rota.db.session import Reader
from rota.db.store import Store
from rota.engine.transaction import TurnRequest
from rota.errors import StorageFull
from rota.executor.port import (
    ConnectionLoss,
    ExecutorMessage,
    ExecutorOrder,
    ExitReport,
    PrefetchOrder,
    PrefetchStart,
    RunInventory,
    RunReport,
    StartConfirmation,
    StartFailure,
    WithdrawConfirmation,
)
from rota.ids import JobId, RunId, format_job_id
from rota.jobs.edit import EditRequest, edit
from rota.kernel.prefetch import MAX_SHORT_RUN, PREFETCH_DEPTH
from rota.kernel.status import Status
from tests.engine.schedule_harness import AdjustableClock, ScheduleDriver
from tests.engine.test_store_failure import FlakyScheduler, FlakySession, FlakyStore
from tests.harness import FakeClock, FakeExecutor, Scheduler, SqlRunner

SECOND = timedelta(seconds=1)
SERIES = 2
"""The first series in which jobs are offered: a new connection ends the one before."""


class PrefetchExecutor(FakeExecutor):
    """Executor that supports prefetch. The test decides when it starts and reports the jobs."""

    supports_prefetch = True

    def __init__(self) -> None:
        super().__init__()
        self.is_unresponsive = False
        """Does not confirm a withdrawal in time."""
        self.withdrawn: list[int] = []
        """Series that the engine withdrew."""
        self.unreported: list[ExecutorMessage] = []
        """Messages that the next withdrawal makes it report."""
        self.prefetched_runs: list[RunId] = []
        """Prefetched runs that it reported as started, each once."""

    def receive(self) -> list[ExecutorMessage]:
        messages = super().receive()
        runs = [message.run for message in messages if isinstance(message, PrefetchStart)]
        self.prefetched_runs += [run for run in dict.fromkeys(runs) if run not in self.prefetched_runs]
        return messages

    def withdraw(self, series: int, patience: float) -> None:
        self.withdrawn.append(series)
        if not self.is_unresponsive:
            self.inbox += [*self.unreported, WithdrawConfirmation(series=series)]
            self.unreported = []

    @property
    def prefetch_orders(self) -> list[PrefetchOrder]:
        return [order for order in self.orders if isinstance(order, PrefetchOrder)]

    @property
    def offered(self) -> dict[JobId, RunId]:
        """All jobs that it was offered, in order, each with its last run number."""
        return {start.job: start.run for order in self.prefetch_orders for start in order.starts}

    @property
    def started_runs(self) -> list[RunId]:
        """All runs that it was ordered to start or reported as started. Each number belongs to one run."""
        runs = [*(start.run for start in self.starts), *self.prefetched_runs]
        assert len(set(runs)) == len(runs)
        return runs


def use_prefetch_executor(scheduler: Scheduler, executor: PrefetchExecutor | None = None) -> PrefetchExecutor:
    """Give the scheduler an executor that supports prefetch."""
    executor = executor or PrefetchExecutor()
    scheduler.session.close()
    scheduler.executor = executor
    scheduler.start_engine()
    return executor


def start_prefetch(scheduler: Scheduler, count: int = 5) -> list[JobId]:
    """Submit jobs so that the first has ended, the second runs and the others are offered."""
    jobs = [scheduler.submit() for _ in range(count)]
    scheduler.end_run(jobs[0])
    return jobs


def timestamp_of(scheduler: Scheduler) -> float:
    return scheduler.clock.moment.timestamp()


def exit_report(scheduler: Scheduler, run: RunId, code: int = 0) -> ExitReport:
    return ExitReport(run=run, at=timestamp_of(scheduler), code=code)


def prefetch_start_of(scheduler: Scheduler, run: RunId) -> PrefetchStart:
    return PrefetchStart(run=run, at=timestamp_of(scheduler))


def dispatch_events(scheduler: Scheduler) -> list[tuple[JobId | None, str]]:
    return [(event.job, event.cause) for event in scheduler.events if event.kind == "job.dispatched"]


def statuses(scheduler: Scheduler, jobs: Sequence[JobId]) -> list[str]:
    return [scheduler.status(job).value for job in jobs]


def worker_of(scheduler: Scheduler, job: JobId) -> str:
    run = scheduler.job(job).run
    assert run is not None
    return run.worker


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One job at a time."""
    return make_scheduler()


@pytest.fixture
def executor(scheduler: Scheduler) -> PrefetchExecutor:
    return use_prefetch_executor(scheduler)


# When jobs are offered.


def test_short_success_offers_next_jobs_in_order(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = [scheduler.submit() for _ in range(4)]
    urgent = scheduler.submit(priority=9)
    assert executor.prefetch_orders == []  # nothing has succeeded yet
    scheduler.end_run(jobs[0])
    assert scheduler.started_jobs() == [jobs[0], urgent]
    assert list(executor.offered) == jobs[1:]
    (order,) = executor.prefetch_orders
    assert order.max_running == 1
    assert [type(order).__name__ for order in executor.orders[-3:]] == [
        "StartOrder",
        "PrefetchOrder",
        "AcknowledgeOrder",
    ]


def test_max_running_of_order_equals_running_jobs(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    executor = use_prefetch_executor(scheduler)
    jobs = [scheduler.submit() for _ in range(6)]
    scheduler.end_run(jobs[0])
    (order,) = executor.prefetch_orders
    assert (order.max_running, list(executor.offered)) == (3, jobs[4:])


def test_more_jobs_are_offered_when_half_are_started(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler, 2 * PREFETCH_DEPTH)
    assert list(executor.offered) == jobs[2 : 2 + PREFETCH_DEPTH]
    runner = scheduler.find_run(jobs[1])
    for job in jobs[2 : 2 + PREFETCH_DEPTH // 2]:
        assert len(executor.prefetch_orders) == 1
        run = executor.offered[job]
        scheduler.receive(exit_report(scheduler, runner), prefetch_start_of(scheduler, run))
        runner = run
    assert list(executor.offered) == jobs[2:]
    assert [order.series for order in executor.prefetch_orders] == [SERIES, SERIES]


def short_run(scheduler: Scheduler) -> None:
    scheduler.clock.advance(seconds=(MAX_SHORT_RUN - timedelta(milliseconds=1)).total_seconds())


def long_run(scheduler: Scheduler) -> None:
    scheduler.clock.advance(seconds=1)


@pytest.mark.parametrize(("wait", "is_offered"), [(short_run, True), (long_run, False)])
def test_longer_runs_do_not_benefit_from_prefetching(
    scheduler: Scheduler, executor: PrefetchExecutor, wait: Callable[[Scheduler], None], is_offered: bool
) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    wait(scheduler)
    scheduler.end_run(jobs[0])
    assert bool(executor.prefetch_orders) is is_offered
    assert scheduler.started_jobs() == jobs[:2]


def test_failure_offers_no_jobs(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = [scheduler.submit() for _ in range(3)]
    scheduler.end_run(jobs[0], 1)
    assert executor.prefetch_orders == []
    assert scheduler.started_jobs() == jobs[:2]


def test_executor_without_prefetch_gets_no_offer(scheduler: Scheduler) -> None:
    jobs = start_prefetch(scheduler, 3)
    assert {type(order).__name__ for order in scheduler.executor.orders} == {
        "EnvironmentUpload",
        "StartOrder",
        "AcknowledgeOrder",
    }
    assert scheduler.started_jobs() == jobs[:2]


Prepare = Callable[[Scheduler], object]


def fire_a_schedule(scheduler: Scheduler) -> None:
    driver = ScheduleDriver(scheduler)
    driver.add_schedule("* * * * *")
    driver.advance_to("2026-01-01T00:01")


PREPARED: dict[str, Prepare] = {
    "a job of another lane is ready": lambda scheduler: scheduler.submit(type="other"),
    "a group": lambda scheduler: scheduler.submit_group({"priority": 9}, {"priority": 9}),
    "a direct execution waits": lambda scheduler: scheduler.reserve("x", pools={"resource/ollama": 1}),
    "something is paused": lambda scheduler: scheduler.pause("flow/other"),
    "a batch": lambda scheduler: scheduler.configure(batch_size=1),
    "a heartbeat": lambda scheduler: scheduler.configure(dispatch_interval=SECOND),
    "a delay between starts": lambda scheduler: scheduler.configure(spawn_delay=SECOND),
    "the hold file": lambda scheduler: scheduler.set_hold_text("not now"),
    "the scheduler stops": lambda scheduler: setattr(scheduler.engine, "is_draining", True),
}


@pytest.mark.parametrize("prepare", PREPARED.values(), ids=PREPARED)
def test_no_jobs_are_offered_when_more_than_capacity_decides(
    make_scheduler: Callable[..., Scheduler], prepare: Prepare
) -> None:
    scheduler = make_scheduler()
    executor = use_prefetch_executor(scheduler)
    first, *_ = [scheduler.submit() for _ in range(5)]
    prepare(scheduler)
    before = len(executor.prefetch_orders)
    scheduler.end_run(first)
    assert len(executor.prefetch_orders) == before == 0


def test_no_jobs_are_offered_while_breaker_is_open(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    scheduler.set_breaker_policy(failures=1, window=timedelta(minutes=10), cool_down=timedelta(minutes=5))
    scheduler.end_run(scheduler.submit(type="flaky"), 1)
    jobs = start_prefetch(scheduler)
    assert (scheduler.started_jobs()[1:], executor.prefetch_orders) == (jobs[:2], [])


SPECIAL: dict[str, dict[str, Any]] = {
    "a lock": {"locks": ["repo"]},
    "a product": {"produces": ["file:/plan.md"]},
    "a skip check": {"skip_if": "true"},
}


@pytest.mark.parametrize("fields", SPECIAL.values(), ids=SPECIAL)
def test_offer_stops_before_job_whose_end_matters(
    scheduler: Scheduler, executor: PrefetchExecutor, fields: dict[str, Any]
) -> None:
    before = [scheduler.submit() for _ in range(3)]
    special = scheduler.submit(**fields)
    behind = scheduler.submit()
    scheduler.end_run(before[0])
    assert special not in executor.offered
    assert behind not in executor.offered
    scheduler.end_run(before[1])
    assert scheduler.started_jobs()[:2] == before[:2]


@pytest.mark.parametrize("fields", SPECIAL.values(), ids=SPECIAL)
def test_nothing_is_offered_while_job_whose_end_matters_runs(
    scheduler: Scheduler, executor: PrefetchExecutor, fields: dict[str, Any]
) -> None:
    first, special = scheduler.submit(), scheduler.submit(**fields)
    for _ in range(3):
        scheduler.submit()
    scheduler.end_run(first)
    assert scheduler.started_jobs() == [first, special]
    assert executor.prefetch_orders == []


def test_nothing_is_offered_while_a_successor_waits_for_running_job(
    scheduler: Scheduler, executor: PrefetchExecutor
) -> None:
    first, second, third = (scheduler.submit() for _ in range(3))
    follower = scheduler.submit(after=[second], priority=9)
    scheduler.end_run(first)
    assert executor.prefetch_orders == []
    scheduler.end_run(second)
    assert scheduler.started_jobs() == [first, second, follower]
    assert list(executor.offered) == [third]


def test_nothing_is_offered_while_scheduled_job_runs(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    first = scheduler.submit()
    fire_a_schedule(scheduler)
    scheduler.end_run(first)
    scheduled = scheduler.started_jobs()[-1]
    assert scheduler.show_job(scheduled).schedule == "schedule-1"
    assert executor.prefetch_orders == []


# Durability.


class DurabilityChecker(PrefetchExecutor):
    """Checks through a second connection that offered jobs are already in the store."""

    def __init__(self, run_sql: SqlRunner, reader: Reader) -> None:
        super().__init__()
        self._run_sql = run_sql
        self._reader = reader
        self.checked: list[JobId] = []

    def send(self, orders: Sequence[ExecutorOrder]) -> None:
        for order in orders:
            if isinstance(order, PrefetchOrder):
                stored: dict[int, int] = dict(self._run_sql("SELECT run, job FROM prefetch"))
                assert {start.run: start.job for start in order.starts}.items() <= stored.items()
                waiting = [self._reader.jobs.find(start.job) for start in order.starts]
                assert {job.status for job in waiting if job is not None} == {Status.QUEUED}
                self.checked += [start.job for start in order.starts]
        super().send(orders)


def test_offer_is_stored_before_it_is_sent(scheduler: Scheduler, run_sql: SqlRunner, store: Store) -> None:
    reader = store.reader()
    checker = DurabilityChecker(run_sql, reader)
    use_prefetch_executor(scheduler, checker)
    jobs = start_prefetch(scheduler, 4)
    reader.close()
    assert checker.checked == jobs[2:]


# Started by the executor.


def test_prefetched_job_is_claimed_with_its_own_run_and_start_time(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.confirm_start(jobs[1])
    run = executor.offered[jobs[2]]
    scheduler.clock.advance(milliseconds=40)
    started = scheduler.clock.moment
    messages = exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run)
    scheduler.clock.advance(milliseconds=20)
    scheduler.receive(*messages)
    job = scheduler.job(jobs[2])
    assert job.run is not None
    assert (job.run.id, job.started_at, job.run.worker) == (run, started, "local/1")
    assert scheduler.show_job(jobs[2]).status == "RUNNING"  # shown as running before its process is confirmed
    assert scheduler.status(jobs[1]) is Status.COMPLETED
    assert dispatch_events(scheduler) == [(jobs[0], "tick"), (jobs[1], "tick"), (jobs[2], "prefetch")]
    assert run_sql("SELECT run FROM prefetch ORDER BY run") == [(executor.offered[job],) for job in jobs[3:]]
    scheduler.receive(StartConfirmation(run=run, pid=77, start_time=1))
    assert (scheduler.job(jobs[2]).pid, scheduler.started_jobs()) == (77, jobs[:2])


def test_prefetched_job_takes_worker_of_ended_job(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    executor = use_prefetch_executor(scheduler)
    jobs = [scheduler.submit() for _ in range(7)]
    scheduler.end_run(jobs[0])
    worker = worker_of(scheduler, jobs[2])
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[2])), prefetch_start_of(scheduler, executor.offered[jobs[4]])
    )
    assert worker_of(scheduler, jobs[4]) == worker
    assert len({worker_of(scheduler, job) for job in (jobs[1], jobs[3], jobs[4])}) == 3


def test_start_time_in_the_future_is_not_trusted(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])), PrefetchStart(run=run, at=timestamp_of(scheduler) + 60)
    )
    assert scheduler.job(jobs[2]).started_at == scheduler.clock.moment


def test_whole_series_is_recorded_in_one_turn(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = start_prefetch(scheduler)
    messages: list[ExecutorMessage] = [exit_report(scheduler, scheduler.find_run(jobs[1]))]
    for job in jobs[2:]:
        run = executor.offered[job]
        messages.append(prefetch_start_of(scheduler, run))
        messages.append(StartConfirmation(run=run, pid=100 + run, start_time=1))
        scheduler.clock.advance(milliseconds=5)
        messages.append(exit_report(scheduler, run))
    scheduler.receive(*messages)
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 5
    for job in jobs[2:]:
        record = scheduler.job(job)
        assert record.run is not None
        assert record.run.id == executor.offered[job]
        assert record.started_at is not None
        assert record.finished_at is not None
        assert record.finished_at - record.started_at == timedelta(milliseconds=5)
    assert executor.acknowledged == sorted(executor.started_runs)
    assert run_sql("SELECT * FROM prefetch") == []
    assert scheduler.submit() == scheduler.started_jobs()[-1]  # there is room again


def test_failed_prefetched_job_is_recorded_and_next_is_claimed_normally(
    scheduler: Scheduler, executor: PrefetchExecutor
) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])),
        prefetch_start_of(scheduler, run),
        StartConfirmation(run=run, pid=7, start_time=1),
        exit_report(scheduler, run, 3),
        WithdrawConfirmation(series=SERIES),
    )
    assert statuses(scheduler, jobs) == ["COMPLETED", "COMPLETED", "FAILED", "DISPATCHED", "QUEUED"]
    assert scheduler.started_jobs() == [*jobs[:2], jobs[3]]
    assert executor.started_runs


def test_prefetched_job_that_cannot_start_is_retried_later(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])),
        prefetch_start_of(scheduler, run),
        StartFailure(run=run, error="no such program"),
        WithdrawConfirmation(series=SERIES),
    )
    assert (scheduler.status(jobs[2]), scheduler.job(jobs[2]).dispatch_failures) == (Status.QUEUED, 1)
    assert scheduler.started_jobs() == [*jobs[:2], jobs[3]]
    scheduler.clock.advance(seconds=1)
    scheduler.end_run(jobs[3])
    assert scheduler.started_jobs() == [*jobs[:2], jobs[3], jobs[2]]


def test_repeated_messages_change_nothing(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    ended, prefetch_start = exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run)
    started = StartConfirmation(run=run, pid=7, start_time=1)
    scheduler.receive(ended, prefetch_start, ended, prefetch_start, started, started)
    first = scheduler.job(jobs[2])
    scheduler.clock.advance(milliseconds=20)
    scheduler.receive(prefetch_start)
    assert scheduler.job(jobs[2]) == first
    assert dispatch_events(scheduler).count((jobs[2], "prefetch")) == 1
    scheduler.clock.advance(minutes=6)  # its start is not awaited a second time
    scheduler.run_turns()
    assert scheduler.engine.silence is None
    scheduler.receive(exit_report(scheduler, run))
    before = scheduler.job(jobs[2])
    scheduler.receive(prefetch_start)
    assert scheduler.job(jobs[2]) == before
    assert before.status is Status.COMPLETED


# Withdrawals.


def test_request_withdraws_offer_after_recording_started_jobs(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    executor.unreported = [exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run)]
    observed: list[tuple[list[str], list[tuple[Any, ...]]]] = []

    def observe(_: object) -> None:
        stored = run_sql("SELECT status FROM job ORDER BY id")
        observed.append(([status for (status,) in stored], run_sql("SELECT run FROM prefetch")))

    scheduler.run_request(observe)
    assert executor.withdrawn == [SERIES]
    # In a transaction before that of the request.
    assert observed == [(["COMPLETED", "COMPLETED", "DISPATCHED", "QUEUED", "QUEUED"], [])]


def test_urgent_job_starts_before_withdrawn_ones(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    executor.unreported = [exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run)]
    urgent = scheduler.submit(priority=9)
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.receive(exit_report(scheduler, run))
    assert scheduler.started_jobs() == [*jobs[:2], urgent]
    assert [order.series for order in executor.prefetch_orders] == [SERIES, SERIES + 1]  # offered again, behind it
    assert list(executor.offered) == jobs[2:]
    assert executor.started_runs


def test_nothing_starts_after_response_of_pause(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.pause()
    assert (executor.withdrawn, run_sql("SELECT * FROM prefetch")) == ([SERIES], [])
    orders = len(executor.orders)
    scheduler.end_run(jobs[1])
    assert [type(order).__name__ for order in executor.orders[orders:]] == ["AcknowledgeOrder"]
    assert statuses(scheduler, jobs[2:]) == ["QUEUED"] * 3
    scheduler.resume()
    assert scheduler.started_jobs() == jobs[:3]


def test_hold_file_and_shutdown_withdraw_offer(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.set_hold_text("not now")
    assert executor.withdrawn == [SERIES]
    scheduler.set_hold_text(None)
    scheduler.end_run(jobs[1])
    assert list(executor.offered) == jobs[2:]
    assert [start.job for start in executor.prefetch_orders[-1].starts] == jobs[3:]
    scheduler.engine.is_draining = True
    scheduler.run_turns()
    assert executor.withdrawn == [SERIES, SERIES + 1]
    scheduler.end_run(jobs[2])
    assert scheduler.started_jobs() == jobs[:3]


def test_changed_settings_withdraw_offer(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.set_pools(**{"global": 3})
    assert executor.withdrawn == [SERIES]
    assert scheduler.started_jobs() == jobs[:4]


def test_lowered_limit_is_reached_before_next_offer(make_scheduler: Callable[..., Scheduler]) -> None:
    """While more jobs run than the limit allows, an end frees no capacity."""
    scheduler = make_scheduler(**{"global": 3})
    executor = use_prefetch_executor(scheduler)
    jobs = [scheduler.submit() for _ in range(8)]
    scheduler.set_pools(**{"global": 1})
    scheduler.end_run(jobs[0])
    assert executor.prefetch_orders == []
    scheduler.end_run(jobs[1])
    (order,) = executor.prefetch_orders
    assert (order.max_running, list(executor.offered)) == (1, jobs[3:])
    assert scheduler.started_jobs() == jobs[:3]


class CreepingClock(FakeClock):
    """Clock that advances between two reads."""

    step = timedelta()

    def now(self) -> datetime:
        moment = self.moment
        self.moment += self.step
        return moment


def test_timer_that_comes_due_within_a_turn_is_not_missed(make_scheduler: Callable[..., Scheduler]) -> None:
    """A job that becomes due between two clock reads has its own capacity and must not wait for the others."""
    scheduler = make_scheduler(**{"global": 10, "flow/a": 1})
    clock = scheduler.clock = CreepingClock()
    executor = use_prefetch_executor(scheduler)
    jobs = [scheduler.submit(flow="a") for _ in range(6)]
    other = scheduler.submit(flow="b", delay="10s")
    scheduler.end_run(jobs[0])
    assert list(executor.offered) == jobs[2:]
    clock.moment += timedelta(seconds=10) - timedelta(microseconds=1)
    clock.step = timedelta(microseconds=1)
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, executor.offered[jobs[2]])
    )
    clock.step = timedelta()
    scheduler.run_turns()
    assert executor.withdrawn == [SERIES]
    assert scheduler.started_jobs()[-1] == other


def test_spawn_delay_counts_from_prefetched_start(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.clock.advance(seconds=8)
    run = executor.offered[jobs[2]]
    scheduler.receive(exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run))
    scheduler.configure(spawn_delay=timedelta(seconds=10))
    scheduler.receive(exit_report(scheduler, run))
    scheduler.clock.advance(seconds=9)
    scheduler.run_turns()
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.clock.advance(seconds=1)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [*jobs[:2], jobs[3]]


def test_max_running_is_kept_when_end_arrives_before_next_start(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    executor = use_prefetch_executor(scheduler)
    jobs = [scheduler.submit() for _ in range(2 * PREFETCH_DEPTH)]
    scheduler.end_run(jobs[0])
    running = [scheduler.find_run(job) for job in jobs[1:4]]
    for job in jobs[4 : 3 + PREFETCH_DEPTH // 2]:
        run = executor.offered[job]
        scheduler.receive(exit_report(scheduler, running.pop(0)), prefetch_start_of(scheduler, run))
        running.append(run)
    run = executor.offered[jobs[3 + PREFETCH_DEPTH // 2]]
    scheduler.receive(exit_report(scheduler, running.pop(0)))
    scheduler.receive(prefetch_start_of(scheduler, run))
    scheduler.receive(exit_report(scheduler, running.pop(0)))
    assert [order.max_running for order in executor.prefetch_orders] == [3, 3]


def test_unusable_record_does_not_stop_other_jobs(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = [scheduler.submit() for _ in range(5)]
    run_sql(f"UPDATE job SET ready_at = 9000000000000000000 WHERE id = {jobs[3]}")
    scheduler.end_run(jobs[0])
    assert scheduler.engine.store_error is None
    assert scheduler.started_jobs() == jobs[:2]
    assert list(executor.offered) == jobs[2:3]


def test_start_reported_again_after_its_end_changes_nothing(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler, 3)
    run = executor.offered[jobs[2]]
    prefetch_start = prefetch_start_of(scheduler, run)
    started = StartConfirmation(run=run, pid=7, start_time=1)
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start, started, exit_report(scheduler, run)
    )
    scheduler.receive(prefetch_start)
    assert executor.stops == []
    later = scheduler.submit()
    assert scheduler.started_jobs()[-1] == later


def test_timer_withdraws_offer(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = [scheduler.submit() for _ in range(4)]
    delayed = scheduler.submit(delay="10s", priority=9)
    scheduler.end_run(jobs[0])
    assert list(executor.offered) == jobs[2:]
    scheduler.clock.advance(seconds=10)
    scheduler.run_turns()
    assert executor.withdrawn == [SERIES]
    scheduler.end_run(jobs[1])
    assert scheduler.started_jobs() == [*jobs[:2], delayed]


def test_clock_set_back_withdraws_offer(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    """A job offered because its delay was over keeps its place: a delay that is over stays over."""
    clock = scheduler.clock = scheduler.engine._clock = AdjustableClock()
    scheduler.set_pools(**{"global": 0})
    first, second, delayed = scheduler.submit(), scheduler.submit(), scheduler.submit(delay="60s")
    clock.advance(seconds=90)
    scheduler.set_pools(**{"global": 1})
    scheduler.end_run(first)
    assert list(executor.offered) == [delayed]
    clock.set_time("2026-01-01T00:00:45")
    scheduler.run_turns()
    assert executor.withdrawn == [SERIES]
    scheduler.end_run(second)
    assert scheduler.started_jobs() == [first, second, delayed]


def test_offered_job_that_is_cancelled_never_runs(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.cancel(jobs[2])
    assert executor.withdrawn == [SERIES]
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    scheduler.end_run(jobs[1])
    assert scheduler.started_jobs() == [*jobs[:2], jobs[3]]
    assert [start.job for start in executor.prefetch_orders[-1].starts] == jobs[4:]


def test_prefetched_start_of_cancelled_job_is_stopped(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler, 3)
    run = executor.offered[jobs[2]]
    executor.is_unresponsive = True
    scheduler.cancel(jobs[2])
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])),
        prefetch_start_of(scheduler, run),
        WithdrawConfirmation(series=SERIES),
    )
    assert executor.stops == [run]
    other = scheduler.submit()
    assert scheduler.status(other) is Status.QUEUED, "the cancelled run is still alive"
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    scheduler.receive(StartConfirmation(run=run, pid=7, start_time=1))
    scheduler.receive(ExitReport(run=run, at=timestamp_of(scheduler), signal=15, ended_by="stop"))
    assert run in executor.acknowledged
    assert scheduler.find_run(other) not in executor.prefetched_runs, "its number is spent"
    assert scheduler.status(jobs[2]) is Status.CANCELLED


def test_nothing_is_claimed_while_jobs_are_offered(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.end_run(jobs[1])  # the start of its successor is not reported yet
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.receive(WithdrawConfirmation(series=SERIES))
    assert scheduler.started_jobs() == jobs[:3]


def test_confirmation_for_ended_series_changes_nothing(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    scheduler.pause()
    scheduler.resume()
    scheduler.end_run(jobs[1])
    assert [order.series for order in executor.prefetch_orders] == [SERIES, SERIES + 1]
    before = scheduler.executor.orders.copy()
    scheduler.receive(WithdrawConfirmation(series=SERIES))
    scheduler.end_run(jobs[2])
    assert [type(order).__name__ for order in executor.orders[len(before) :]] == ["AcknowledgeOrder"]  # still offered
    run = executor.offered[jobs[3]]
    scheduler.receive(prefetch_start_of(scheduler, run))
    assert scheduler.job(jobs[3]).run is not None
    assert dispatch_events(scheduler)[-1] == (jobs[3], "prefetch")


def test_unresponsive_executor_delays_requests_of_no_client(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    executor.is_unresponsive = True
    urgent = scheduler.submit(priority=9)
    scheduler.pause("flow/other")
    assert executor.withdrawn == [SERIES]  # requested once
    assert scheduler.status(urgent) is Status.QUEUED
    scheduler.end_run(jobs[1])
    assert scheduler.started_jobs() == jobs[:2]  # it may have started the next
    scheduler.receive(prefetch_start_of(scheduler, run), StartConfirmation(run=run, pid=7, start_time=1))
    assert scheduler.show_job(jobs[2]).pid == 7
    scheduler.receive(exit_report(scheduler, run))
    assert scheduler.status(jobs[2]) is Status.COMPLETED
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.receive(WithdrawConfirmation(series=SERIES))
    assert scheduler.started_jobs() == [*jobs[:2], urgent]


def test_dependent_of_offered_job_starts_after_it(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    """When the job was offered, nothing depended on its end. The new dependent changes that."""
    jobs = start_prefetch(scheduler, 3)
    run = executor.offered[jobs[2]]
    executor.is_unresponsive = True
    follower = scheduler.submit(after=[jobs[2]])
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])),
        prefetch_start_of(scheduler, run),
        StartConfirmation(run=run, pid=7, start_time=1),
        exit_report(scheduler, run),
        WithdrawConfirmation(series=SERIES),
    )
    assert scheduler.started_jobs() == [*jobs[:2], follower]


def test_dependent_of_prefetched_running_job_starts_after_it(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    run = executor.offered[jobs[2]]
    scheduler.receive(exit_report(scheduler, scheduler.find_run(jobs[1])), prefetch_start_of(scheduler, run))
    follower = scheduler.submit(after=[jobs[2]], priority=9)
    scheduler.receive(exit_report(scheduler, run))
    assert scheduler.started_jobs() == [*jobs[:2], follower]


# Crashes.


@pytest.mark.both_databases
def test_crash_adopts_prefetched_runs_and_requeues_the_rest(
    scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner
) -> None:
    jobs = start_prefetch(scheduler)
    runner, ended, living = scheduler.find_run(jobs[1]), *(executor.offered[job] for job in jobs[2:4])
    offered_at = scheduler.clock.moment
    used = executor.started_runs
    scheduler.clock.advance(seconds=3)
    scheduler.crash(
        [
            RunReport(run=runner, pid=None, has_ended=True),
            RunReport(run=ended, pid=None, has_ended=True),
            RunReport(run=living, pid=77, start_time=1),
        ]
    )
    assert run_sql("SELECT * FROM prefetch") == []
    adopted = scheduler.job(jobs[3])
    assert adopted.run is not None
    assert (adopted.status, adopted.pid, adopted.run.id, adopted.started_at) == (Status.RUNNING, 77, living, offered_at)
    assert scheduler.started_jobs() == []
    scheduler.receive(exit_report(scheduler, runner), exit_report(scheduler, ended))
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 3 + ["RUNNING", "QUEUED"]
    urgent = scheduler.submit(priority=9)
    scheduler.receive(exit_report(scheduler, living))
    assert scheduler.drain() == [urgent, jobs[4]]
    assert not {*used, ended, living} & {start.run for start in scheduler.executor.starts}
    assert statuses(scheduler, jobs) == ["COMPLETED"] * 5


@pytest.mark.both_databases
def test_crash_before_order_was_sent_requeues_all(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    used = executor.started_runs
    scheduler.crash()
    assert scheduler.drain() == jobs[1:]  # the executor does not know the second either
    assert not set(used) & {start.run for start in scheduler.executor.starts}


@pytest.mark.both_databases
def test_crash_ends_cancelled_prefetched_run_first(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    runner, run = scheduler.find_run(jobs[1]), executor.offered[jobs[2]]
    executor.is_unresponsive = True
    scheduler.cancel(jobs[2])
    scheduler.crash([RunReport(run=runner, pid=None, has_ended=True), RunReport(run=run, pid=77, start_time=1)])
    scheduler.receive(exit_report(scheduler, runner))
    assert (scheduler.executor.stops, scheduler.started_jobs()) == ([run], [])
    scheduler.receive(ExitReport(run=run, at=timestamp_of(scheduler), signal=15, ended_by="stop"))
    assert scheduler.status(jobs[2]) is Status.CANCELLED
    assert scheduler.started_jobs() == [jobs[3]]


def test_new_connection_settles_offer(scheduler: Scheduler, executor: PrefetchExecutor, run_sql: SqlRunner) -> None:
    jobs = start_prefetch(scheduler)
    runner, run = scheduler.find_run(jobs[1]), executor.offered[jobs[2]]
    scheduler.receive(ConnectionLoss(reason="it was killed"))
    executor.is_unresponsive = True  # no executor answers
    urgent = scheduler.submit(priority=9)
    assert scheduler.started_jobs() == jobs[:2]
    inventory = RunInventory(
        runs=[RunReport(run=runner, pid=None, has_ended=True), RunReport(run=run, pid=77, start_time=1)]
    )
    scheduler.receive(inventory, exit_report(scheduler, runner))
    assert (scheduler.job(jobs[2]).pid, run_sql("SELECT * FROM prefetch")) == (77, [])
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.receive(exit_report(scheduler, run))
    assert scheduler.started_jobs() == [*jobs[:2], urgent]
    assert [order.series for order in executor.prefetch_orders] == [SERIES, SERIES + 1]
    assert executor.started_runs


# A store that cannot be written to.


@pytest.fixture
def flaky(store: Store, tmp_path: Path) -> Iterator[FlakyScheduler]:
    scheduler = FlakyScheduler(FlakyStore(store), tmp_path)
    yield scheduler
    scheduler.close()


def test_prefetched_start_while_disk_is_full_is_recorded_once(flaky: FlakyScheduler) -> None:
    executor = use_prefetch_executor(flaky)
    jobs = start_prefetch(flaky)
    run = executor.offered[jobs[2]]
    started = flaky.clock.moment
    flaky.fail(2)
    flaky.receive(
        exit_report(flaky, flaky.find_run(jobs[1])),
        prefetch_start_of(flaky, run),
        StartConfirmation(run=run, pid=7, start_time=1),
    )
    assert flaky.has_store_error()
    flaky.clock.advance(seconds=1)
    flaky.run_turns()
    assert (flaky.has_store_error(), flaky.status(jobs[2])) == (True, Status.QUEUED)
    flaky.clock.advance(seconds=1)
    flaky.run_turns()
    record = flaky.job(jobs[2])
    assert (flaky.has_store_error(), record.started_at, record.pid) == (False, started, 7)
    assert dispatch_events(flaky).count((jobs[2], "prefetch")) == 1
    flaky.receive(exit_report(flaky, run))
    assert flaky.status(jobs[2]) is Status.COMPLETED
    assert executor.stops == []


def test_nothing_starts_while_store_cannot_be_written(flaky: FlakyScheduler) -> None:
    executor = use_prefetch_executor(flaky)
    jobs = start_prefetch(flaky)
    flaky.fail(3)
    flaky.receive(exit_report(flaky, flaky.find_run(jobs[1])), prefetch_start_of(flaky, executor.offered[jobs[2]]))
    assert flaky.has_store_error()
    assert executor.withdrawn == [SERIES]
    for _ in range(3):
        flaky.run_turns()
    assert statuses(flaky, jobs) == ["COMPLETED", "COMPLETED", "DISPATCHED", "QUEUED", "QUEUED"]


def test_turn_that_is_not_stored_offers_nothing(flaky: FlakyScheduler) -> None:
    executor = use_prefetch_executor(flaky)
    jobs = [flaky.submit() for _ in range(4)]
    flaky.fail()
    flaky.end_run(jobs[0])
    assert executor.prefetch_orders == []
    flaky.run_turns()
    assert list(executor.offered) == jobs[2:]


def test_request_while_disk_is_full_fails_and_prefetched_start_is_kept(flaky: FlakyScheduler) -> None:
    executor = use_prefetch_executor(flaky)
    jobs = start_prefetch(flaky)
    run = executor.offered[jobs[2]]
    executor.unreported = [exit_report(flaky, flaky.find_run(jobs[1])), prefetch_start_of(flaky, run)]
    flaky.fail()
    with pytest.raises(StorageFull):
        flaky.submit(priority=9)
    assert flaky.status(jobs[2]) is Status.QUEUED
    flaky.run_turns()
    assert dispatch_events(flaky)[-1] == (jobs[2], "prefetch")
    assert executor.withdrawn == [SERIES]
    flaky.receive(exit_report(flaky, run))
    assert flaky.started_jobs() == [*jobs[:2], jobs[3]]


def test_superseded_engine_answers_all_requests(flaky: FlakyScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests are answered although they were not started."""
    use_prefetch_executor(flaky)
    start_prefetch(flaky)
    monkeypatch.setattr(FlakySession, "error", SupersededError("another scheduler has it"))
    flaky.fail()
    responses: list[object] = []
    started: list[object] = []
    with pytest.raises(SupersededError):
        flaky.engine.turn([TurnRequest(started.append, responses.append)])
    assert [type(response) for response in responses] == [SupersededError]
    assert started == []


# Explanations.


def test_offered_job_is_shown_as_queued(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    shown = scheduler.show_job(jobs[2])
    assert (shown.status, scheduler.wait_detail(jobs[2])) == ("QUEUED", "waiting on pool global (1/1)")
    assert "waiting on pool global (1/1)" in str(scheduler.explain_wait(jobs[2]))
    output = scheduler.dry_run_tick()
    assert (output["dispatched"], output["would_dispatch"], output["reason"]) == ([], [], "capacity")
    assert executor.withdrawn == []  # a read withdraws nothing


def test_manual_tick_withdraws_offer(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler)
    executor.unreported = [exit_report(scheduler, scheduler.find_run(jobs[1]))]
    assert scheduler.tick()["dispatched"] == [format_job_id(jobs[2])]
    assert executor.withdrawn == [SERIES]


def test_start_time_is_the_executors(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    """The start time is the time of the start, not of the offer."""
    jobs = start_prefetch(scheduler)
    scheduler.clock.advance(seconds=10)
    moment = datetime(2026, 1, 1, 0, 0, 4, tzinfo=UTC)
    scheduler.receive(
        ExitReport(run=scheduler.find_run(jobs[1]), at=moment.timestamp(), code=0),
        PrefetchStart(run=executor.offered[jobs[2]], at=moment.timestamp()),
    )
    assert scheduler.job(jobs[2]).started_at == scheduler.job(jobs[1]).finished_at == moment


def test_job_edited_while_executor_was_silent_starts_with_the_edit(
    scheduler: Scheduler, executor: PrefetchExecutor
) -> None:
    """The executor would start the old command while the record shows the new one."""
    jobs = start_prefetch(scheduler, 3)
    run = executor.offered[jobs[2]]
    executor.is_unresponsive = True
    scheduler.run_request(lambda tx: edit(tx, jobs[2], EditRequest(command=["other"]), actor="tester"))
    scheduler.receive(
        exit_report(scheduler, scheduler.find_run(jobs[1])),
        prefetch_start_of(scheduler, run),
        WithdrawConfirmation(series=SERIES),
    )
    assert executor.stops == [run]
    scheduler.receive(ExitReport(run=run, at=timestamp_of(scheduler), signal=15, ended_by="stop"))
    assert scheduler.started_jobs()[-1] == jobs[2]
    assert executor.starts[-1].argv == ("other",)


def test_blocker_is_reported_only_for_unresponsive_executor(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    """A read during the withdrawal sees no blocker."""
    observed: list[list[str]] = []
    response = executor.withdraw

    def withdraw(series: int, patience: float) -> None:
        response(series, patience)
        observed.append(scheduler.engine.blockers)

    executor.withdraw = withdraw  # type: ignore[method-assign]
    start_prefetch(scheduler)
    scheduler.submit()
    assert observed == [[]]
    scheduler.end_run(scheduler.started_jobs()[-1])
    executor.is_unresponsive = True
    scheduler.submit()
    assert scheduler.engine.blockers == [
        "nothing is started until the supervisor has reported which prefetched jobs it started"
    ]


def test_restored_store_has_no_offered_jobs(scheduler: Scheduler, executor: PrefetchExecutor) -> None:
    jobs = start_prefetch(scheduler, 3)
    scheduler.session.begin()
    scheduler.session.prefetch.clear()  # as a restore does
    scheduler.session.commit()
    scheduler.crash([RunReport(run=executor.offered[jobs[2]], pid=7, start_time=1)])
    assert scheduler.status(jobs[2]) is Status.QUEUED
