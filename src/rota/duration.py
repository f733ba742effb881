"""Durations in text form: `300ms`, `1.5s`, `2m30s`, `1h`, `7d`."""

from __future__ import annotations

import re
from datetime import timedelta

from rota.errors import InvalidInput

_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_MAX_DURATION = timedelta(days=3650)


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `2m30s`."""
    if _DURATION.fullmatch(text) is None:
        raise InvalidInput(f"not a duration: {text!r}; write it like 300ms, 1.5s, 2m30s or 1h")
    microseconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if microseconds > _MAX_DURATION / timedelta(microseconds=1):
        raise InvalidInput(f"duration too long: {text!r}; the maximum is {format_duration(_MAX_DURATION)}")
    return timedelta(microseconds=round(microseconds))


def format_duration(duration: timedelta) -> str:
    """Format the duration so that `parse_duration` returns the same value."""
    rest = duration // timedelta(microseconds=1)
    if rest < 1_000_000:
        return f"{rest / 1_000:g}ms" if rest else "0s"
    parts = []
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest:
        parts.append(f"{rest // 1_000_000}s" if rest % 1_000_000 == 0 else f"{rest / 1_000_000:.6f}".rstrip("0") + "s")
    return "".join(parts)
