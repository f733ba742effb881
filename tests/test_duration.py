"""Parsing and formatting of durations."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.duration import format_duration, parse_duration
from rota.errors import InvalidInput

MAX_DURATION = timedelta(days=3650)
durations = st.timedeltas(timedelta(0), MAX_DURATION)


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
        ("3650d", MAX_DURATION),
    ],
)
def test_durations_are_parsed(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "+1s", " 1s", "1s ", "1 s", "1.s", ".5s", "1e3s", "1S", "1m-30s", "٣s", "nan", "1s\n"]
)
def test_invalid_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a duration: .*; write it like 300ms, 1\.5s, 2m30s or 1h"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["3650d1s", "9" * 500 + "d", "3651d"])
def test_too_long_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"duration too long: .*; the maximum is 3650d"):
        parse_duration(text)


def test_long_text_without_unit_is_refused_quickly() -> None:
    started = time.monotonic()
    with pytest.raises(InvalidInput):
        parse_duration("1" * 100_000)
    assert time.monotonic() - started < 1


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
        (MAX_DURATION, "3650d"),
    ],
)
def test_durations_are_formatted_in_the_shortest_form(duration: timedelta, text: str) -> None:
    assert format_duration(duration) == text


@given(durations)
def test_formatted_duration_is_parsed_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.timedeltas(timedelta(0), timedelta(seconds=2)))
def test_formatted_fraction_is_parsed_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.text("0123456789.msdh -+e", max_size=12))
def test_any_text_is_a_valid_duration_or_refused(text: str) -> None:
    try:
        duration = parse_duration(text)
    except InvalidInput:
        return
    assert timedelta(0) <= duration <= MAX_DURATION
    assert parse_duration(format_duration(duration)) == duration
