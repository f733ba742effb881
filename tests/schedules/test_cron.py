"""Cron expressions: comparison with a walk over every minute, and refused expressions."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from rota.errors import InvalidInput
from rota.schedules.cron import MICROSECOND, Cron, parse_cron, parse_zone
from tests.sample import sample
from tests.schedules.cron_oracle import MINUTE, CronOracle, WallClock

OFFSET_CHANGES = {
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
"""Days with offset changes: by one hour, half an hour, two hours or a day, at midnight or never."""


@cache
def wall_clock_around(zone: str, day: str) -> WallClock:
    noon = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return WallClock(parse_zone(zone), noon - timedelta(days=1), noon + timedelta(days=2))


def random_field(rng: random.Random, low: int, high: int, *, stars: float) -> str:
    kind = rng.random()
    if kind < stars:
        return "*" if rng.random() < 0.6 else f"*/{rng.choice((2, 3, 5, 7, 10, 15, 30, 45))}"
    if kind < stars + 0.15:
        begin, end = sorted((rng.randint(low, high), rng.randint(low, high)))
        return f"{begin}-{end}" if rng.random() < 0.5 else f"{begin}-{end}/{rng.randint(1, 9)}"
    if kind < stars + 0.2:
        return f"{rng.randint(low, high)}/{rng.randint(1, 20)}"
    return ",".join(str(rng.randint(low, high)) for _ in range(rng.choice((1, 1, 1, 2, 3))))


def random_expression(rng: random.Random, day: str) -> str:
    """Make an expression that usually matches the small hours of the day."""
    month, of_month = int(day[5:7]), int(day[8:10])
    hour = ",".join(str(rng.randint(0, 4)) for _ in range(2)) if rng.random() < 0.4 else None
    return " ".join(
        (
            random_field(rng, 0, 59, stars=0.35),
            hour or random_field(rng, 0, 23, stars=0.4),
            str(of_month) if rng.random() < 0.15 else random_field(rng, 1, 31, stars=0.6),
            str(month) if rng.random() < 0.2 else random_field(rng, 1, 12, stars=0.9),
            random_field(rng, 0, 7, stars=0.6),
        )
    )


@pytest.mark.parametrize("zone", OFFSET_CHANGES)
def test_cron_matches_minute_by_minute_oracle(zone: str) -> None:
    """Thousands of expressions around offset changes: all due instants and no others. LESSONS: weekday 1 was read as
    Tuesday, and day-of-month AND day-of-week had to match."""
    rng = random.Random(f"cron {zone}")
    for number in range(sample(50)):
        day = OFFSET_CHANGES[zone][number % 2]
        wall = wall_clock_around(zone, day)
        expression = random_expression(rng, day)
        expected = CronOracle(expression).due(wall)
        try:
            cron = Cron(expression, parse_zone(zone))
        except InvalidInput as refused:
            assert "never fires" in refused.message  # noqa: PT017
            assert not expected
            continue
        first, last = wall.minutes[0][0], wall.minutes[-1][0]
        assert list(cron.times(first - MICROSECOND, last)) == expected, (expression, zone, day)
        assert cron.count(first - MICROSECOND, last) == len(expected), (expression, zone, day)
        assert cron.latest(first - MICROSECOND, last, 7) == expected[-7:]
        moment = first + rng.random() * (last - first)
        following = [at for at in expected if at > moment]
        next_time = cron.next_after(moment)
        assert (next_time == following[0]) if following else (next_time is None or next_time > last), (
            expression,
            zone,
            moment,
        )


def test_count_matches_enumeration_over_months() -> None:
    start, end = datetime(2025, 9, 3, 4, 5, 6, tzinfo=UTC), datetime(2026, 4, 6, tzinfo=UTC)
    for expression in ("0 * * * *", "7,37 1-3 * * *", "0 */5 * * 1-5", "30 2 * * *", "0 0 29 2 *"):
        for zone in ("Europe/Berlin", "Australia/Lord_Howe", "UTC"):
            cron = parse_cron(expression, zone)
            assert cron.count(start, end) == sum(1 for _ in cron.times(start, end)), (expression, zone)


def due_times(expression: str, zone: str, day: str) -> list[str]:
    wall = wall_clock_around(zone, day)
    times = parse_cron(expression, zone).times(wall.minutes[0][0] - MICROSECOND, wall.minutes[-1][0])
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
)
def test_dec_010_due_times_at_offset_changes(expression: str, zone: str, day: str, expected: list[str] | None) -> None:
    times = due_times(expression, zone, day)
    if expected is None:
        expected = [f"{at:%dT%H:%M}" for at in CronOracle(expression).due(wall_clock_around(zone, day))]
        assert len(expected) in (24, 25)
    assert times == expected


@pytest.mark.parametrize(
    ("expression", "weekday"), [("0 0 * * 0", 7), ("0 0 * * 7", 7), ("0 0 * * 1", 1), ("0 0 * * sat", 6)]
)
def test_lessons_weekday_1_is_monday_and_0_and_7_are_sunday(expression: str, weekday: int) -> None:
    """LESSONS: weekday 1 was read as Tuesday."""
    times = list(
        parse_cron(expression, "UTC").times(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))
    )
    assert len(times) in (8, 9)
    assert {at.isoweekday() for at in times} == {weekday}


def test_lessons_day_of_month_or_day_of_week_matches() -> None:
    """LESSONS: both fields had to match."""
    times = parse_cron("0 0 13 * 5", "UTC").times(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC))
    assert [at.day for at in times] == [6, 13, 20, 27]
    times = parse_cron("0 0 13 * 1", "UTC").times(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 28, tzinfo=UTC))
    assert [at.day for at in times] == [2, 9, 13, 16, 23]


@pytest.mark.parametrize(
    ("macro", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@Annually", "0 0 1 1 *"),
    ],
)
def test_macro_equals_its_expression(macro: str, expression: str) -> None:
    moment = datetime(2026, 11, 16, 8, 9, tzinfo=UTC)
    assert parse_cron(macro, "Europe/Berlin").next_after(moment) == parse_cron(expression, "Europe/Berlin").next_after(
        moment
    )


def test_step_of_single_value_range_is_ignored() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert [
        at.minute for at in parse_cron("5-5/10 0 * * MON-1/2", "UTC").times(moment, moment + timedelta(days=7))
    ] == [5]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("61 * * * *", 'cron "61 * * * *": minute 61 is out of range 0-59'),
        ("0 24 * * *", "hour 24 is out of range 0-23"),
        ("0 0 0 * *", "day-of-month 0 is out of range 1-31"),
        ("0 0 * 13 *", "month 13 is out of range 1-12"),
        ("0 0 * * 8", "day-of-week 8 is out of range 0-7"),
        ("1,2,77 * * * *", "minute 77 is out of range 0-59"),
        ("*/0 * * * *", "minute */0: the step must be at least 1"),
        ("0 5-3 * * *", "hour 5-3 ends before it begins"),
        ("0 0 * * fri-sun", "day-of-week fri-sun ends before it begins"),
        ("0 0 * * monday", "day-of-week monday is not understood; write 0-7, a name like MON (0 and 7 are Sunday)"),
        ("x * * * *", "minute x is not understood; write 0-59, a range like 1-5"),
        ("1, * * * *", "minute (empty list item) is not understood"),
        ("* * * *", 'cron "* * * *": 4 fields; expected five: minute hour day-of-month month day-of-week'),
        ("0 0 * * * *", "6 fields; expected five: minute hour day-of-month month day-of-week; seconds"),
        ("", "0 fields; expected five"),
        ("@reboot", 'cron "@reboot": unknown macro; known macros: @hourly, @daily'),
        ("0 0 30 2 *", 'cron "0 0 30 2 *" never fires'),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("* * * 2 1#6", "day-of-week 1#6 is not understood"),
        ("9" * 300, "too long"),
        ("٣ * * * *", "minute ٣ is"),
    ],
)
def test_dec_003_invalid_expression_names_the_wrong_part(expression: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(expression, "UTC")
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("Europe/Berlln", 'unknown time zone "Europe/Berlln"; did you mean Europe/Berlin?'),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("../../etc/passwd", "unknown time zone"),
        ("", "use a name such as Europe/Berlin"),
        ("Europe", "unknown time zone"),
        ("a\x00b", "unknown time zone"),
    ],
)
def test_dec_010_unknown_zone_suggests_the_closest_name(zone: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_zone(zone)
    assert message in refused.value.message


def test_no_time_after_the_last_calendar_year() -> None:
    assert parse_cron("0 0 1 1 *", "UTC").next_after(datetime(9999, 6, 1, tzinfo=UTC)) is None
    assert parse_cron("* * * * *", "Asia/Tokyo").next_after(datetime(9999, 12, 31, 23, 59, tzinfo=UTC)) is None


def test_count_and_latest_are_fast_over_a_year() -> None:
    """Neither operation walks over every minute."""
    start = datetime(2025, 1, 1, tzinfo=UTC)
    cron = parse_cron("* * * * *", "Europe/Berlin")
    started = time.process_time()
    assert cron.count(start, start + timedelta(days=365)) == 365 * 1440
    assert cron.latest(start, start + timedelta(days=365), 100)[0] == start + timedelta(days=365) - 99 * MINUTE
    assert time.process_time() - started < 1


def test_time_zone_database_is_available() -> None:
    assert ZoneInfo("Australia/Lord_Howe").utcoffset(datetime(2026, 1, 1)) == timedelta(hours=11)  # noqa: DTZ001


def test_line_breaks_are_refused_and_escaped() -> None:
    with pytest.raises(InvalidInput, match=r'cron "\* \* \*\\n\* \*": write the five fields on one line'):
        parse_cron("* * *\n* *", "UTC")
    with pytest.raises(InvalidInput, match=r'unknown time zone "UTC\\n"'):
        parse_cron("* * * * *", "UTC\n")
    assert parse_cron("*\t* * * *", "UTC").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is not None
