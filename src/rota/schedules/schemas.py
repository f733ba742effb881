"""JSON representations of schedules and their fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.jobs.schemas import EffectivePolicy, JobStatusText, JobView
from rota.schedules.model import CatchUp, FireState, Overlap


class ScheduledTime(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a schedule."""

    utc: datetime
    """The time in UTC."""
    local: datetime
    """The time in the time zone of the schedule."""


class FireView(msgspec.Struct, frozen=True, kw_only=True):
    """A time of a schedule, with its outcome."""

    at: datetime
    """Scheduled time; for a manual trigger, the time of the request."""
    state: FireState
    """Outcome of the time."""
    job: str | None
    """Id of the job that was created; `null` if there is none."""
    status: JobStatusText | None
    """Current status of the job's chain; `null` if the chain was removed by gc."""
    delay_seconds: float
    """Seconds between the scheduled time and its outcome."""
    reason: str | None
    """Reason that no job was created; `null` if one was."""
    count: int
    """Number of times that were missed together; `at` is the last of them."""
    trigger: bool
    """Whether the job was triggered manually."""


class ScheduleView(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: a cron expression and the job that it creates."""

    id: str
    """Id of the schedule."""
    name: str
    """Name of the schedule."""
    cron: str
    """Cron expression."""
    tz: str
    """Time zone of the cron expression."""
    catch_up: CatchUp
    """Policy for times that passed while the scheduler was down."""
    overlap: Overlap
    """Policy for a time that is due while a job of the schedule is active."""
    enabled: bool
    """Whether the schedule is enabled. A disabled schedule does not fire."""
    next_at: datetime | None
    """Next time that is due; `null` if the schedule is disabled or has no further time."""
    since: datetime
    """Time from which the schedule fires: its creation, its last enabling or the last change of its times."""
    created_at: datetime
    changed_at: datetime
    """Time of the last change."""
    template: str | None
    """Name or id of the template that jobs are created from; `null` if there is none."""
    command: list[str]
    """Program and arguments of the jobs; empty if the template defines them."""
    params: dict[str, Any]
    """Parameters of the jobs."""
    priority: int
    """Priority of the jobs."""
    job: dict[str, Any]
    """Job request that is submitted at each time, without its environment. Queries of webhook URLs are masked."""
    last_fire: FireView | None
    """Last time with its outcome; `null` if there is none."""
    unreadable: str | None
    """Error in the stored record; `null` if the record is valid. An unreadable schedule creates no jobs."""
    next: list[ScheduledTime] = []
    """Next times. Empty in a list of schedules."""
    fires: list[FireView] = []
    """Latest times with their outcomes. Empty in a list of schedules."""
    policies: list[EffectivePolicy] | None = None
    """Policies in force for a job that the schedule would create now, with their sources. `null` unless a single
    schedule is requested, or if it can create no job."""


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules, oldest first."""

    schedules: list[ScheduleView]
    """Schedules, oldest first."""
    next: str | None


class ScheduleAddResult(ScheduleView, frozen=True, kw_only=True):
    """A schedule that was just added."""

    warning: str | None
    """Warning about something missing that jobs of the schedule need; `null` if there is none."""


class ScheduleChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of changing a schedule."""

    schedule: ScheduleView
    """The schedule after the change."""
    fields: list[str]
    """Names of the fields that changed."""
    warning: str | None
    """Warning about the schedule; `null` if there is none."""


class TriggerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a manual trigger."""

    result: Literal["submitted", "already_active"]
    """`submitted`, or `already_active` if another active chain has the unique key. In that case `job` is the job of
    that chain, and nothing is stored."""
    job: JobView
    """The job that was created, or the job that has the unique key."""


class UpcomingFires(msgspec.Struct, frozen=True, kw_only=True):
    """The next times of a schedule."""

    fires: list[ScheduledTime]
    """Next times. Fewer than requested if the schedule has no further times."""
