"""Cron expressions against a naive walk over every minute, and what is refused of them."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from core.cron_oracle import MINUTE, Meaning, Wall
from rota.core.cron import TICK, Cron, cron_of, zone_of
from rota.errors import InvalidInput
from sample import sample

CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-04", "2026-10-03"),
    "Pacific/Apia": ("2011-12-30", "2011-12-31"),
    "Africa/Casablanca": ("2026-02-15", "2026-03-22"),
    "Europe/Dublin": ("2026-03-29", "2026-10-25"),
    "America/St_Johns": ("2026-03-08", "2006-10-29"),
    "America/Santiago": ("2026-04-05", "2026-09-06"),
    "Asia/Beirut": ("2026-03-29", "2026-10-24"),
    "America/Havana": ("2026-03-08", "2026-11-01"),
    "Asia/Kathmandu": ("2026-02-28", "2024-02-29"),
    "Antarctica/Troll": ("2026-03-29", "2026-10-25"),
    "UTC": ("2026-12-31", "2024-02-29"),
}
"""Days around which clocks are changed, by a whole hour, by half of one, by two, by a day; at midnight, or never."""


@cache
def wall_around(zone: str, day: str) -> Wall:
    noon = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return Wall(zone_of(zone), noon - timedelta(days=1), noon + timedelta(days=2))


def random_field(chance: random.Random, low: int, high: int, *, stars: float) -> str:
    kind = chance.random()
    if kind < stars:
        return "*" if chance.random() < 0.6 else f"*/{chance.choice((2, 3, 5, 7, 10, 15, 30, 45))}"
    if kind < stars + 0.15:
        begin, end = sorted((chance.randint(low, high), chance.randint(low, high)))
        return f"{begin}-{end}" if chance.random() < 0.5 else f"{begin}-{end}/{chance.randint(1, 9)}"
    if kind < stars + 0.2:
        return f"{chance.randint(low, high)}/{chance.randint(1, 20)}"
    return ",".join(str(chance.randint(low, high)) for _ in range(chance.choice((1, 1, 1, 2, 3))))


def random_expression(chance: random.Random, day: str) -> str:
    """Most often one that has to do with the small hours of that day."""
    month, of_month = int(day[5:7]), int(day[8:10])
    hour = ",".join(str(chance.randint(0, 4)) for _ in range(2)) if chance.random() < 0.4 else None
    return " ".join(
        (
            random_field(chance, 0, 59, stars=0.35),
            hour or random_field(chance, 0, 23, stars=0.4),
            str(of_month) if chance.random() < 0.15 else random_field(chance, 1, 31, stars=0.6),
            str(month) if chance.random() < 0.2 else random_field(chance, 1, 12, stars=0.9),
            random_field(chance, 0, 7, stars=0.6),
        )
    )


@pytest.mark.parametrize("zone", CHANGES)
def test_it_means_what_a_walk_over_every_minute_says(zone: str) -> None:
    """Thousands of expressions around changes of the clocks; each instant that is due, and no other. LESSONS: weekday 1
    taken for Tuesday, day-of-month AND day-of-week."""
    chance = random.Random(f"cron {zone}")
    for number in range(sample(50)):
        day = CHANGES[zone][number % 2]
        wall = wall_around(zone, day)
        expression = random_expression(chance, day)
        expected = Meaning(expression).due(wall)
        try:
            cron = Cron(expression, zone_of(zone))
        except InvalidInput as refused:
            assert "never fires" in refused.message  # noqa: PT017
            assert not expected
            continue
        first, last = wall.minutes[0][0], wall.minutes[-1][0]
        assert list(cron.times(first - TICK, last)) == expected, (expression, zone, day)
        assert cron.count(first - TICK, last) == len(expected), (expression, zone, day)
        assert cron.latest(first - TICK, last, 7) == expected[-7:]
        moment = first + chance.random() * (last - first)
        following = [at for at in expected if at > moment]
        found = cron.next_after(moment)
        assert (found == following[0]) if following else (found is None or found > last), (expression, zone, moment)


def test_years_of_it_are_counted_as_they_are_walked() -> None:
    start, end = datetime(2025, 9, 3, 4, 5, 6, tzinfo=UTC), datetime(2026, 4, 6, tzinfo=UTC)
    for expression in ("0 * * * *", "7,37 1-3 * * *", "0 */5 * * 1-5", "30 2 * * *", "0 0 29 2 *"):
        for zone in ("Europe/Berlin", "Australia/Lord_Howe", "UTC"):
            cron = cron_of(expression, zone)
            assert cron.count(start, end) == sum(1 for _ in cron.times(start, end)), (expression, zone)


def due(expression: str, zone: str, day: str) -> list[str]:
    wall = wall_around(zone, day)
    times = cron_of(expression, zone).times(wall.minutes[0][0] - TICK, wall.minutes[-1][0])
    return [f"{at:%dT%H:%M}" for at in times]


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["28T01:30", "29T01:00", "30T00:30"]),
        ("0,15,30 2 29 * *", "Europe/Berlin", "2026-03-29", ["29T01:00"]),
        ("0 2,3 29 3 *", "Europe/Berlin", "2026-03-29", ["29T01:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["24T00:30", "25T00:30", "26T01:30"]),
        ("30 * 25 10 *", "Europe/Berlin", "2026-10-25", None),
        ("*/30 2 29 3 *", "Europe/Berlin", "2026-03-29", []),
        ("0 0 6 9 *", "America/Santiago", "2026-09-06", ["06T04:00"]),
        ("*/30 0 6 9 *", "America/Santiago", "2026-09-06", []),
        ("15 2 4 10 *", "Australia/Lord_Howe", "2026-10-03", ["03T15:30"]),
        ("45 * 4 10 *", "Australia/Lord_Howe", "2026-10-03", None),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-30", ["30T10:00"]),
    ],
)  # fmt: skip
def test_dec_010_clocks_that_are_changed(expression: str, zone: str, day: str, expected: list[str] | None) -> None:
    found = due(expression, zone, day)
    if expected is None:
        expected = [f"{at:%dT%H:%M}" for at in Meaning(expression).due(wall_around(zone, day))]
        assert len(expected) in (24, 25)
    assert found == expected


@pytest.mark.parametrize(
    ("expression", "weekday"), [("0 0 * * 0", 7), ("0 0 * * 7", 7), ("0 0 * * 1", 1), ("0 0 * * sat", 6)]
)
def test_lessons_weekday_1_is_monday_and_0_and_7_are_sunday(expression: str, weekday: int) -> None:
    """LESSONS: weekday 1 was taken for Tuesday."""
    times = list(cron_of(expression, "UTC").times(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)))
    assert len(times) in (8, 9)
    assert {at.isoweekday() for at in times} == {weekday}


def test_lessons_day_of_month_and_day_of_week_mean_either() -> None:
    """LESSONS: both had to match."""
    times = cron_of("0 0 13 * 5", "UTC").times(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC))
    assert [at.day for at in times] == [6, 13, 20, 27]
    times = cron_of("0 0 13 * 1", "UTC").times(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC))
    assert [at.day for at in times] == [2, 9, 13, 16, 23]


@pytest.mark.parametrize(
    ("macro", "written"),
    [
        ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@Annually", "0 0 1 1 *"),
    ],
)  # fmt: skip
def test_macros(macro: str, written: str) -> None:
    moment = datetime(2026, 11, 16, 8, 9, tzinfo=UTC)
    assert cron_of(macro, "Europe/Berlin").next_after(moment) == cron_of(written, "Europe/Berlin").next_after(moment)


def test_a_range_of_one_value_has_one_value_whatever_the_step() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert [at.minute for at in cron_of("5-5/10 0 * * MON-1/2", "UTC").times(moment, moment + timedelta(days=7))] == [5]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("61 * * * *", 'cron "61 * * * *": minute 61 is out of range 0-59'),
        ("0 24 * * *", "hour 24 is out of range 0-23"),
        ("0 0 0 * *", "day-of-month 0 is out of range 1-31"),
        ("0 0 * 13 *", "month 13 is out of range 1-12"),
        ("0 0 * * 8", "day-of-week 8 is out of range 0-7"),
        ("1,2,77 * * * *", "minute 77 is out of range 0-59"),
        ("*/0 * * * *", "minute */0 has a step of nought"),
        ("0 5-3 * * *", "hour 5-3 ends before it begins"),
        ("0 0 * * fri-sun", "day-of-week fri-sun ends before it begins"),
        ("0 0 * * monday", "day-of-week monday is not understood; write 0-7, names as MON (0 and 7 are Sunday)"),
        ("x * * * *", "minute x is not understood; write 0-59, ranges as 1-5"),
        ("1, * * * *", "minute (nothing between two commas) is not understood"),
        ("* * * *", 'cron "* * * *": 4 fields, and a schedule has five: minute hour day-of-month month day-of-week'),
        ("0 0 * * * *", "6 fields, and a schedule has five: minute hour day-of-month month day-of-week; seconds"),
        ("", "0 fields, and a schedule has five"),
        ("@reboot", 'cron "@reboot": there is no such macro for a time; there are @hourly, @daily'),
        ("0 0 30 2 *", 'cron "0 0 30 2 *" never fires'),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("* * * 2 1#6", "day-of-week 1#6 is not understood"),
        ("9" * 300, "too long"),
        ("٣ * * * *", "minute ٣ is"),
    ],
)  # fmt: skip
def test_dec_003_what_cannot_be_used_is_pointed_at(expression: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        cron_of(expression, "UTC")
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Europe/Berlln", 'unknown time zone "Europe/Berlln"; did you mean Europe/Berlin?'),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("../../etc/passwd", "unknown time zone"),
        ("", "zones have names as Europe/Berlin"),
        ("Europe", "unknown time zone"),
        ("a\x00b", "unknown time zone"),
    ],
)
def test_dec_010_an_unknown_zone_is_refused_with_the_nearest(zone: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        zone_of(zone)
    assert said in refused.value.message


def test_the_calendar_ends() -> None:
    assert cron_of("0 0 1 1 *", "UTC").next_after(datetime(9999, 6, 1, tzinfo=UTC)) is None
    assert cron_of("* * * * *", "Asia/Tokyo").next_after(datetime(9999, 12, 31, 23, 59, tzinfo=UTC)) is None


def test_a_year_of_every_minute_takes_no_seconds() -> None:
    """Neither to count nor to find the last of them."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    cron = cron_of("* * * * *", "Europe/Berlin")
    begun = time.process_time()
    assert cron.count(start, start + timedelta(days=365)) == 365 * 1440
    assert cron.latest(start, start + timedelta(days=365), 100)[0] == start + timedelta(days=365) - 99 * MINUTE
    assert time.process_time() - begun < 1


def test_the_tests_know_a_zone_that_the_machine_may_lack() -> None:
    assert ZoneInfo("Australia/Lord_Howe").utcoffset(datetime(2026, 1, 1)) == timedelta(hours=11)  # noqa: DTZ001
