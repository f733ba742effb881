"""Daily retention."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from rota.db.store import Store
from rota.errors import StoreError
from rota.retention import timer as retention_timer
from rota.retention.model import GcPolicy
from rota.retention.timer import DailyRetention
from tests.harness import Scheduler, SqlRunner
from tests.retention.test_collector import collector_of, jobs_with_rows, submit_ended

pytestmark = pytest.mark.both_databases


def daily_of(scheduler: Scheduler, policy: GcPolicy | None = None) -> DailyRetention:
    return DailyRetention(
        collector=collector_of(scheduler),
        store=scheduler.store,
        clock=scheduler.clock,
        policy=lambda: policy or GcPolicy(),
    )


def test_retention_runs_after_start_delay_and_then_once_a_day(scheduler: Scheduler) -> None:
    submit_ended(scheduler)
    scheduler.clock.advance(days=8)
    timer = daily_of(scheduler)
    assert timer.time_until_due() == timedelta(minutes=1)
    scheduler.clock.advance(minutes=1)
    assert timer.time_until_due() == timedelta()
    timer.collect()
    assert jobs_with_rows(scheduler) == []
    assert timer.time_until_due() == timedelta(days=1)
    scheduler.clock.advance(hours=23)
    assert timer.time_until_due() == timedelta(hours=1)


def test_scheduler_restarted_every_hour_collects_once_a_day(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    collections = 0
    for _hour in range(72):
        scheduler.clock.advance(hours=1)
        timer = daily_of(scheduler)
        scheduler.clock.advance(minutes=2)
        remaining = timer.time_until_due()
        assert remaining is not None
        if remaining <= timedelta():
            collections += 1
            timer.collect()
    assert collections == 3
    assert run_sql("SELECT count(*) FROM meta WHERE key = 'gc_last_daily_run'") == [(1,)]


def test_manual_collection_does_not_delay_daily_one(scheduler: Scheduler) -> None:
    """Removing year-old jobs every hour does not replace the daily collection."""
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)
    collector_of(scheduler).collect(timedelta(days=365), cause="gc")
    assert timer.time_until_due() == timedelta()


def test_disabled_retention_is_never_due(scheduler: Scheduler) -> None:
    timer = daily_of(scheduler, GcPolicy(interval=None))
    scheduler.clock.advance(days=30)
    assert timer.time_until_due() is None


def test_last_run_in_the_future_is_ignored(scheduler: Scheduler) -> None:
    scheduler.run_request(lambda tx: tx.meta.set("gc_last_daily_run", str(2**52)))
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)
    assert timer.time_until_due() == timedelta()


def test_failure_is_logged_and_retried_in_an_hour(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submit_ended(scheduler)
    scheduler.clock.advance(days=8)
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)

    def fails(_self: Store) -> None:
        raise StoreError("the server is away")

    with monkeypatch.context() as patched:
        patched.setattr(type(scheduler.store), "reader", fails)
        timer.collect()
    assert "retrying in an hour: the server is away" in caplog.text
    assert timer.time_until_due() == timedelta(hours=1)
    scheduler.clock.advance(hours=1)
    assert timer.time_until_due() == timedelta()


def test_thread_sleeps_until_due_and_ends_on_stop(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    asleep = threading.Event()

    class RecordingEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            asleep.set()
            return super().wait(10)

    timer = daily_of(scheduler)
    timer._wake = RecordingEvent()
    timer.start()
    assert asleep.wait(10)
    assert waits == [60.0]
    scheduler.clock.advance(minutes=30)
    monkeypatch.setattr(retention_timer, "MAX_WAIT", timedelta(hours=2))
    asleep.clear()
    timer.wake()
    assert asleep.wait(10)
    assert waits == [60.0, 7200.0], "it has collected, and sleeps at most MAX_WAIT"
    timer.stop()
    assert not timer._thread.is_alive()
