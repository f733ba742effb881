"""What can be said in the bodies of requests, for type checkers: no command loads this.

What is left out is as the scheduler has it; a test holds these names against what the API takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, Literal, NotRequired, TypedDict

Duration = str | float | timedelta
"""Text as `90s` or `1h30m`, a number of seconds, or a timedelta."""
Seconds = Duration
"""The same, of what is waited for by the request itself."""
Path = str | PathLike[str]
Command = Sequence[Path]
"""Words; a path is one."""


class After(TypedDict):
    job: str
    policy: NotRequired[Literal["success", "finished", "failed"]]


class Lock(TypedDict):
    key: str
    mode: NotRequired[Literal["exclusive", "shared"]]


class _Work(TypedDict, total=False):
    """What jobs, templates and direct executions are all asked for."""

    type: str | None
    pools: Mapping[str, int]
    locks: Sequence[str | Lock]
    """Keys to hold alone, or shared."""
    flow: str | None
    target: str | None
    timeout: Duration | None
    idle_timeout: Duration | None
    env: Mapping[str, str]


class _Queued(_Work, total=False):
    """The same of jobs and templates."""

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


class _Asked(TypedDict, total=False):
    """What a job or a direct execution is made of, and where it runs."""

    template: str | None
    params: Mapping[str, Any]
    name: str | None
    cwd: Path | None
    inherit_env: bool
    env_given: Sequence[str]


class JobOptions(_Asked, _Queued, total=False):
    """All of a job but its command."""

    after: Sequence[str | After]
    """Jobs by id, to come after their success, or with another policy."""
    pin: str | None
    group: str | None
    delay: Duration | None
    with_diff: bool


class Job(JobOptions, total=False):
    """One of a batch."""

    command: Command
    local: str | None
    """The name by which the others of its batch can say `after`."""


class Group(TypedDict, total=False):
    name: str | None
    mode: Literal["sequential", "parallel"]
    on_failure: str


class Around(TypedDict, total=False):
    """What the jobs of a batch get that do not bring their own."""

    cwd: Path | None
    env: Mapping[str, str]
    inherit_env: bool


class Edit(TypedDict, total=False):
    """What shall be another; what is not named stays, and None is for no name, no limit, no delay."""

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


class Template(_Queued, total=False):
    """All of a template but its name."""

    description: str | None
    command: Command
    default_params: Mapping[str, Any]
    params_schema: Mapping[str, Any] | None
    job_name: str | None


class NewTemplate(Template):
    name: str


class TemplateChange(Template, total=False):
    name: str
    set_default_params: Mapping[str, Any]


class _Times(TypedDict, total=False):
    """When a schedule fires."""

    tz: str
    catch_up: Literal["latest", "none", "all"]
    overlap: Literal["allow", "skip", "queue_one"]


class Schedule(_Times, total=False):
    """All of a schedule but its name, its cron expression and its job."""

    enabled: bool


class ScheduleChange(_Times, total=False):
    """What shall be another; what is not named stays."""

    name: str
    cron: str
    job: Job
    set_params: Mapping[str, Any]
    unset_params: Sequence[str]


class Direct(_Asked, _Work, total=False):
    """All of a direct execution but its command."""

    wait: Duration | None
    """How long its turn is waited for; as configured if nothing is said."""
