"""Reference implementation of cron: a walk over every minute, slow but simple enough to be obviously correct.

It shares no code with the product and uses no cron library. Fields are sets of numbers, and an instant is due if the
wall clock shows a matching time. Debian's rule for fixed times is written literally: a minute that the clock shows for
the second time is not due, and times that the clock skips are due in the minute after the jump.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

MINUTE = timedelta(minutes=1)
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_NAMES = {name: number + 1 for number, name in enumerate(_MONTHS)} | _DAYS


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NAMES[text.lower()]


def _field(text: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        base, slash, step = part.partition("/")
        if base == "*":
            begin, end = low, high
        elif "-" in base:
            begin, end = map(_number, base.split("-"))
        else:
            begin = _number(base)
            end = high if slash else begin
        values |= set(range(begin, end + 1, int(step or 1)))
    return values


class WallClock:
    """Minutes of a zone between two instants, with the time that its clock shows and the times that it just skipped."""

    def __init__(self, zone: tzinfo, start: datetime, end: datetime) -> None:
        self.minutes: list[tuple[datetime, datetime, bool, list[datetime]]] = []
        at = start.replace(second=0, microsecond=0)
        before = (at - MINUTE).astimezone(zone).replace(tzinfo=None, fold=0)
        while at <= end:
            local = at.astimezone(zone)
            shown = local.replace(tzinfo=None, fold=0)
            skipped_times = []
            skipped = before + MINUTE
            while skipped < shown:
                skipped_times.append(skipped)
                skipped += MINUTE
            self.minutes.append((at, shown, local.fold == 1, skipped_times))
            before = shown
            at += MINUTE


class CronOracle:
    def __init__(self, expression: str) -> None:
        fields = expression.split()
        sets = [_field(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)]
        self.minutes, self.hours, self.days, self.months, weekdays = sets
        self.weekdays = {day % 7 for day in weekdays}
        self.is_either = not fields[2].startswith("*") and not fields[4].startswith("*")
        self.is_fixed = not fields[0].startswith("*") and not fields[1].startswith("*")

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return (day or weekday) if self.is_either else (day and weekday)

    def due(self, wall: WallClock) -> list[datetime]:
        return [
            at
            for at, shown, is_repeated, skipped_times in wall.minutes
            if (self.matches(shown) and not (is_repeated and self.is_fixed))
            or (self.is_fixed and skipped_times and any(map(self.matches, skipped_times)))
        ]


__all__ = ["MINUTE", "UTC", "CronOracle", "WallClock"]
