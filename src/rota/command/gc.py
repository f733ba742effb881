"""`gc`: remove jobs and other records that ended long ago."""

from __future__ import annotations

from datetime import timedelta

from rota.engine.retention import RetentionCollector, RetentionResult
from rota.errors import InvalidInput

_MAX_DAYS = 36_500
DAYS_SCHEMA = {"minimum": 0, "maximum": _MAX_DAYS}
"""Limits of `days` in the OpenAPI document."""


def collect_garbage(collector: RetentionCollector, days: int, *, is_dry_run: bool, actor: str) -> RetentionResult:
    """Collect records that ended at least `days` ago. The duration is unbounded, so never call it on the engine's
    thread."""
    if not 0 <= days <= _MAX_DAYS:
        raise InvalidInput(f"days {days} is out of range; use 0 (everything that ended) to {_MAX_DAYS}").at_path(
            ".days"
        )
    return collector.collect(timedelta(days=days), cause="gc", is_dry_run=is_dry_run, actor=actor)
