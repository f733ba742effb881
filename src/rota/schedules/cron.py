"""Cron expressions: when a schedule is due (DEC-003, DEC-010).

`cronsim` parses the fields and finds the next matching wall-clock time. This module converts that time to an instant,
with the rules of Debian's cron:

    fixed times      neither minute nor hour begins with `*`. A time that does not exist because clocks go forward is
                     due once, right after the gap. A time that occurs twice is due the first time.
    wildcards        follow the clock: a time that is skipped is not due, a time that occurs twice is due twice.

The library's own rule is not used. It assumes changes of whole hours, so it misses times at a change of half an hour,
and it fires wildcards at a midnight that does not exist.

The library reports that a field is invalid, but not which part of it. To find that part, each part of each field is
passed to the library by itself, so that the library alone decides which expressions are valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NoReturn
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from rota.errors import InvalidInput, escape_unprintable

_FIELD_NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MAX_LENGTH = 200
_FIELD_ORDER = " ".join(_FIELD_NAMES)
_STEPPED_RANGE = re.compile(r"(?P<range>[^/]+-[^/]+)/\d+")
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - arbitrary start
MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_SEARCH_STEP = timedelta(hours=12)
"""Search step that is short enough to contain at most one offset change of any zone."""


class Cron:
    """A cron expression in a time zone. Instants are in UTC."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        fields = _normalize(expression)
        try:
            self._sim = CronSim(" ".join(fields), datetime(2000, 1, 1))  # noqa: DTZ001 - wall-clock time
        except CronSimError:
            _raise_invalid(expression)
            raise
        self._zone = zone
        self._is_fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
        if self._next_wall_match(datetime(2000, 1, 1)) is None:  # noqa: DTZ001
            raise InvalidInput(f'cron "{expression}" never fires: none of its months has such a day')

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first time after `moment`, or `None` if there is none within fifty years."""
        try:
            return self._next_fixed(moment) if self._is_fixed else self._next_wildcard(moment)
        except (OverflowError, ValueError):  # the calendar ends with the year 9999
            return None

    def times(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield the times after `after`, up to and including `until`."""
        at = self.next_after(after)
        while at is not None and at <= until:
            yield at
            at = self.next_after(at)

    def latest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the last `limit` times of the interval, in order, without walking over the earlier times."""
        span = timedelta(minutes=limit)
        while True:
            start = max(after, until - span)
            times = list(self.times(start, until))
            if len(times) >= limit or start == after:
                return times[-limit:]
            span *= 2

    def count(self, after: datetime, until: datetime) -> int:
        """Return the number of times in the interval. A day without an offset change is counted as a whole."""
        total = 0
        at = self.next_after(after)
        while at is not None and at <= until:
            end = self._end_of_whole_day(at)
            if end is not None and end <= until:
                total += len(self._sim.hours) * len(self._sim.minutes)
                at = self.next_after(end - MICROSECOND)
            else:
                total += 1
                at = self.next_after(at)
        return total

    def _end_of_whole_day(self, at: datetime) -> datetime | None:
        """Return the midnight after `at` if it is the first time of its day and the day has no offset change."""
        local = at.astimezone(self._zone)
        if (local.hour, local.minute) != (min(self._sim.hours), min(self._sim.minutes)):
            return None
        day = local.date()
        begin, end = self._midnight(day), self._midnight(day + timedelta(days=1))
        whole = end - begin == timedelta(days=1) and not _find_offset_change(self._zone, begin - _SECOND, end)
        return end if whole else None

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)

    def _next_wall_match(self, wall: datetime) -> datetime | None:
        """Return the next match of a wall clock without offset changes."""
        sim = copy(self._sim)
        sim.dt = wall.replace(microsecond=0)
        return next(sim, None)

    def _next_fixed(self, moment: datetime) -> datetime | None:
        wall: datetime | None = moment.astimezone(self._zone).replace(tzinfo=None, fold=0)
        while wall is not None and (wall := self._next_wall_match(wall)) is not None:
            at = _first_instant(self._zone, wall)
            if at > moment:
                return at
        return None

    def _next_wildcard(self, moment: datetime) -> datetime | None:
        """Return the next time that the clock shows, searching from one offset change to the next."""
        start, offset = moment, _offset(self._zone, moment)
        wall: datetime | None = (moment + offset).replace(tzinfo=None)
        while wall is not None and (wall := self._next_wall_match(wall)) is not None:
            at = (wall - offset).replace(tzinfo=UTC)
            shift = _find_offset_change(self._zone, start, at)
            if shift is None:
                return at
            start, offset = shift, _offset(self._zone, shift)
            wall = (shift + offset - _SECOND).replace(tzinfo=None)
        return None


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _first_instant(zone: tzinfo, wall: datetime) -> datetime:
    """Return the first instant at which a clock in the zone shows this time. If the clock skips it, return the instant
    of the jump."""
    at = wall.replace(tzinfo=zone).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return at
    return _find_offset_change(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), at) or at


def _find_offset_change(zone: tzinfo, start: datetime, end: datetime) -> datetime | None:
    """Return the first offset change after `start`, up to and including `end`."""
    if zone is UTC:
        return None
    before, low = _offset(zone, start), start
    while low < end:
        high = min(low + _SEARCH_STEP, end)
        if _offset(zone, high) != before:
            return _bisect_offset_change(zone, low, high, before)
        low = high
    return None


def _bisect_offset_change(zone: tzinfo, low: datetime, high: datetime, before: timedelta) -> datetime:
    """Return the offset change between two instants, to the second: offsets change only at full seconds."""
    first = low.replace(microsecond=0)
    near, far = 0, (high - first) // _SECOND + 1
    while far - near > 1:
        middle = (near + far) // 2
        if _offset(zone, first + middle * _SECOND) == before:
            near = middle
        else:
            far = middle
    return first + far * _SECOND


@lru_cache(maxsize=4096)
def parse_cron(expression: str, zone: str) -> Cron:
    """Parse a cron expression, or raise `InvalidInput` with the field that is wrong and the values that it accepts."""
    return Cron(expression, parse_zone(zone))


def parse_zone(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None or name not in _known_zones():
        raise InvalidInput(f'unknown time zone "{escape_unprintable(name)}"; {_zone_hint(name)}')
    return zone


@lru_cache(maxsize=1)
def _known_zones() -> frozenset[str]:
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


def _zone_hint(name: str) -> str:
    from difflib import get_close_matches

    names = {zone.casefold(): zone for zone in sorted(_known_zones(), reverse=True)}
    folded = name.strip().casefold().replace(" ", "_")
    same_city = [zone for zone in sorted(_known_zones()) if zone.casefold().rpartition("/")[2] == folded]
    near = same_city or [names[match] for match in get_close_matches(folded, names, n=1, cutoff=0.6)]
    return f"did you mean {near[0]}?" if near else "use a name such as Europe/Berlin, America/New_York or UTC"


def _normalize(expression: str) -> list[str]:
    """Return the five fields of the expression, with a macro expanded."""
    if len(expression) > _MAX_LENGTH:
        raise InvalidInput(f"cron: the expression is too long; shorten it to at most {_MAX_LENGTH} characters")
    if not expression.replace("\t", " ").isprintable():
        raise InvalidInput(
            f'cron "{escape_unprintable(expression)}": write the five fields on one line, with spaces between them'
        )
    fields = expression.split()
    if expression.strip().startswith("@"):
        fields = _expand_macro(expression)
    if len(fields) != len(_FIELD_NAMES):
        extra = "; seconds are not supported" if len(fields) == len(_FIELD_NAMES) + 1 else ""
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        raise InvalidInput(f'cron "{expression}": {count}; expected five: {_FIELD_ORDER}{extra}')
    return [
        ",".join(_drop_redundant_step(position, part) for part in field.split(","))
        for position, field in enumerate(fields)
    ]


def _expand_macro(expression: str) -> list[str]:
    expansion = _MACROS.get(expression.strip().lower())
    if expansion is None:
        names = ", ".join(_MACROS)
        raise InvalidInput(f'cron "{expression}": unknown macro; known macros: {names}')
    return expansion.split()


def _drop_redundant_step(position: int, part: str) -> str:
    """Drop the step of a range with a single value, such as `5-5/2`: the library would extend the range to the end."""
    stepped = _STEPPED_RANGE.fullmatch(part)
    if stepped is None or not _is_valid(position, part):
        return part
    begin, _, end = stepped["range"].partition("-")
    return begin if _values(position, begin) == _values(position, end) else part


def _values(position: int, part: str) -> object:
    sim = _parse_part(position, part)
    return (sim.minutes, sim.hours, sim.days, sim.months, sim.weekdays)[position]


def _parse_part(position: int, part: str) -> CronSim:
    fields = ["*"] * len(_FIELD_NAMES)
    fields[position] = part
    return CronSim(" ".join(fields), _EPOCH)


def _is_valid(position: int, part: str) -> bool:
    try:
        _parse_part(position, part)
    except CronSimError:
        return False
    return True


def _raise_invalid(expression: str) -> NoReturn:
    """Raise `InvalidInput` for an expression that the library refuses."""
    for position, field in enumerate(expression.split()):
        for part in field.split(","):
            if not _is_valid(position, part):
                raise InvalidInput(f'cron "{expression}": {_FIELD_NAMES[position]} {_describe_error(position, part)}')
    raise InvalidInput(f'cron "{expression}" never fires: none of its months has such a day')


def _describe_error(position: int, part: str) -> str:
    low, high = _RANGES[position]
    base, _, step = part.partition("/")
    for number in re.findall(r"\d+", base.partition("#")[0]):
        if not low <= int(number) <= high:
            return f"{number} is out of range {low}-{high}"
    if step.isdecimal() and int(step) == 0:
        return f"{part}: the step must be at least 1"
    begin, dash, end = base.partition("-")
    if dash and _is_valid(position, begin) and _is_valid(position, end):
        return f"{part} ends before it begins"
    names = ("", "", "", ", a name like JAN", ", a name like MON (0 and 7 are Sunday)")[position]
    shown = part or "(empty list item)"
    expected = f"{low}-{high}{names}, a range like 1-5, a list like 1,3, a step like */2, or *"
    return f"{shown} is not understood; write {expected}"
