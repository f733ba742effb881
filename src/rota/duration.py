"""Durations as people write them: `300ms`, `1.5s`, `2m30s`, `1h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from msgspec import Meta

from rota.errors import InvalidInput

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
_LONGEST = timedelta(days=3650)

DurationText = Annotated[str, Meta(extra_json_schema={"pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"})]
"""In a request: the API's document says what it looks like, and `parse_duration` refuses others."""


def parse_duration(text: str) -> timedelta:
    """Read `2m30s`; refuse anything else with a message that shows the form."""
    if _WHOLE.fullmatch(text) is None:
        raise InvalidInput(f"not a duration: {text!r}; write it like 300ms, 1.5s, 2m30s or 1h")
    microseconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if microseconds > _LONGEST / timedelta(microseconds=1):
        raise InvalidInput(f"duration too long: {text!r}; the longest is {show_duration(_LONGEST)}")
    return timedelta(microseconds=round(microseconds))


def show_duration(duration: timedelta) -> str:
    """Write it so that `parse_duration` reads the same value."""
    left = duration // timedelta(microseconds=1)
    if left < 1_000_000:
        return f"{left / 1_000:g}ms" if left else "0s"
    shown = []
    for unit in ("d", "h", "m"):
        count, left = divmod(left, _UNITS[unit])
        if count:
            shown.append(f"{count}{unit}")
    if left:
        shown.append(f"{left // 1_000_000}s" if left % 1_000_000 == 0 else f"{left / 1_000_000:.6f}".rstrip("0") + "s")
    return "".join(shown)
