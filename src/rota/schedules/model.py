"""A schedule: which times fire and which are recorded as missed.

    on time      less than `LATE_TOLERANCE` has passed since: the time fires, whatever the policy
    late         `latest`: only the last late time fires, unless another time is on time
                 `none`: no late time fires
                 `all`: every late time fires, but only the last `MAX_CATCH_UP_FIRES` of them
    the rest     is missed, with one record for all of them together

A step is one transaction: missed times, at most one fire, and the next due time. Several steps may follow each other.
Times up to the creation of a schedule, its enabling or a change of its times are never due.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from rota.ids import JobId, ScheduleId, format_job_id, format_schedule_id
from rota.schedules.cron import MICROSECOND, Cron

LATE_TOLERANCE = timedelta(seconds=60)
"""Age from which a fire is late: the scheduler was down, the clock was set, or the machine slept."""
MAX_CLOCK_ADJUSTMENT = timedelta(hours=3)
"""Largest backward clock change that repeats no time. Beyond it the old clock was wrong, and times fire again."""
MAX_CATCH_UP_FIRES = 100
"""Maximum number of late times of one schedule that fire under `all`."""


class CatchUp(StrEnum):
    """Choice of the times to fire that passed while the scheduler was down: the last, none or all."""

    LATEST = "latest"
    NONE = "none"
    ALL = "all"


class Overlap(StrEnum):
    """Policy for a time that is due while a job of the schedule is active."""

    ALLOW = "allow"
    SKIP = "skip"
    """Skip the time if a job of the schedule is active."""
    QUEUE_ONE = "queue_one"
    """Queue one job while another runs; skip further times while that job waits."""


class FireState(StrEnum):
    """Outcome of a time."""

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
    """Job request as JSON."""
    environment: int | None
    """Stored environment of the client that created the schedule; `None` for the scheduler's own environment."""
    is_enabled: bool
    effective_from: datetime
    next_at: datetime | None
    """First time without an outcome; `None` while the schedule is disabled."""
    created_at: datetime
    changed_at: datetime
    unreadable: str | None = None
    """Error that makes the stored record unusable, if any."""


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a time of a schedule, with its outcome."""

    schedule: ScheduleId
    at: datetime
    state: FireState
    job: JobId | None = None
    recorded_at: datetime
    reason: str | None = None
    count: int = 1
    """Number of times that were missed together; `at` is the last of them."""
    is_manual: bool = False
    """Whether a client triggered the fire, instead of the clock; `at` is the time of the request."""


class MissedTimes(msgspec.Struct, frozen=True, kw_only=True):
    first: datetime
    last: datetime
    count: int


class ScheduleStep(msgspec.Struct, frozen=True, kw_only=True):
    missed: MissedTimes | None = None
    at: datetime | None = None
    """Time that fires; `None` if no time fires."""
    next_at: datetime | None


def plan_step(cron: Cron, first: datetime, catch_up: CatchUp, *, now: datetime, noticed_at: datetime) -> ScheduleStep:
    """Plan the next step of a schedule whose next time is due. `noticed_at` is when the scheduler noticed due work: a
    time that is only delayed by other due schedules is not late."""
    if first > noticed_at - LATE_TOLERANCE:
        return ScheduleStep(at=first, next_at=cron.next_after(first))
    at = _choose_time(cron, first, catch_up, now=now, noticed_at=noticed_at)
    end = now if at is None else at - MICROSECOND
    missed = _find_missed(cron, first - MICROSECOND, end)
    return ScheduleStep(missed=missed, at=at, next_at=cron.next_after(now if at is None else at))


def _choose_time(
    cron: Cron, first: datetime, catch_up: CatchUp, *, now: datetime, noticed_at: datetime
) -> datetime | None:
    if catch_up is CatchUp.ALL:
        return next(iter(cron.latest(first - MICROSECOND, now, MAX_CATCH_UP_FIRES)), None)
    on_time = cron.next_after(noticed_at - LATE_TOLERANCE)
    if on_time is not None and on_time <= now:
        return on_time
    return next(iter(cron.latest(first - MICROSECOND, now, 1)), None) if catch_up is CatchUp.LATEST else None


def _find_missed(cron: Cron, after: datetime, until: datetime) -> MissedTimes | None:
    last = cron.latest(after, until, 1)
    first = cron.next_after(after)
    if not last or first is None:
        return None
    return MissedTimes(first=first, last=last[0], count=cron.count(after, until))


def should_restart_times(latest: datetime | None, *, now: datetime, set_back: timedelta) -> bool:
    """Return whether recorded times must be ignored because they come from a wrong clock. `latest` is the latest
    recorded time. `set_back` is how far the clock was just set back, or zero if unknown: then only a record that is far
    ahead of the clock counts as wrong."""
    if latest is None:
        return False
    return latest > (now if set_back > MAX_CLOCK_ADJUSTMENT else now + MAX_CLOCK_ADJUSTMENT)


class ActiveScheduledJob(msgspec.Struct, frozen=True, kw_only=True):
    """An active job of a schedule."""

    job: JobId
    is_waiting: bool


def schedule_lock_key(schedule: ScheduleId) -> str:
    """Return the key of the lock that serializes the jobs of a schedule with `queue_one`."""
    return f"schedule/{format_schedule_id(schedule)}"


def overlap_reason(overlap: Overlap, active: Sequence[ActiveScheduledJob]) -> str | None:
    """Return why no further job may be created now, or `None` if it may."""
    if overlap is Overlap.ALLOW or not active:
        return None
    if overlap is Overlap.SKIP:
        return f"{format_job_id(active[0].job)} is still active"
    waiting = next((job for job in active if job.is_waiting), None)
    return None if waiting is None else f"{format_job_id(waiting.job)} is waiting already"
