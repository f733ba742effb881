"""`gc`: remove what ended long ago."""

from __future__ import annotations

from datetime import timedelta

from rota.engine.gc import Collection, Collector
from rota.errors import InvalidInput

_MOST_DAYS = 36_500
AGE = {"minimum": 0, "maximum": _MOST_DAYS}
"""As the API's document says it."""


def collect(collector: Collector, days: int, *, is_dry: bool, actor: str) -> Collection:
    """Takes as long as it takes: not for the engine's thread."""
    if not 0 <= days <= _MOST_DAYS:
        raise InvalidInput(f"days goes from 0 (all that has ended) to {_MOST_DAYS}, not {days}").under(".days")
    return collector.collect(timedelta(days=days), cause="gc", is_dry=is_dry, actor=actor)
