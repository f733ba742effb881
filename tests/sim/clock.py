"""Two clocks: the wall's, which somebody may set, and the one that only goes forward."""

from __future__ import annotations

from datetime import timedelta

from harness import FakeClock


class SimClock(FakeClock):
    def __init__(self) -> None:
        super().__init__()
        self.passed = 1000.0

    def monotonic(self) -> float:
        return self.passed

    def advance(self, **duration: float) -> None:
        step = timedelta(**duration)
        self.moment += step
        self.passed += step.total_seconds()

    def jump(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
