"""A schedule: what is due of it, and what becomes of the times that nobody was there for.

    on time      less than `TOLERANCE` has passed since: it fires, whatever the policy
    late         `latest`: the last of all of them fires, unless another fires on time
                 `none`: nothing
                 `all`: each, but of more than `MOST` only the last
    the rest     is missed, and booked so: once for all of them together

A step is one transaction: what is missed, the time that fires, and what is due then. Many steps may follow each other.
Nothing is due that is not later than when the schedule was made, enabled, or given its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.core.cron import TICK, Cron
from rota.ids import JobId, ScheduleId, show_job, show_schedule

TOLERANCE = timedelta(seconds=60)
"""A fire that comes later than this is late: the scheduler was away, or the clock was set, or the machine slept."""
MOST = 100
"""Late times of one schedule that fire under `all`."""


class CatchUp(StrEnum):
    """Which of the times fire that passed while no scheduler was there: the last, none, or each."""

    LATEST = "latest"
    NONE = "none"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a time while a job that the schedule made is active."""

    ALLOW = "allow"
    SKIP = "skip"
    """Not while a job that it made is active."""
    QUEUE_ONE = "queue_one"
    """One waits while another runs, until that has ended."""


class FireState(StrEnum):
    """What became of a time."""

    FIRED = "fired"
    MISSED = "missed"
    SKIPPED = "skipped"
    FAILED = "failed"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    id: ScheduleId
    name: str
    cron: str
    zone: str
    catch_up: CatchUp
    overlap: Overlap
    body: str
    """The job that it makes, as JSON."""
    surroundings: int | None
    """The environment of who made it, where it is stored; none: the scheduler's own."""
    is_enabled: bool
    since: datetime
    next_at: datetime | None
    """The first time that nothing has become of yet; none while it is disabled."""
    created_at: datetime
    changed_at: datetime


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a schedule, and what became of it."""

    schedule: ScheduleId
    at: datetime
    state: FireState
    job: JobId | None = None
    booked_at: datetime
    reason: str | None = None
    count: int = 1
    """So many times were missed together; `at` is the last of them."""
    is_trigger: bool = False
    """Somebody asked for it: the time is when he did."""


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    first: datetime
    last: datetime
    count: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    missed: Missed | None = None
    at: datetime | None = None
    """What fires; none: nothing does."""
    next_at: datetime | None


def step(cron: Cron, first: datetime, catch_up: CatchUp, *, now: datetime, noticed: datetime) -> Step:
    """What to do about a schedule whose next time is due. `noticed` is when it was seen that something is: who comes
    late because much is due at once is not late."""
    if first > noticed - TOLERANCE:
        return Step(at=first, next_at=cron.next_after(first))
    at = _chosen(cron, first, catch_up, now=now, noticed=noticed)
    end = now if at is None else at - TICK
    missed = _missed(cron, first - TICK, end)
    return Step(missed=missed, at=at, next_at=cron.next_after(now if at is None else at))


def _chosen(cron: Cron, first: datetime, catch_up: CatchUp, *, now: datetime, noticed: datetime) -> datetime | None:
    if catch_up is CatchUp.ALL:
        return next(iter(cron.latest(first - TICK, now, MOST)), None)
    punctual = cron.next_after(noticed - TOLERANCE)
    if punctual is not None and punctual <= now:
        return punctual
    return next(iter(cron.latest(first - TICK, now, 1)), None) if catch_up is CatchUp.LATEST else None


def _missed(cron: Cron, after: datetime, upto: datetime) -> Missed | None:
    last = cron.latest(after, upto, 1)
    first = cron.next_after(after)
    if not last or first is None:
        return None
    return Missed(first=first, last=last[0], count=cron.count(after, upto))


class Active(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a schedule has made and that has not ended."""

    job: JobId
    is_waiting: bool


def line_of(schedule: ScheduleId) -> str:
    """The key of the lock by which the jobs of one that queues take turns."""
    return f"schedule/{show_schedule(schedule)}"


def crowded_by(overlap: Overlap, active: Sequence[Active]) -> str | None:
    """Why no other job may be made beside those; none where it may."""
    if overlap is Overlap.ALLOW or not active:
        return None
    if overlap is Overlap.SKIP:
        return f"{show_job(active[0].job)} is still active"
    waiting = next((each for each in active if each.is_waiting), None)
    return None if waiting is None else f"{show_job(waiting.job)} is waiting already"
