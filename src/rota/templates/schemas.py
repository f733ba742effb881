"""JSON representations of templates."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.ids import format_template_id
from rota.jobs.schemas import LockView
from rota.kernel.artifacts import MissingProducer
from rota.mask import mask_query
from rota.templates.model import LockTemplate, Template, TemplateBody


class TemplateView(msgspec.Struct, frozen=True, kw_only=True):
    """A template with all fields, including unset ones. Fields marked as templated can contain `{param}`
    placeholders."""

    id: str
    """Id of the template."""
    name: str
    """Name of the template."""
    description: str | None
    """Description of the template; `null` if there is none."""
    command: list[str]
    """Program and arguments; templated."""
    default_params: dict[str, Any]
    """Default parameters of the jobs."""
    params_schema: dict[str, Any] | None
    """JSON Schema (draft 2020-12) for the parameters of each job; `null` if there is none."""
    job_name: str | None
    """Display name of the jobs; templated."""
    type: str | None
    """Type of the jobs. They take from the pool `type/TYPE`."""
    priority: int | None
    """Default priority of the jobs."""
    retry: str | None
    """Name of the retry policy of the jobs."""
    retries: int | None
    """Maximum number of retries."""
    pools: dict[str, int]
    """Capacity that the jobs take from each pool."""
    locks: list[LockView | str]
    """Locks that the jobs hold while they run. A plain key is an exclusive lock."""
    needs: list[str]
    """Artifacts that must exist before a job starts; templated."""
    produces: list[str]
    """Artifacts that the jobs declare to produce; templated."""
    missing_producer: MissingProducer | None
    """Rule for a job while no job produces an artifact that it needs."""
    flow: str | None
    """Flow of the jobs; templated."""
    phase: str | None
    """Phase of the flow; templated."""
    parallelizable: bool | None
    """Whether the jobs may run in parallel with other jobs of their phase and flow."""
    unique: str | None
    """Unique key of the jobs: only one active chain can have it; templated."""
    target: str | None
    """Target that the jobs work on; templated."""
    timeout: str | None
    """Maximum run time of a job."""
    idle_timeout: str | None
    """Maximum time without output of a job."""
    skip_if: str | None
    """Shell command that runs before each job. The job is skipped if the command exits with 0."""
    worktree: bool | None
    """Whether each job runs in its own git worktree."""
    base: str | None
    """Revision that the worktree is created from."""
    patch: bool | None
    """Whether the changes of each job are kept as a patch."""
    webhooks: list[str]
    """URLs that are notified when a job ends, with masked queries."""
    webhook_events: list[str]
    """Events that the URLs are notified of."""
    env: list[str]
    """Names of the environment variables. Values are never returned."""
    created_at: datetime
    changed_at: datetime
    """Time of the last change."""
    archived_at: datetime | None
    """Time at which the template was archived; `null` if it is in use."""


class TemplatePage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of templates, oldest first."""

    templates: list[TemplateView]
    """Templates, oldest first."""
    next: str | None


class TemplateChangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adding or changing a template."""

    template: TemplateView
    """The template after the change."""
    fields: list[str]
    """Names of the fields that changed; empty for a new template."""
    warning: str | None
    """Warning about the template; `null` if there is none."""


def render_template(template: Template) -> TemplateView:
    body = template.body
    fields = {name: getattr(body, name) for name in TemplateBody.__struct_fields__}
    return TemplateView(
        **{
            **fields,
            "id": format_template_id(template.id),
            "name": template.name,
            "locks": [_render_template_lock(lock) for lock in body.locks],
            "webhooks": [mask_query(url) for url in body.webhooks],
            "env": sorted(body.env),
            "created_at": template.created_at,
            "changed_at": template.changed_at,
            "archived_at": template.archived_at,
        }
    )


def _render_template_lock(lock: LockTemplate | str) -> LockView | str:
    return lock if isinstance(lock, str) else LockView(key=lock.key, mode=lock.mode.value)
