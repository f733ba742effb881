"""The clock port: the only way the engine learns the time, so that a simulator can own it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

SET_BACK = 1.0
"""Seconds that the wall clock may lose against the other before it counts as set back."""


class Clock(Protocol):
    def now(self) -> datetime:
        """Wall time, aware, UTC: for records, `not_before` and calendars."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for timeouts, leases and windows."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
