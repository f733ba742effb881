"""A submit as it comes in, before anything is known to be good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rota.core.after import AfterPolicy
from rota.core.artifact import MissingProducer
from rota.core.lock import LockMode
from rota.core.template import Recipe
from rota.core.trace import Trace
from rota.ids import ScheduleId, TemplateId
from rota.wire.text import (
    AbsolutePath,
    ArtifactText,
    Called,
    Key,
    Name,
    Priority,
    Ref,
    Retries,
    Script,
    Span,
    Text,
    Title,
    Url,
    Weight,
    Word,
)


class AfterWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to come after."""

    job: str
    """Its id, or in a batch its `local` name."""
    policy: AfterPolicy = AfterPolicy.SUCCESS
    """What has to have become of it."""


class LockWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock to have while it runs."""

    key: Key
    """What is locked: any text that those who share it agree on."""
    mode: LockMode = LockMode.EXCLUSIVE
    """`shared` with others that share it, or `exclusive`."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as asked for."""

    command: list[Text] = []
    """Given, or its template's."""
    template: Called | None = None
    """By name or id."""
    name: Title | None = None
    """What people call it; many jobs may have the same."""
    type: Name | None = None
    """What kind of work it is: pools and breakers go by it."""
    params: dict[str, Any] = {}
    """Whatever its template asks for, and anything else worth keeping with it."""
    priority: Priority | None = None
    """0 unless it or its template says so."""
    after: list[AfterWanted] = []
    """Jobs that it comes after."""
    locks: list[LockWanted] = []
    """What it locks while it runs."""
    needs: list[ArtifactText] = []
    """Artifacts that have to be there before it starts, as `file:plan.md`."""
    produces: list[ArtifactText] = []
    """Artifacts that it is to make, as `file:plan.md`."""
    missing_producer: MissingProducer | None = None
    """What becomes of it when nobody is to produce what it needs; none for what the configuration says."""
    pin: Ref | None = None
    """`main` for the head as it is now, `main@<oid>` for a given one."""
    pools: dict[str, Weight] = {}
    """What it takes from which pools while it runs, beyond what type, flow and target say."""
    flow: Name | None = None
    """The flow that it is a step of."""
    phase: Word | None = None
    """The part of its flow in which jobs run one by one."""
    parallelizable: bool | None = None
    """Whether it may run beside others of its phase and flow."""
    unique: Key | None = None
    """A key that its chain has to itself as long as it is active; a second submit with it is told of that chain."""
    target: Name | None = None
    """What it works on."""
    group: Called | None = None
    """One that is not over yet, which it joins."""
    webhooks: list[Url] = []
    """URLs that are told how it ends, beyond the endpoints."""
    webhook_events: list[Called] = []
    """Of which ends they are told; none named: the usual ones."""
    delay: Span | None = None
    """How long it waits at least, as `10m`."""
    timeout: Span | None = None
    """How long it may run."""
    idle_timeout: Span | None = None
    """How long it may run without a word on stdout or stderr."""
    skip_if: Script | None = None
    """A shell command that is run before it; if that exits with 0, the job is skipped."""
    retries: Retries | None = None
    """How often it is tried again if it fails."""
    retry: Called | None = None
    """Which policy of retries it has, by its name in the configuration."""
    cwd: AbsolutePath | None = None
    """The directory that it runs in, as an absolute path; the scheduler's own if none is given."""
    worktree: bool | None = None
    """Whether it runs in a git worktree and on a branch of its own."""
    base: Ref | None = None
    """Where that branch begins; the head if nothing is said."""
    patch: bool | None = None
    """Whether what it has changed is kept as a patch."""
    with_diff: bool = False
    """Whether it gets what is not committed yet as a patch, applied to its worktree if it has one."""
    env: dict[str, Text] = {}
    """Environment variables."""
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment; the CLI sends the caller's whole."""
    env_given: list[str] = []
    """Which of `env` were asked for by name, where it has the caller's whole: these win over a template's."""
    local: Called | None = None
    """In a batch, the name by which the others can say `after` before it has an id."""


class GroupWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group as asked for, with its members or before them."""

    name: str | None = None
    """By which it can be called instead of its id, as long as it is not over."""
    mode: Literal["sequential", "parallel"] = "parallel"
    """Whether members run one after the other or as there is room."""
    on_failure: str = "stop"
    """What becomes of the others when one has failed: `stop`, `continue`, `skip`, or a policy that a package brings."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job comes from that nobody typed by hand."""

    template: TemplateId | None = None
    schedule: ScheduleId | None = None
    recipe: Recipe | None = None
    """What the job keeps of its template."""
    is_legacy: bool = False
    """Whether a legacy endpoint made it: its clients count on retries that they do not ask for."""

    @property
    def is_by_hand(self) -> bool:
        return self.template is None and self.schedule is None and not self.is_legacy


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets that does not bring its own."""

    cwd: str
    variables: Mapping[str, str]
    trace: Trace = {}
    """What the request belongs to that asks for it."""
