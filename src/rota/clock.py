"""Clock port: the engine reads the time only through it, so that a simulator can control it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

SET_BACK_THRESHOLD = 1.0
"""Seconds that the wall clock may fall behind the monotonic clock before it counts as set back."""


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the aware wall time in UTC: for records, `not_before` and calendars."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back: for timeouts, leases and windows."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
