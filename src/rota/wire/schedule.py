"""Schedules as JSON, and what became of their times."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.core.schedule import CatchUp, FireState, Overlap
from rota.wire.job import JobForm, JobStatus


class TimeForm(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a schedule."""

    utc: datetime
    """The time itself."""
    local: datetime
    """In the schedule's zone."""


class FireForm(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a schedule, and what became of it."""

    at: datetime
    """The time."""
    state: FireState
    """What became of it."""
    job: str | None
    """What was made then."""
    status: JobStatus | None
    """Of the job's chain, as it is now; null where it has been collected."""
    late: float
    """Seconds from its time to when this became of it."""
    reason: str | None
    """Why nothing was made."""
    count: int
    """So many times were missed together; `at` is the last of them."""
    trigger: bool
    """Somebody asked for it: the time is when he did."""


class ScheduleForm(msgspec.Struct, frozen=True, kw_only=True):
    """Times, and the job that is made at each."""

    id: str
    name: str
    """What it is called."""
    cron: str
    """Its times, as a cron expression."""
    tz: str
    """The time zone that its times are of."""
    catch_up: CatchUp
    """Which of the times fire that passed while no scheduler was there."""
    overlap: Overlap
    """What becomes of a time while a job that it made is active."""
    enabled: bool
    """Whether its times fire."""
    next_at: datetime | None
    """When it is due; null while it is disabled, or when it has no further time."""
    since: datetime
    """No time before this fires: it was added, enabled, or given its times then."""
    created_at: datetime
    changed_at: datetime
    """When it was last changed."""
    template: str | None
    """What its jobs are made from, if it is a template."""
    command: list[str]
    """The argument vector of its jobs; empty where that is the template's."""
    params: dict[str, Any]
    """What its jobs are given."""
    priority: int
    """Of its jobs."""
    job: dict[str, Any]
    """What it asks for each time, but for its environment."""
    last_fire: FireForm | None
    """What became of its last time."""
    next: list[TimeForm] = []
    """Its next times, where it is looked at alone."""
    fires: list[FireForm] = []
    """The latest, where it is looked at alone."""


class SchedulesForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules."""

    schedules: list[ScheduleForm]
    """The oldest first."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class ScheduleAddedForm(ScheduleForm, frozen=True, kw_only=True):
    """A schedule that was added."""

    warning: str | None
    """What its jobs would fail on now; it may be there in time."""


class ScheduleChangedForm(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was changed."""

    schedule: ScheduleForm
    """As it is now."""
    fields: list[str]
    """What is another than before."""
    warning: str | None


class TriggerForm(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a trigger."""

    result: Literal["submitted", "already_active"]
    """`already_active`: another chain has the unique key, and `job` is that one; nothing was stored."""
    job: JobForm
    """The job that was made, or the one that has the key."""


class FiresForm(msgspec.Struct, frozen=True, kw_only=True):
    """Times to come."""

    fires: list[TimeForm]
    """Fewer than asked for where it has no more."""
