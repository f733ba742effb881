"""A submit as received, before any check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rota.core.artifact import MissingProducer
from rota.core.edges import DependencyPolicy
from rota.core.lock import LockMode
from rota.core.template import TemplateSnapshot
from rota.core.trace import Trace
from rota.ids import ScheduleId, TemplateId
from rota.wire.schema_types import (
    AbsolutePath,
    ArtifactText,
    DurationText,
    GitRef,
    KeyText,
    Name,
    NameOrId,
    Priority,
    Retries,
    ShellScript,
    SimpleName,
    Text,
    TitleText,
    Url,
    Weight,
)


class Dependency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that has to end first."""

    job: str
    """Job id, or in a batch the `local` name of a job."""
    policy: DependencyPolicy = DependencyPolicy.SUCCESS
    """Required outcome of the job."""


class LockRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock to hold during a run."""

    key: KeyText
    """Name of the lock: any text that its users agree on."""
    mode: LockMode = LockMode.EXCLUSIVE
    """`shared` with other shared holders, or `exclusive`."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to submit."""

    command: list[Text] = []
    """The program and its arguments; the template's by default."""
    template: NameOrId | None = None
    """Name or id of a template."""
    name: TitleText | None = None
    """Display name; names need not be unique."""
    type: Name | None = None
    """Kind of work, which selects the pool `type/TYPE` and its breaker."""
    params: dict[str, Any] = {}
    """Params of its template, and any other data to store with the job."""
    priority: Priority | None = None
    """Priority; by default the template's, or 0."""
    after: list[Dependency] = []
    """Jobs that it depends on."""
    locks: list[LockRequest] = []
    """Locks that it holds while it runs."""
    needs: list[ArtifactText] = []
    """Artifacts that must exist before it starts, as `file:plan.md`."""
    produces: list[ArtifactText] = []
    """Artifacts that it produces, as `file:plan.md`."""
    missing_producer: MissingProducer | None = None
    """Behavior while no job produces a needed artifact; null waits for `file` and `custom`, and blocks on the other
    types."""
    pin: GitRef | None = None
    """Commit that a branch must be at when the job starts: `main` for its present head, `main@<oid>` for a commit."""
    pools: dict[str, Weight] = {}
    """Capacity that it uses by pool, in addition to the pools of type, flow and target."""
    flow: Name | None = None
    """Flow that it is a step of."""
    phase: SimpleName | None = None
    """Part of its flow in which jobs run one at a time."""
    parallelizable: bool | None = None
    """Whether it may run in parallel with other jobs of its phase and flow."""
    unique: KeyText | None = None
    """Key that only one active chain can have; a second submit with the key returns that chain's job."""
    target: Name | None = None
    """Object of the work, which selects the pool `target/TARGET` and its breaker."""
    group: NameOrId | None = None
    """Unfinished group to join."""
    webhooks: list[Url] = []
    """URLs to notify of its end, in addition to the webhook endpoints."""
    webhook_events: list[NameOrId] = []
    """Events to notify these URLs of; empty for the default ones."""
    delay: DurationText | None = None
    """Minimum time in the queue, as `10m`."""
    timeout: DurationText | None = None
    """Maximum run time."""
    idle_timeout: DurationText | None = None
    """Maximum time without output on stdout or stderr."""
    skip_if: ShellScript | None = None
    """Shell command that runs first; the job is skipped if it exits with 0."""
    retries: Retries | None = None
    """Maximum number of retries after a failure."""
    retry: NameOrId | None = None
    """Name of a retry policy in the configuration."""
    cwd: AbsolutePath | None = None
    """Working directory, as an absolute path; the scheduler's own by default."""
    worktree: bool | None = None
    """Whether it runs in a git worktree and on a branch of its own."""
    base: GitRef | None = None
    """Start of that branch; HEAD by default."""
    patch: bool | None = None
    """Whether its changes are kept as a patch."""
    with_diff: bool = False
    """Whether it receives the uncommitted changes as a patch, which is applied to its worktree if it has one."""
    env: dict[str, Text] = {}
    """Environment variables."""
    inherit_env: bool = True
    """Whether `env` is added to the scheduler's own environment. The CLI sends its whole environment instead."""
    explicit_env: list[str] = []
    """Names in `env` that were set explicitly, if `env` is a whole environment; they override a template's."""
    local: NameOrId | None = None
    """Name that other jobs of a batch use in `after`, since the job has no id yet."""


class GroupRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group to create, with its members or before them."""

    name: str | None = None
    """Name to use instead of its id until it is finished."""
    mode: Literal["sequential", "parallel"] = "parallel"
    """Whether members run one after another, or in parallel as capacity allows."""
    on_failure: str = "stop"
    """Policy for the other members after a failure: `stop`, `continue`, `skip`, or the policy of a plugin."""


class JobOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a job: a template, a schedule, a legacy endpoint, or by default a plain submit."""

    template: TemplateId | None = None
    schedule: ScheduleId | None = None
    template_snapshot: TemplateSnapshot | None = None
    """Parts of the template that the job keeps."""
    sources: Mapping[str, str] = {}
    """Source of each policy that the template chose, by the name of the policy."""
    is_legacy: bool = False
    """Whether a legacy endpoint made it: its clients rely on retries that they do not request."""

    @property
    def is_by_hand(self) -> bool:
        return self.template is None and self.schedule is None and not self.is_legacy


class DefaultEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Environment of a job that does not set its own."""

    cwd: str
    variables: Mapping[str, str]
    trace: Trace = {}
    """Trace context of the request."""
