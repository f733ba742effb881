"""What is due of a schedule, without a store: years of it in seconds."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from rota.core.cron import TICK, cron_of
from rota.core.schedule import MOST, TOLERANCE, Active, CatchUp, Overlap, crowded_by, step
from rota.ids import JobId

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_three_years_of_hours_each_exactly_once() -> None:
    """Whoever fires wakes a little late each time, by up to a minute."""
    cron = cron_of("0 * * * *", "UTC")
    chance = random.Random(7)
    end = START + timedelta(days=3 * 365)
    at, expected = cron.next_after(START), START
    while at is not None and at <= end:
        now = at + timedelta(seconds=chance.random() * 59)
        todo = step(cron, at, CatchUp.NONE, now=now, noticed=now)
        expected += HOUR
        assert todo.at == expected
        assert todo.missed is None
        at = todo.next_at
    assert expected == end


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["*/20 * * * *", "30 1-3 * * *", "0 */6 * * 1-5"])
def test_nothing_is_lost_or_twice_whatever_the_nights_are_like(expression: str, zone: str, catch_up: CatchUp) -> None:
    """Away for a random while now and then: each time has fired, or is among the missed, and the books agree."""
    cron = cron_of(expression, zone)
    chance = random.Random(f"{expression} {zone} {catch_up}")
    end = START + timedelta(days=45)
    at = cron.next_after(START)
    now, fired, missed = START, [], 0
    while at is not None and now < end:
        now = max(now, at)
        if chance.random() < 0.1:
            now += timedelta(hours=chance.random() * 100)
        todo = step(cron, at, catch_up, now=now, noticed=now)
        if todo.missed is not None:
            assert at <= todo.missed.first <= todo.missed.last <= now
            assert todo.at is None or todo.missed.last < todo.at
            missed += todo.missed.count
        if todo.at is not None:
            fired.append(todo.at)
        assert todo.next_at is not None
        assert todo.next_at > (todo.at or now)
        at = todo.next_at
    assert fired == sorted(set(fired))
    assert at is not None
    assert len(fired) + missed == cron.count(START, at - TICK)
    assert missed > 0 or catch_up is CatchUp.ALL


def test_all_fires_no_more_than_so_many() -> None:
    cron = cron_of("* * * * *", "UTC")
    now = START + timedelta(days=400)
    todo = step(cron, START + timedelta(minutes=1), CatchUp.ALL, now=now, noticed=now)
    assert todo.at == now - timedelta(minutes=MOST - 1)
    assert todo.missed is not None
    assert todo.missed.count == 400 * 1440 - MOST
    assert todo.missed.first == START + timedelta(minutes=1)


def test_late_begins_where_the_tolerance_ends() -> None:
    cron, at = cron_of("0 12 * * *", "UTC"), START + timedelta(hours=12)
    for late, fires in ((TOLERANCE - TICK, True), (TOLERANCE, False)):
        now = at + late
        assert (step(cron, at, CatchUp.NONE, now=now, noticed=now).at is not None) is fires
    noticed = at + timedelta(seconds=1)
    assert step(cron, at, CatchUp.NONE, now=at + timedelta(hours=1), noticed=noticed).at == at


RUNS, WAITS = Active(job=JobId(1), is_waiting=False), Active(job=JobId(2), is_waiting=True)


@pytest.mark.parametrize(
    ("overlap", "active", "expected"),
    [
        (Overlap.ALLOW, [RUNS, WAITS], None),
        (Overlap.SKIP, [], None),
        (Overlap.SKIP, [RUNS], "job-1 is still active"),
        (Overlap.SKIP, [WAITS], "job-2 is still active"),
        (Overlap.QUEUE_ONE, [], None),
        (Overlap.QUEUE_ONE, [RUNS], None),
        (Overlap.QUEUE_ONE, [RUNS, WAITS], "job-2 is waiting already"),
        (Overlap.QUEUE_ONE, [WAITS], "job-2 is waiting already"),
    ],
)
def test_whether_there_is_room(overlap: Overlap, active: list[Active], expected: str | None) -> None:
    assert crowded_by(overlap, active) == expected
