"""Collection by the clock."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from engine.test_gc import collector_of, ended, with_rows
from harness import Raw, Scheduler
from rota.core.gc import GcPolicy
from rota.engine import daily
from rota.engine.daily import Daily
from rota.errors import StoreError
from rota.store.port import Store


def daily_of(scheduler: Scheduler, policy: GcPolicy | None = None) -> Daily:
    return Daily(
        collector=collector_of(scheduler),
        store=scheduler.store,
        clock=scheduler.clock,
        policy=lambda: policy or GcPolicy(),
    )


def test_not_at_the_start_then_at_once_then_once_a_day(scheduler: Scheduler) -> None:
    ended(scheduler)
    scheduler.clock.advance(days=8)
    timer = daily_of(scheduler)
    assert timer.look() == timedelta(minutes=1)
    scheduler.clock.advance(minutes=1)
    assert timer.look() == timedelta()
    timer.collect()
    assert with_rows(scheduler) == []
    assert timer.look() == timedelta(days=1)
    scheduler.clock.advance(hours=23)
    assert timer.look() == timedelta(hours=1)


def test_a_scheduler_that_is_restarted_every_hour_collects_once_a_day(scheduler: Scheduler, raw: Raw) -> None:
    collections = 0
    for _hour in range(72):
        scheduler.clock.advance(hours=1)
        timer = daily_of(scheduler)
        scheduler.clock.advance(minutes=2)
        left = timer.look()
        assert left is not None
        if left <= timedelta():
            collections += 1
            timer.collect()
    assert collections == 3
    assert raw("SELECT count(*) FROM meta WHERE key = 'gc_daily'") == [(1,)]


def test_a_collection_by_hand_does_not_put_it_off(scheduler: Scheduler) -> None:
    """Somebody who removes what is a year old every hour has not done the day's work."""
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)
    collector_of(scheduler).collect(timedelta(days=365), cause="gc")
    assert timer.look() == timedelta()


def test_off_is_never(scheduler: Scheduler) -> None:
    timer = daily_of(scheduler, GcPolicy(interval=None))
    scheduler.clock.advance(days=30)
    assert timer.look() is None


def test_a_time_that_a_wrong_clock_left_does_not_put_it_off_for_years(scheduler: Scheduler) -> None:
    scheduler.do(lambda work: work.session.set_meta("gc_daily", str(2**52)))
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)
    assert timer.look() == timedelta()


def test_trouble_is_said_and_it_is_tried_again_in_an_hour(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended(scheduler)
    scheduler.clock.advance(days=8)
    timer = daily_of(scheduler)
    scheduler.clock.advance(minutes=1)

    def fails(_self: Store) -> None:
        raise StoreError("the server is away")

    with monkeypatch.context() as patched:
        patched.setattr(type(scheduler.store), "reader", fails)
        timer.collect()
    assert "tried again in an hour: the server is away" in caplog.text
    assert timer.look() == timedelta(hours=1)
    scheduler.clock.advance(hours=1)
    assert timer.look() == timedelta()


def test_the_thread_sleeps_until_it_is_time_and_ends_when_told(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    asleep = threading.Event()

    class Told(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            asleep.set()
            return super().wait(10)

    timer = daily_of(scheduler)
    timer._wake = Told()
    timer.start()
    assert asleep.wait(10)
    assert waits == [60.0]
    scheduler.clock.advance(minutes=30)
    monkeypatch.setattr(daily, "LONGEST_WAIT", timedelta(hours=2))
    asleep.clear()
    timer.wake()
    assert asleep.wait(10)
    assert waits == [60.0, 7200.0], "it has collected, and a day is too long to sleep at a stretch"
    timer.stop()
    assert not timer._thread.is_alive()
