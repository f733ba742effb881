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
    priority: int | None
    retry: str | None
    """The name of their retry policy."""
    retries: int | None
    pools: dict[str, int]
    """What they draw from, and how much of it."""
    locks: list[LockForm | str]
    """A key by itself is held alone."""
    needs: list[str]
    produces: list[str]
    missing_producer: MissingProducer | None
    """What becomes of a job when nobody is to produce what it needs."""
    flow: str | None
    phase: str | None
    parallelizable: bool | None
    unique: str | None
    target: str | None
    timeout: str | None
    idle_timeout: str | None
    skip_if: str | None
    worktree: bool | None
    base: str | None
    patch: bool | None
    webhooks: list[str]
    webhook_events: list[str]
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
    """By name."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class TemplateStoredForm(msgspec.Struct, frozen=True, kw_only=True):
    """A template that was stored."""

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
