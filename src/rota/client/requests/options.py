"""Typed options of request bodies, for type checkers only: no command imports this module.

The scheduler supplies the defaults of omitted options. A test compares these names with the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, NotRequired, TypedDict

Duration = str | float | timedelta
"""Text such as `90s` or `1h30m`, a number of seconds, or a timedelta."""
Seconds = Duration
"""Maximum time of a request that waits."""
Path = str | PathLike[str]
Command = Sequence[Path]
"""Program and arguments."""


class DependencyOptions(TypedDict):
    """A dependency on another job."""

    job: str
    policy: NotRequired[Literal["success", "finished", "failed"]]


class LockOptions(TypedDict):
    """A lock."""

    key: str
    mode: NotRequired[Literal["exclusive", "shared"]]


class _CommonOptions(TypedDict, total=False):
    """Options of jobs, templates and direct executions."""

    type: str | None
    pools: Mapping[str, int]
    locks: Sequence[str | LockOptions]
    """Locks: a plain key is exclusive."""
    flow: str | None
    target: str | None
    timeout: Duration | None
    idle_timeout: Duration | None
    env: Mapping[str, str]


class _QueuedOptions(_CommonOptions, total=False):
    """Options of jobs and templates."""

    priority: int | None
    retries: int | None
    retry: str | None
    needs: Sequence[str]
    produces: Sequence[str]
    missing_producer: Literal["wait", "block"] | None
    phase: str | None
    parallelizable: bool | None
    unique: str | None
    webhooks: Sequence[str]
    webhook_events: Sequence[str]
    skip_if: str | None
    worktree: bool | None
    base: str | None
    patch: bool | None


class _CommandOptions(TypedDict, total=False):
    """Options of jobs and direct executions."""

    template: str | None
    params: Mapping[str, Any]
    name: str | None
    cwd: Path | None
    inherit_env: bool
    explicit_env: Sequence[str]


class JobOptions(_CommandOptions, _QueuedOptions, total=False):
    """Options of a job, without its command."""

    after: Sequence[str | DependencyOptions]
    """Ids of jobs whose success is required, or dependencies with another policy."""
    pin: str | None
    group: str | None
    delay: Duration | None
    with_diff: bool


class NewJobOptions(JobOptions, total=False):
    """Options of a job in a batch."""

    command: Command
    local: str | None
    """Name of the job within its batch, for the `after` of other jobs."""


class GroupOptions(TypedDict, total=False):
    """Options of a group."""

    name: str | None
    mode: Literal["sequential", "parallel"]
    on_failure: str


class EnvironmentOptions(TypedDict, total=False):
    """Default environment of the jobs in a batch."""

    cwd: Path | None
    env: Mapping[str, str]
    inherit_env: bool


class EditOptions(TypedDict, total=False):
    """Fields of a job to change. Omitted fields stay unchanged; `None` removes the name, the limit or the delay."""

    command: Command
    params: Mapping[str, Any]
    set_params: Mapping[str, Any]
    unset_params: Sequence[str]
    name: str | None
    priority: int
    timeout: Duration | None
    idle_timeout: Duration | None
    retries: int
    retry: str | None
    delay: Duration | None


class TemplateOptions(_QueuedOptions, total=False):
    """Options of a template, without its name."""

    description: str | None
    command: Command
    default_params: Mapping[str, Any]
    params_schema: Mapping[str, Any] | None
    job_name: str | None


class NewTemplateOptions(TemplateOptions):
    """Options of a new template."""

    name: str


class TemplateChangeOptions(TemplateOptions, total=False):
    """Fields of a template to change."""

    name: str
    set_default_params: Mapping[str, Any]


class _ScheduleTimeOptions(TypedDict, total=False):
    """Options for the times of a schedule."""

    tz: str
    catch_up: Literal["latest", "none", "all"]
    overlap: Literal["allow", "skip", "queue_one"]


class ScheduleOptions(_ScheduleTimeOptions, total=False):
    """Options of a schedule, without its name, its cron expression and its job."""

    enabled: bool


class ScheduleChangeOptions(_ScheduleTimeOptions, total=False):
    """Fields of a schedule to change. Omitted fields stay unchanged."""

    name: str
    cron: str
    job: NewJobOptions
    set_params: Mapping[str, Any]
    unset_params: Sequence[str]


class DirectOptions(_CommandOptions, _CommonOptions, total=False):
    """Options of a direct execution, without its command."""

    wait: Duration | None
    """Maximum time to wait for the start. The default is configured."""
