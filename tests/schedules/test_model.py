"""The schedule model without a store; years of fire times are simulated in seconds."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from rota.ids import JobId
from rota.schedules.cron import MICROSECOND, parse_cron
from rota.schedules.model import (
    LATE_TOLERANCE,
    MAX_CATCH_UP_FIRES,
    MAX_CLOCK_ADJUSTMENT,
    ActiveScheduledJob,
    CatchUp,
    Overlap,
    overlap_reason,
    plan_step,
    should_restart_times,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_hourly_schedule_fires_each_hour_exactly_once() -> None:
    """Each step runs up to a minute late."""
    cron = parse_cron("0 * * * *", "UTC")
    rng = random.Random(7)
    end = START + timedelta(days=3 * 365)
    at, expected = cron.next_after(START), START
    while at is not None and at <= end:
        now = at + timedelta(seconds=rng.random() * 59)
        step = plan_step(cron, at, CatchUp.NONE, now=now, noticed_at=now)
        expected += HOUR
        assert step.at == expected
        assert step.missed is None
        at = step.next_at
    assert expected == end


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["*/20 * * * *", "30 1-3 * * *", "0 */6 * * 1-5"])
def test_every_time_fires_once_or_is_missed(expression: str, zone: str, catch_up: CatchUp) -> None:
    """With random downtimes, each time has fired or is recorded as missed, and the counts add up."""
    cron = parse_cron(expression, zone)
    rng = random.Random(f"{expression} {zone} {catch_up}")
    end = START + timedelta(days=45)
    at = cron.next_after(START)
    now, fired, missed = START, [], 0
    while at is not None and now < end:
        now = max(now, at)
        if rng.random() < 0.1:
            now += timedelta(hours=rng.random() * 100)
        step = plan_step(cron, at, catch_up, now=now, noticed_at=now)
        if step.missed is not None:
            assert at <= step.missed.first <= step.missed.last <= now
            assert step.at is None or step.missed.last < step.at
            missed += step.missed.count
        if step.at is not None:
            fired.append(step.at)
        assert step.next_at is not None
        assert step.next_at > (step.at or now)
        at = step.next_at
    assert fired == sorted(set(fired))
    assert at is not None
    assert len(fired) + missed == cron.count(START, at - MICROSECOND)
    assert missed > 0 or catch_up is CatchUp.ALL


def test_catch_up_all_is_limited() -> None:
    cron = parse_cron("* * * * *", "UTC")
    now = START + timedelta(days=400)
    step = plan_step(cron, START + timedelta(minutes=1), CatchUp.ALL, now=now, noticed_at=now)
    assert step.at == now - timedelta(minutes=MAX_CATCH_UP_FIRES - 1)
    assert step.missed is not None
    assert step.missed.count == 400 * 1440 - MAX_CATCH_UP_FIRES
    assert step.missed.first == START + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("latest", "set_back", "expected"),
    [
        (None, 24 * HOUR, False),
        (START, MAX_CLOCK_ADJUSTMENT + MICROSECOND, False),
        (START + MICROSECOND, MAX_CLOCK_ADJUSTMENT + MICROSECOND, True),
        (START + MICROSECOND, MAX_CLOCK_ADJUSTMENT, False),
        (START + MAX_CLOCK_ADJUSTMENT, timedelta(), False),
        (START + MAX_CLOCK_ADJUSTMENT + MICROSECOND, timedelta(), True),
    ],
)
def test_times_restart_after_a_wrong_clock(latest: datetime | None, set_back: timedelta, expected: bool) -> None:
    assert should_restart_times(latest, now=START, set_back=set_back) is expected


def test_fire_is_late_from_the_tolerance_on() -> None:
    cron, at = parse_cron("0 12 * * *", "UTC"), START + timedelta(hours=12)
    for delay, fires in ((LATE_TOLERANCE - MICROSECOND, True), (LATE_TOLERANCE, False)):
        now = at + delay
        assert (plan_step(cron, at, CatchUp.NONE, now=now, noticed_at=now).at is not None) is fires
    noticed_at = at + timedelta(seconds=1)
    assert plan_step(cron, at, CatchUp.NONE, now=at + timedelta(hours=1), noticed_at=noticed_at).at == at


RUNNING, WAITING = ActiveScheduledJob(job=JobId(1), is_waiting=False), ActiveScheduledJob(job=JobId(2), is_waiting=True)


@pytest.mark.parametrize(
    ("overlap", "active", "expected"),
    [
        (Overlap.ALLOW, [RUNNING, WAITING], None),
        (Overlap.SKIP, [], None),
        (Overlap.SKIP, [RUNNING], "job-1 is still active"),
        (Overlap.SKIP, [WAITING], "job-2 is still active"),
        (Overlap.QUEUE_ONE, [], None),
        (Overlap.QUEUE_ONE, [RUNNING], None),
        (Overlap.QUEUE_ONE, [RUNNING, WAITING], "job-2 is waiting already"),
        (Overlap.QUEUE_ONE, [WAITING], "job-2 is waiting already"),
    ],
)
def test_overlap_reason(overlap: Overlap, active: list[ActiveScheduledJob], expected: str | None) -> None:
    assert overlap_reason(overlap, active) == expected
