"""Templates as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.core.artifact import MissingProducer
from rota.core.template import LockPlace, Template, TemplateBody
from rota.ids import show_template
from rota.wire.job import LockForm


class TemplateForm(msgspec.Struct, frozen=True, kw_only=True):
    """A template with all of its fields, also those that ask for nothing."""

    id: str
    name: str
    """What it is called."""
    description: str | None
    """What it is for."""
    command: list[str]
    """The argument vector, with `{param}` places."""
    default_params: dict[str, Any]
    """What its jobs are given that do not say otherwise."""
    params_schema: dict[str, Any] | None
    """JSON Schema, draft 2020-12, that the params of each job must meet."""
    job_name: str | None
    """What its jobs are called, with places."""
    type: str | None
    """Their kind; they draw from the pool `type/TYPE`."""
    priority: int | None
    """Theirs, unless they say otherwise."""
    retry: str | None
    """The name of their retry policy."""
    retries: int | None
    """How often one is tried again."""
    pools: dict[str, int]
    """What they draw from, and how much of it."""
    locks: list[LockForm | str]
    """A key by itself is held alone."""
    needs: list[str]
    """Artifacts that they wait for, with places."""
    produces: list[str]
    """Artifacts that they make, with places."""
    missing_producer: MissingProducer | None
    """What becomes of a job when nobody is to produce what it needs."""
    flow: str | None
    """Their flow, with places."""
    phase: str | None
    """Their phase of the flow."""
    parallelizable: bool | None
    """Whether they may run beside others of their phase and flow."""
    unique: str | None
    """One with this key at a time, with places."""
    target: str | None
    """Where their work belongs, with places."""
    timeout: str | None
    """How long one may run."""
    idle_timeout: str | None
    """How long one may write nothing."""
    skip_if: str | None
    """A job is skipped if this shell command exits 0."""
    worktree: bool | None
    """Whether each runs in a git worktree of its own."""
    base: str | None
    """What the worktree is made from."""
    patch: bool | None
    """Whether what each changes is kept as a patch."""
    webhooks: list[str]
    """URLs that are told how they end."""
    webhook_events: list[str]
    """Of which ends they are told."""
    env: list[str]
    """The names of the variables; values are never shown."""
    created_at: datetime
    changed_at: datetime
    """When it was last changed."""
    archived_at: datetime | None
    """Since when no more jobs are made of it; null while it is in use."""


class TemplatesForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of templates."""

    templates: list[TemplateForm]
    """The oldest first."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class TemplateStoredForm(msgspec.Struct, frozen=True, kw_only=True):
    """A template that was added or changed."""

    template: TemplateForm
    """As it is now."""
    fields: list[str]
    """What is another than before; of a new one nothing."""
    warning: str | None
    """What is strange in it, though it can be used."""


def template_form(template: Template) -> TemplateForm:
    body = template.body
    fields = {name: getattr(body, name) for name in TemplateBody.__struct_fields__}
    return TemplateForm(
        **{
            **fields,
            "id": show_template(template.id),
            "name": template.name,
            "locks": [_lock(lock) for lock in body.locks],
            "env": sorted(body.env),
            "created_at": template.created_at,
            "changed_at": template.changed_at,
            "archived_at": template.archived_at,
        }
    )


def _lock(lock: LockPlace | str) -> LockForm | str:
    return lock if isinstance(lock, str) else LockForm(key=lock.key, mode=lock.mode.value)
