"""Times and durations as stored: whole microseconds, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_stored(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_stored(stored: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stored)


def maybe_to_stored(moment: datetime | None) -> int | None:
    return None if moment is None else to_stored(moment)


def maybe_from_stored(stored: int | None) -> datetime | None:
    return None if stored is None else from_stored(stored)


def duration_to_stored(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // _MICROSECOND


def duration_from_stored(stored: int | None) -> timedelta | None:
    return None if stored is None else timedelta(microseconds=stored)
