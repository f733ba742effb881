"""A template as it comes in, before anything is known to be good."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.artifact import MissingProducer
from rota.core.template import LockPlace
from rota.wire.text import Span


class TemplateFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said of a template; null is the same as nothing said, or takes it back."""

    description: str | UnsetType | None = UNSET
    """What it is for."""
    command: list[str] | UnsetType | None = UNSET
    """The argument vector; `{param}` in it is a place, where a param of that name is declared."""
    default_params: dict[str, Any] | UnsetType | None = UNSET
    """What its jobs are given that do not say otherwise."""
    params_schema: dict[str, Any] | UnsetType | None = UNSET
    """JSON Schema, draft 2020-12, that the params of each job must meet."""
    job_name: str | UnsetType | None = UNSET
    """What its jobs are called, with places."""
    type: str | UnsetType | None = UNSET
    """Their kind; they draw from the pool `type/TYPE`."""
    priority: int | UnsetType | None = UNSET
    """Higher goes first."""
    retry: str | UnsetType | None = UNSET
    """The name of their retry policy."""
    retries: int | UnsetType | None = UNSET
    """How often one is tried again."""
    pools: dict[str, int] | UnsetType | None = UNSET
    """What they draw from, and how much of it."""
    locks: list[LockPlace | str] | UnsetType | None = UNSET
    """What they hold while they run, with places; a key by itself is held alone."""
    needs: list[str] | UnsetType | None = UNSET
    """Artifacts that they wait for, with places."""
    produces: list[str] | UnsetType | None = UNSET
    """Artifacts that they make, with places."""
    missing_producer: MissingProducer | UnsetType | None = UNSET
    """What becomes of one when nobody is to produce what it needs."""
    flow: str | UnsetType | None = UNSET
    """Their flow, with places."""
    phase: str | UnsetType | None = UNSET
    """Their phase of the flow."""
    parallelizable: bool | UnsetType | None = UNSET
    """Whether they may run beside others of their phase and flow."""
    unique: str | UnsetType | None = UNSET
    """One with this key at a time, with places."""
    target: str | UnsetType | None = UNSET
    """Where their work belongs, with places."""
    timeout: Span | UnsetType | None = UNSET
    """How long one may run, as `1h30m`."""
    idle_timeout: Span | UnsetType | None = UNSET
    """How long one may write nothing."""
    skip_if: str | UnsetType | None = UNSET
    """A shell's text that has no places: it reads ROTA_PARAMS. A job is skipped if it exits 0."""
    worktree: bool | UnsetType | None = UNSET
    """Whether each runs in a git worktree of its own."""
    base: str | UnsetType | None = UNSET
    """What the worktree is made from."""
    patch: bool | UnsetType | None = UNSET
    """Whether what each changes is kept as a patch."""
    env: dict[str, str] | UnsetType | None = UNSET
    """Variables of their environment; only their names are ever shown."""
    webhooks: list[str] | UnsetType | None = UNSET
    """URLs that are told how they end."""
    webhook_events: list[str] | UnsetType | None = UNSET
    """Of which ends they are told; none named: the usual ones."""


class TemplateWanted(TemplateFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template as asked for."""

    name: str
    """What it is called; no other in use is."""


class TemplateChange(TemplateFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall be another in a template, or all that it shall be."""

    name: str | UnsetType | None = UNSET
    """What it shall be called."""
    set_default_params: dict[str, Any] | UnsetType | None = UNSET
    """Default params to add to those there are."""
