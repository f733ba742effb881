"""A template as received, before any check."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.core.artifact import MissingProducer
from rota.core.template import LockTemplate
from rota.wire.schema_types import DurationText


class TemplateFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a template; null is the same as a field that is left out, or resets it."""

    description: str | UnsetType | None = UNSET
    """Purpose of the template."""
    command: list[str] | UnsetType | None = UNSET
    """The program and its arguments; `{param}` is a placeholder if a param of that name is declared."""
    default_params: dict[str, Any] | UnsetType | None = UNSET
    """Default params of its jobs."""
    params_schema: dict[str, Any] | UnsetType | None = UNSET
    """JSON Schema (draft 2020-12) that the params of each job must satisfy."""
    job_name: str | UnsetType | None = UNSET
    """Name of its jobs; may have placeholders."""
    type: str | UnsetType | None = UNSET
    """Kind of work, which selects the pool `type/TYPE`."""
    priority: int | UnsetType | None = UNSET
    """Priority; higher priorities start first."""
    retry: str | UnsetType | None = UNSET
    """Name of a retry policy."""
    retries: int | UnsetType | None = UNSET
    """Maximum number of retries after a failure."""
    pools: dict[str, int] | UnsetType | None = UNSET
    """Capacity that each job uses, by pool."""
    locks: list[LockTemplate | str] | UnsetType | None = UNSET
    """Locks that each job holds while it runs; keys may have placeholders, and a plain key is exclusive."""
    needs: list[str] | UnsetType | None = UNSET
    """Artifacts that must exist before a job starts; may have placeholders."""
    produces: list[str] | UnsetType | None = UNSET
    """Artifacts that each job produces; may have placeholders."""
    missing_producer: MissingProducer | UnsetType | None = UNSET
    """Behavior while no job produces a needed artifact."""
    flow: str | UnsetType | None = UNSET
    """Flow of its jobs; may have placeholders."""
    phase: str | UnsetType | None = UNSET
    """Phase of the flow."""
    parallelizable: bool | UnsetType | None = UNSET
    """Whether its jobs may run in parallel with other jobs of their phase and flow."""
    unique: str | UnsetType | None = UNSET
    """Key that only one active chain can have; may have placeholders."""
    target: str | UnsetType | None = UNSET
    """Object of the work, which selects the pool `target/TARGET`; may have placeholders."""
    timeout: DurationText | UnsetType | None = UNSET
    """Maximum run time, as `1h30m`."""
    idle_timeout: DurationText | UnsetType | None = UNSET
    """Maximum time without output."""
    skip_if: str | UnsetType | None = UNSET
    """Shell script that runs first; a job is skipped if it exits with 0. It reads ROTA_PARAMS, without placeholders."""
    worktree: bool | UnsetType | None = UNSET
    """Whether each job runs in a git worktree of its own."""
    base: str | UnsetType | None = UNSET
    """Start of the worktree's branch."""
    patch: bool | UnsetType | None = UNSET
    """Whether the changes of each job are kept as a patch."""
    env: dict[str, str] | UnsetType | None = UNSET
    """Environment variables; only their names are ever shown."""
    webhooks: list[str] | UnsetType | None = UNSET
    """URLs to notify of the end of each job."""
    webhook_events: list[str] | UnsetType | None = UNSET
    """Events to notify these URLs of; empty for the default ones."""


class TemplateRequest(TemplateFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template to add."""

    name: str
    """Name, unique among the templates that are not archived."""


class TemplateChange(TemplateFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a template, or its complete replacement."""

    name: str | UnsetType | None = UNSET
    """New name."""
    set_default_params: dict[str, Any] | UnsetType | None = UNSET
    """Default params to add or overwrite."""
