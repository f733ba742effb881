"""The pace of the tick: how many starts one tick is good for, and how long after each other they come.

    spawn delay     a start comes no sooner than the last one and the delay; the tick never sleeps, a timer wakes it
    heartbeat       only ticks start jobs: each decides how many, and nothing more starts until the next

Without either every turn starts what fits. Room is another question, and the plan's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from rota.core.control import show_time
from rota.core.status import Status
from rota.core.verdict import Wait
from rota.core.wait import WaitKind

Heartbeat = timedelta | Literal["manual"]
"""How often the scheduler ticks by itself, or that only somebody else does."""


class Tick(msgspec.Struct, frozen=True):
    """Asked for by hand, or by the clock."""

    batch: int | None
    """The most that it starts; none where only room decides."""


def batch_of(batch_size: int | None, heartbeat: Heartbeat | None) -> int | None:
    """The most that one tick starts where nobody says how many."""
    return 1 if batch_size is None and heartbeat is not None else batch_size


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """What came before."""

    last_start: datetime | None = None
    last_tick: datetime | None = None
    """Of those that the scheduler makes by itself."""
    owed: int = 0
    """Starts that the last tick decided on and that have not come yet: they keep their distance, or what they hang on
    is still being looked at."""

    def as_of(self, now: datetime) -> Pace:
        """Nothing of it is later than now: the clock may have been set back, and nobody is to wait until it is as late
        again."""
        start, tick = self.last_start, self.last_tick
        return Pace(
            last_start=None if start is None else min(start, now),
            last_tick=None if tick is None else min(tick, now),
            owed=self.owed,
        )

    def next_start(self, delay: timedelta) -> datetime | None:
        """None where no distance is to be kept."""
        return self.last_start + delay if delay and self.last_start is not None else None

    def next_tick(self, heartbeat: Heartbeat | None, now: datetime) -> datetime | None:
        """Of those that the scheduler makes by itself; the first is made at once."""
        if not isinstance(heartbeat, timedelta):
            return None
        return now if self.last_tick is None else self.last_tick + heartbeat


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """When a job can start that nothing else holds."""

    not_before: datetime | None = None
    """None where it can start at once, or where nobody knows."""
    needs_tick: bool = False

    def is_for_later(self, now: datetime) -> bool:
        return self.needs_tick or self.wait(now) is not None

    def wait(self, now: datetime) -> Wait | None:
        if self.not_before is None or self.not_before <= now:
            return None
        return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {show_time(self.not_before)}")


def outlook(pace: Pace, delay: timedelta, heartbeat: Heartbeat | None, now: datetime) -> Outlook:
    """A start that a tick has decided on needs no other."""
    needs_tick = heartbeat is not None and not pace.owed
    moments = (pace.next_start(delay), pace.next_tick(heartbeat, now) if needs_tick else None)
    return Outlook(not_before=max((each for each in moments if each is not None), default=None), needs_tick=needs_tick)
