"""Two clocks: the wall clock, which can be set, and the monotonic clock."""

from __future__ import annotations

from datetime import timedelta

from tests.harness import FakeClock


class SimClock(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 1000.0

    def monotonic(self) -> float:
        return self.elapsed

    def advance(self, **duration: float) -> None:
        step = timedelta(**duration)
        self.moment += step
        self.elapsed += step.total_seconds()

    def adjust(self, seconds: float) -> None:
        """Set the wall clock by so many seconds, without time passing."""
        self.moment += timedelta(seconds=seconds)
