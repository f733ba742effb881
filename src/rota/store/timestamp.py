"""Conversion of times and durations to their stored form: whole microseconds, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def optional_to_micros(moment: datetime | None) -> int | None:
    return None if moment is None else to_micros(moment)


def optional_from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def duration_to_micros(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MICROSECOND


def delay_to_micros(due: datetime | None, now: datetime) -> int | None:
    """Return the distance to a due time, which is stored with it."""
    return None if due is None else max(0, (due - now) // _MICROSECOND)


def duration_from_micros(micros: int | None) -> timedelta | None:
    return None if micros is None else timedelta(microseconds=micros)
