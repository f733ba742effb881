"""Fields of a cron expression: normalization and precise error messages.

The library reports that a field is invalid, but not which part of it. To find that part, each part of each field is
passed to the library by itself, so that the library alone decides which expressions are valid.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NoReturn

from cronsim import CronSim, CronSimError

from rota.errors import InvalidInput, escape_unprintable

FIELD_NAMES = ("minute", "hour", "day-of-month", "month", "day-of-week")
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
_FIELD_ORDER = " ".join(FIELD_NAMES)
_STEPPED_RANGE = re.compile(r"(?P<range>[^/]+-[^/]+)/\d+")
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001 - arbitrary start


def normalize(expression: str) -> list[str]:
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
    if len(fields) != len(FIELD_NAMES):
        extra = "; seconds are not supported" if len(fields) == len(FIELD_NAMES) + 1 else ""
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
    fields = ["*"] * len(FIELD_NAMES)
    fields[position] = part
    return CronSim(" ".join(fields), _EPOCH)


def _is_valid(position: int, part: str) -> bool:
    try:
        _parse_part(position, part)
    except CronSimError:
        return False
    return True


def raise_invalid(expression: str) -> NoReturn:
    """Raise `InvalidInput` for an expression that the library refuses."""
    for position, field in enumerate(expression.split()):
        for part in field.split(","):
            if not _is_valid(position, part):
                raise InvalidInput(f'cron "{expression}": {FIELD_NAMES[position]} {_describe_error(position, part)}')
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
