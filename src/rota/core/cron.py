"""Cron expressions: when a schedule is due (DEC-003, DEC-010).

What an expression means is `cronsim`'s to say, by the calendar on the wall: it reads the fields and finds the next time
that matches. What that is as an instant is said here, as Debian's cron has it:

    fixed times      neither minute nor hour begins with `*`. One that does not exist, because clocks go forward, is due
                     once, right after the gap; one that occurs twice is due the first time.
    wildcards        follow the clock: what it does not show is not due, what it shows twice is due twice.

The library has a rule for this of its own. It is not used: it counts on changes of a whole hour, so that half an hour
makes it pass over times, and a midnight that does not exist is due for a wildcard.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from rota.core.cron_field import normal, refuse
from rota.errors import InvalidInput

TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_STRIDE = timedelta(hours=12)
"""No zone changes its offset twice within so long."""


class Cron:
    """An expression in a zone. Instants are UTC."""

    def __init__(self, expression: str, zone: tzinfo) -> None:
        fields = normal(expression)
        try:
            self._sim = CronSim(" ".join(fields), datetime(2000, 1, 1))  # noqa: DTZ001 - what hangs on the wall
        except CronSimError:
            refuse(expression)
            raise
        self._zone = zone
        self._is_fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
        if self._wall_after(datetime(2000, 1, 1)) is None:  # noqa: DTZ001
            raise InvalidInput(f'cron "{expression}" never fires: no month of those has such a day')

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time later than that; none within fifty years."""
        try:
            return self._fixed_after(moment) if self._is_fixed else self._shown_after(moment)
        except (OverflowError, ValueError):  # the calendar ends with the year 9999
            return None

    def times(self, after: datetime, upto: datetime) -> Iterator[datetime]:
        """Those later than the one, and not later than the other."""
        at = self.next_after(after)
        while at is not None and at <= upto:
            yield at
            at = self.next_after(at)

    def latest(self, after: datetime, upto: datetime, most: int) -> list[datetime]:
        """The last of them, in order; what lies long before is not walked over."""
        span = timedelta(minutes=most)
        while True:
            start = max(after, upto - span)
            found = list(self.times(start, upto))
            if len(found) >= most or start == after:
                return found[-most:]
            span *= 2

    def count(self, after: datetime, upto: datetime) -> int:
        """How many they are; a day on which clocks are not changed is counted as a whole."""
        total = 0
        at = self.next_after(after)
        while at is not None and at <= upto:
            end = self._end_of_whole_day(at)
            if end is not None and end <= upto:
                total += len(self._sim.hours) * len(self._sim.minutes)
                at = self.next_after(end - TICK)
            else:
                total += 1
                at = self.next_after(at)
        return total

    def _end_of_whole_day(self, at: datetime) -> datetime | None:
        """The midnight after it, if it is the first time of its day and clocks are not changed on that day."""
        local = at.astimezone(self._zone)
        if (local.hour, local.minute) != (min(self._sim.hours), min(self._sim.minutes)):
            return None
        day = local.date()
        begin, end = self._midnight(day), self._midnight(day + timedelta(days=1))
        whole = end - begin == timedelta(days=1) and not _shift_between(self._zone, begin - _SECOND, end)
        return end if whole else None

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)

    def _wall_after(self, wall: datetime) -> datetime | None:
        """The next match on a wall clock that is never changed."""
        sim = copy(self._sim)
        sim.dt = wall.replace(microsecond=0)
        return next(sim, None)

    def _fixed_after(self, moment: datetime) -> datetime | None:
        wall: datetime | None = moment.astimezone(self._zone).replace(tzinfo=None, fold=0)
        while wall is not None and (wall := self._wall_after(wall)) is not None:
            at = _first_instant(self._zone, wall)
            if at > moment:
                return at
        return None

    def _shown_after(self, moment: datetime) -> datetime | None:
        """From one change of the clocks to the next, so that each match is one that the clock shows."""
        start, offset = moment, _offset(self._zone, moment)
        wall: datetime | None = (moment + offset).replace(tzinfo=None)
        while wall is not None and (wall := self._wall_after(wall)) is not None:
            at = (wall - offset).replace(tzinfo=UTC)
            shift = _shift_between(self._zone, start, at)
            if shift is None:
                return at
            start, offset = shift, _offset(self._zone, shift)
            wall = (shift + offset - _SECOND).replace(tzinfo=None)
        return None


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _first_instant(zone: tzinfo, wall: datetime) -> datetime:
    """When a clock there shows this for the first time; if it never does, when it has just jumped over it."""
    at = wall.replace(tzinfo=zone).astimezone(UTC)
    if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
        return at
    return _shift_between(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), at) or at


def _shift_between(zone: tzinfo, start: datetime, end: datetime) -> datetime | None:
    """When clocks are changed first, later than the one and not later than the other."""
    if zone is UTC:
        return None
    before, low = _offset(zone, start), start
    while low < end:
        high = min(low + _STRIDE, end)
        if _offset(zone, high) != before:
            return _bisect(zone, low, high, before)
        low = high
    return None


def _bisect(zone: tzinfo, low: datetime, high: datetime, before: timedelta) -> datetime:
    """To the second: no clock is changed in between."""
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
def cron_of(expression: str, zone: str) -> Cron:
    """What cannot be used is refused, with a word on what to write instead."""
    return Cron(expression, zone_of(zone))


def zone_of(name: str) -> tzinfo:
    if name.upper() == "UTC":
        return UTC
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    if zone is None or name not in _zones():
        raise InvalidInput(f'unknown time zone "{name}"; {_advice(name)}')
    return zone


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


def _advice(name: str) -> str:
    from difflib import get_close_matches

    known = {zone.casefold(): zone for zone in sorted(_zones(), reverse=True)}
    asked = name.strip().casefold().replace(" ", "_")
    last = [zone for zone in sorted(_zones()) if zone.casefold().rpartition("/")[2] == asked]
    near = last or [known[each] for each in get_close_matches(asked, known, n=1, cutoff=0.6)]
    return f"did you mean {near[0]}?" if near else "zones have names as Europe/Berlin, America/New_York or UTC"
