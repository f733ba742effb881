"""Durations: every form that is promised, the refusals, and the way there and back."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.duration import parse_duration, show_duration
from rota.errors import InvalidInput

LONGEST = timedelta(days=3650)
durations = st.timedeltas(timedelta(0), LONGEST)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("0s", timedelta(0)),
        ("300ms", timedelta(milliseconds=300)),
        ("1.5s", timedelta(seconds=1.5)),
        ("2m30s", timedelta(seconds=150)),
        ("1h", timedelta(hours=1)),
        ("7d", timedelta(days=7)),
        ("1d2h3m4.000005s", timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5)),
        ("0.001ms", timedelta(microseconds=1)),
        ("90m", timedelta(hours=1.5)),
        ("3650d", LONGEST),
    ],
)
def test_reads_what_people_write(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "+1s", " 1s", "1s ", "1 s", "1.s", ".5s", "1e3s", "1S", "1m-30s", "٣s", "nan", "1s\n"]
)
def test_refuses_anything_else_and_shows_the_form(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a duration: .*; write it like 300ms, 1\.5s, 2m30s or 1h"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3650d1s", "9" * 500 + "d", "3651d"])
def test_refuses_what_no_clock_should_wait_for(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"duration too long: .*; the longest is 3650d"):
        parse_duration(text)


def test_a_long_text_without_a_unit_is_refused_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidInput):
        parse_duration("1" * 100_000)
    assert time.monotonic() - begun < 1


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(microseconds=1), "0.001ms"),
        (timedelta(milliseconds=1.5), "1.5ms"),
        (timedelta(microseconds=999_999), "999.999ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=1, microseconds=10), "1.00001s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=25), "1d1h"),
        (LONGEST, "3650d"),
    ],
)
def test_shows_the_shortest_form(duration: timedelta, text: str) -> None:
    assert show_duration(duration) == text


@given(durations)
def test_what_is_shown_is_read_back_exactly(duration: timedelta) -> None:
    assert parse_duration(show_duration(duration)) == duration


@given(st.timedeltas(timedelta(0), timedelta(seconds=2)))
def test_what_is_shown_is_read_back_exactly_where_fractions_are(duration: timedelta) -> None:
    assert parse_duration(show_duration(duration)) == duration


@given(st.text("0123456789.msdh -+e", max_size=12))
def test_a_text_is_a_duration_within_bounds_or_refused(text: str) -> None:
    try:
        duration = parse_duration(text)
    except InvalidInput:
        return
    assert timedelta(0) <= duration <= LONGEST
    assert parse_duration(show_duration(duration)) == duration
