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


class AfterWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: str
    policy: AfterPolicy = AfterPolicy.SUCCESS


class LockWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    mode: LockMode = LockMode.EXCLUSIVE


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as asked for."""

    command: list[str] = []
    """Given, or its template's."""
    template: str | None = None
    """By name or id."""
    name: str | None = None
    type: str | None = None
    params: dict[str, Any] = {}
    priority: int | None = None
    """0 unless it or its template says so."""
    after: list[AfterWanted] = []
    locks: list[LockWanted] = []
    needs: list[str] = []
    produces: list[str] = []
    missing_producer: MissingProducer | None = None
    """What becomes of it when nobody is to produce what it needs; none for what the configuration says."""
    pin: str | None = None
    """`main` for the head as it is now, `main@<oid>` for a given one."""
    pools: dict[str, int] = {}
    flow: str | None = None
    phase: str | None = None
    parallelizable: bool | None = None
    """Whether it may run beside others of its phase and flow."""
    unique: str | None = None
    target: str | None = None
    group: str | None = None
    """One that is not over yet, which it joins."""
    webhooks: list[str] = []
    """URLs that are told how it ends, beyond the endpoints."""
    webhook_events: list[str] = []
    """Of which ends they are told; none named: the usual ones."""
    delay: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None
    skip_if: str | None = None
    retries: int | None = None
    retry: str | None = None
    cwd: str | None = None
    worktree: bool | None = None
    base: str | None = None
    patch: bool | None = None
    with_diff: bool = False
    env: dict[str, str] = {}
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment; the CLI sends the caller's whole."""
    env_given: list[str] = []
    """Which of `env` were asked for by name, where it has the caller's whole: these win over a template's."""
    local: str | None = None
    """In a batch, the name by which the others can say `after` before it has an id."""


class GroupWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group as asked for, with its members or before them."""

    name: str | None = None
    mode: Literal["sequential", "parallel"] = "parallel"
    on_failure: str = "stop"


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
