"""Pacing: how many jobs a tick may start, and the distance between starts.

    spawn delay          minimum time between two starts; the tick never sleeps, a timer wakes it
    dispatch interval    only ticks start jobs: each tick decides how many, and no more start until the next tick

Without either, every turn starts all jobs that fit. Capacity is a separate question, which `tick.plan` answers.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from rota.kernel.holds import format_time
from rota.kernel.status import Status
from rota.kernel.verdict import Wait, WaitKind

DispatchInterval = timedelta | Literal["manual"]
"""Time between automatic ticks, or "manual" if only `rota tick` makes ticks."""


class Tick(msgspec.Struct, frozen=True):
    """A tick, requested manually or due by the clock."""

    batch_size: int | None
    """Maximum number of starts; `None` if only capacity limits them."""


def effective_batch_size(batch_size: int | None, dispatch_interval: DispatchInterval | None) -> int | None:
    """Return the maximum number of starts in a tick that does not specify a batch size."""
    return 1 if batch_size is None and dispatch_interval is not None else batch_size


class PaceState(msgspec.Struct, frozen=True, kw_only=True):
    """Previous starts and ticks."""

    last_start: datetime | None = None
    last_tick: datetime | None = None
    """Time of the last automatic tick."""
    pending_starts: int = 0
    """Starts that the last tick planned and that are still to come, because of the spawn delay or a fact that is being
    probed."""

    def clamp_to(self, now: datetime) -> PaceState:
        """Return the state with no time later than now: after the clock is set back, jobs must not wait for the old
        time."""
        start, tick = self.last_start, self.last_tick
        return PaceState(
            last_start=None if start is None else min(start, now),
            last_tick=None if tick is None else min(tick, now),
            pending_starts=self.pending_starts,
        )

    def next_start(self, delay: timedelta) -> datetime | None:
        """Return the earliest next start, or `None` without a spawn delay."""
        return self.last_start + delay if delay and self.last_start is not None else None

    def next_tick(self, dispatch_interval: DispatchInterval | None, now: datetime) -> datetime | None:
        """Return the time of the next automatic tick. The first tick is due immediately."""
        if not isinstance(dispatch_interval, timedelta):
            return None
        return now if self.last_tick is None else self.last_tick + dispatch_interval


class StartOutlook(msgspec.Struct, frozen=True, kw_only=True):
    """Earliest start of a job that no gate holds."""

    not_before: datetime | None = None
    """Time of the next start; `None` if a job can start immediately, or if the next tick has no fixed time."""
    needs_tick: bool = False
    """Whether only a tick starts more jobs."""
    is_manual: bool = False
    """Whether only `rota tick` makes a tick."""
    spacing: timedelta = timedelta()
    """Spawn delay between two starts."""

    def is_delayed(self, now: datetime) -> bool:
        return self.needs_tick or (self.not_before is not None and self.not_before > now)

    def make_wait(self, now: datetime, jobs_before: int | None) -> Wait | None:
        """Return why a job that no gate holds is waiting. `jobs_before` is the number of jobs that start before it;
        `None` if it starts in a later tick."""
        if not self.is_delayed(now):
            return None
        return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=self._format_detail(now, jobs_before))

    def _format_detail(self, now: datetime, jobs_before: int | None) -> str:
        tick = "`rota tick`" if self.is_manual else "tick"
        if jobs_before is None:
            return f"other jobs come first; it starts with a later {tick}"
        start = now if self.not_before is None else max(now, self.not_before)
        start += jobs_before * self.spacing
        parts = [f"starts with the next {tick}"] if self.needs_tick else []
        if start > now and (self.not_before is not None or not self.is_manual):
            parts.append(f"not before {format_time(start)}")
        return ", ".join(parts)


def compute_outlook(
    pace: PaceState, delay: timedelta, dispatch_interval: DispatchInterval | None, now: datetime
) -> StartOutlook:
    """Return when the next job can start. Starts that a tick has already planned need no further tick."""
    pace = pace.clamp_to(now)
    needs_tick = dispatch_interval is not None and not pace.pending_starts
    moments = (pace.next_start(delay), pace.next_tick(dispatch_interval, now) if needs_tick else None)
    return StartOutlook(
        not_before=max((moment for moment in moments if moment is not None), default=None),
        needs_tick=needs_tick,
        is_manual=needs_tick and dispatch_interval == "manual",
        spacing=delay,
    )
