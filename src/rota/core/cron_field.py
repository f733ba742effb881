"""The fields of a cron expression: which of them cannot be used, and what to write instead.

The library says that a field is bad, but not what in it. It is asked about each part of each field by itself, so what
is accepted is decided in one place.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NoReturn

from cronsim import CronSim, CronSimError

from rota.errors import InvalidInput

NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week")
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
_LONGEST = 200
_ORDER = " ".join(NAMES)
_STEPPED = re.compile(r"(?P<range>[^/]+-[^/]+)/\d+")
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - any will do


def normal(expression: str) -> list[str]:
    """Its five fields, a macro written out."""
    if len(expression) > _LONGEST:
        raise InvalidInput(f"cron: the expression is too long; it has at most {_LONGEST} characters")
    fields = expression.split()
    if expression.strip().startswith("@"):
        fields = _written_out(expression)
    if len(fields) != len(NAMES):
        extra = "; seconds cannot be said" if len(fields) == len(NAMES) + 1 else ""
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        raise InvalidInput(f'cron "{expression}": {count}, and a schedule has five: {_ORDER}{extra}')
    return [
        ",".join(_without_idle_step(place, part) for part in field.split(",")) for place, field in enumerate(fields)
    ]


def _written_out(expression: str) -> list[str]:
    known = _MACROS.get(expression.strip().lower())
    if known is None:
        names = ", ".join(_MACROS)
        raise InvalidInput(f'cron "{expression}": there is no such macro for a time; there are {names}')
    return known.split()


def _without_idle_step(place: int, part: str) -> str:
    """A range of a single value has one value, whatever the step; the library would go on from there to the end."""
    stepped = _STEPPED.fullmatch(part)
    if stepped is None or not _is_good(place, part):
        return part
    begin, _, end = stepped["range"].partition("-")
    return begin if _values(place, begin) == _values(place, end) else part


def _values(place: int, part: str) -> object:
    sim = _alone(place, part)
    return (sim.minutes, sim.hours, sim.days, sim.months, sim.weekdays)[place]


def _alone(place: int, part: str) -> CronSim:
    fields = ["*"] * len(NAMES)
    fields[place] = part
    return CronSim(" ".join(fields), _EPOCH)


def _is_good(place: int, part: str) -> bool:
    try:
        _alone(place, part)
    except CronSimError:
        return False
    return True


def refuse(expression: str) -> NoReturn:
    """For an expression that the library refuses."""
    for place, field in enumerate(expression.split()):
        for part in field.split(","):
            if not _is_good(place, part):
                raise InvalidInput(f'cron "{expression}": {NAMES[place]} {_complaint(place, part)}')
    raise InvalidInput(f'cron "{expression}" never fires: no month of those has such a day')


def _complaint(place: int, part: str) -> str:
    low, high = _RANGES[place]
    base, _, step = part.partition("/")
    for number in re.findall(r"\d+", base.partition("#")[0]):
        if not low <= int(number) <= high:
            return f"{number} is out of range {low}-{high}"
    if step.isdecimal() and int(step) == 0:
        return f"{part} has a step of nought"
    begin, dash, end = base.partition("-")
    if dash and _is_good(place, begin) and _is_good(place, end):
        return f"{part} ends before it begins"
    names = ("", "", "", ", names as JAN", ", names as MON (0 and 7 are Sunday)")[place]
    shown = part or "(nothing between two commas)"
    return f"{shown} is not understood; write {low}-{high}{names}, ranges as 1-5, lists as 1,3, steps as */2, or *"
