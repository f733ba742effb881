"""`template`: add, change, archive. An invalid template is refused when it is stored, not when a job is made of it.

`TemplateRequest` and `TemplateChange` are templates as received, before any check.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import TemplateId
from rota.jobs.preflight import parse_artifacts
from rota.jobs.submission import LockRequest, Submission, check_fields, check_limits, check_own_params, check_title
from rota.kernel.artifacts import MissingProducer
from rota.kernel.queue import check_unique_key
from rota.kernel.retry import RetryPolicies
from rota.naming import is_name, quote_unusable
from rota.schema_types import DurationText, make_validation_error
from rota.templates.expand import find_template, template_id_or_none
from rota.templates.model import (
    LockTemplate,
    Template,
    TemplateBody,
    fill_placeholders,
    find_braced_names,
    find_placeholders,
    list_fixed_texts,
    lock_templates,
    shorten_quoted,
)
from rota.templates.params import MAX_PARAMS_BYTES, MAX_SCHEMA_BYTES, check_schema, find_errors
from rota.webhooks.commands import make_job_webhook
from rota.webhooks.model import WebhookPolicy

_FIELD_NAMES = ("name", *TemplateBody.__struct_fields__)
_FIELD_HINTS = {
    "handler": "Python handlers are not supported; use a command",
    "params": "use default_params and params_schema",
    "schema": "use params_schema",
    "after": "dependencies are part of the submit",
    "cwd": "a job runs in the directory of the submit, or in the `cwd` that the submit names",
}
CHANGE_ONLY_FIELDS = ("set_default_params",)
"""Fields of a change that a template does not have."""
_EXAMPLE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_EXAMPLE_VALUE = "x"


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


class TemplateOutcome(msgspec.Struct, frozen=True, kw_only=True):
    template: TemplateId
    warnings: list[str] = []
    fields: list[str] = []
    """Names of the fields that changed."""


def add_template(tx: Transaction, name: str, body: TemplateBody, *, actor: str) -> TemplateOutcome:
    warnings = check_template(name, body, tx.settings.retry, tx.settings.webhooks)
    _refuse_used_name(tx, name)
    return TemplateOutcome(template=tx.templates.add(name, body, tx.now, actor), warnings=warnings)


def change_template(
    tx: Transaction, reference: str, changes: Mapping[str, Any], *, is_replacement: bool, actor: str
) -> TemplateOutcome:
    """Change the named fields, or with `is_replacement` all fields. Existing jobs do not change (INV-005)."""
    template = find_template(tx, reference)
    refuse_unknown_fields(changes, CHANGE_ONLY_FIELDS)
    fields = {key: value for key, value in changes.items() if key not in ("name", "set_default_params")}
    previous = {} if is_replacement else msgspec.to_builtins(template.body)
    added = changes.get("set_default_params")
    if not isinstance(added, dict | None):
        message = 'set_default_params must be an object, as in {"model": "small"}'
        raise InvalidInput(message).at_path(".set_default_params")
    if added:
        fields["default_params"] = {**previous.get("default_params", {}), **fields.get("default_params", {}), **added}
        check_own_params(fields["default_params"], "set_default_params")
    body = _parse_body({key: value for key, value in {**previous, **fields}.items() if value is not None})
    name = changes.get("name") or template.name
    if not isinstance(name, str):
        raise InvalidInput("the name of a template must be text").at_path(".name")
    changed = msgspec.structs.replace(template, name=name, body=body)
    warnings = check_template(name, body, tx.settings.retry, tx.settings.webhooks)
    if template.archived_at is None:
        _refuse_used_name(tx, name, template.id)
    changed_fields = [
        field for field in TemplateBody.__struct_fields__ if getattr(body, field) != getattr(template.body, field)
    ]
    changed_fields = changed_fields if name == template.name else ["name", *changed_fields]
    if changed_fields:
        tx.templates.change(changed, tx.now, actor)
    return TemplateOutcome(template=template.id, warnings=warnings, fields=changed_fields)


def archive_template(tx: Transaction, reference: str, *, actor: str) -> Template:
    """Archive a template: no more jobs can be made of it, and existing jobs continue. An archived template does not
    change."""
    template = find_template(tx, reference)
    if template.archived_at is None:
        tx.templates.archive(template, tx.now, tx.now, actor)
    return template


def unarchive_template(tx: Transaction, reference: str, *, actor: str) -> Template:
    template = find_template(tx, reference)
    if template.archived_at is not None:
        _refuse_used_name(tx, template.name, template.id)
        tx.templates.archive(template, None, tx.now, actor)
    return template


def _refuse_used_name(tx: Transaction, name: str, except_: TemplateId | None = None) -> None:
    existing = tx.templates.find_named([name]).get(name)
    if existing is not None and existing.archived_at is None and existing.id != except_:
        raise Conflict(
            f"template {name} already exists: `rota template change {name}` changes it, `rota template archive"
            f" {name}` frees its name"
        ).at_path(".name")


def parse_template_document(document: Mapping[str, Any]) -> tuple[str, TemplateBody]:
    """Parse a template from a file or a request."""
    refuse_unknown_fields(document)
    name = parse_template_name(document)
    return name, _parse_body({key: value for key, value in document.items() if key != "name" and value is not None})


def parse_template_name(document: Mapping[str, Any]) -> str:
    name = document.get("name")
    if not isinstance(name, str):
        raise InvalidInput('a template needs a name: name = "story"').at_path(".name")
    return name


def refuse_unknown_fields(document: Mapping[str, Any], extra: tuple[str, ...] = ()) -> None:
    """Refuse fields that a template does not have, except `extra`, and suggest similar names."""
    for field in document:
        if field in _FIELD_NAMES or field in extra:
            continue
        near = get_close_matches(field, _FIELD_NAMES, n=1)
        hint = _FIELD_HINTS.get(field) or (
            f"did you mean {near[0]}?" if near else f"known fields are {', '.join(_FIELD_NAMES)}"
        )
        raise InvalidInput(f"a template has no field {field}: {hint}").at_path(f".{field}")


def _parse_body(fields: Mapping[str, Any]) -> TemplateBody:
    try:
        return msgspec.convert(fields, TemplateBody)
    except msgspec.ValidationError as error:
        raise make_validation_error("the template", error) from None


def check_template(name: str, body: TemplateBody, retry: RetryPolicies, webhooks: WebhookPolicy) -> list[str]:
    """Refuse a template that no job can be made of; return warnings."""
    _check_name(name)
    if not body.command:
        message = 'a template needs a command: command = ["program", "argument", "{param}"]'
        raise InvalidInput(message).at_path(".command")
    declared = body.declared
    if named := find_placeholders(body.skip_if, declared):
        raise InvalidInput(
            f"skip_if has a placeholder {{{named[0]}}}, but it is a shell script, in which a value could become a"
            " command; read the params from ROTA_PARAMS (JSON) instead"
        ).at_path(".skip_if")
    if body.params_schema is not None:
        with error_path(".params_schema"):
            check_schema(body.params_schema)
    check_own_params(body.default_params, "default_params")
    example = _make_example(body, declared)
    check_title("job_name", example.name)
    check_fields(example)
    check_limits(example, retry, _EXAMPLE_TIME)
    make_job_webhook(example, webhooks)
    check_unique_key(example.unique)
    parse_artifacts("needs", example.needs)
    parse_artifacts("produces", example.produces)
    if body.base is not None and not body.worktree:
        raise InvalidInput("base needs a worktree: add worktree = true, or leave base out").at_path(".base")
    if len(msgspec.json.encode(body)) > MAX_SCHEMA_BYTES + 4 * MAX_PARAMS_BYTES:
        raise InvalidInput("the template is too large; put long text in a file that its command reads")
    return [*_warn_undeclared_placeholders(body, declared), *_warn_invalid_defaults(body)]


def _check_name(name: str) -> None:
    if not is_name(name) or "/" in name or name.startswith("-") or template_id_or_none(name) is not None:
        raise InvalidInput(
            f"not a usable name of a template: {quote_unusable(name)}; use 1 to 200 characters without spaces, * and /,"
            " that do not begin with - and do not look like template-1"
        ).at_path(".name")


def _make_example(body: TemplateBody, declared: frozenset[str]) -> Submission:
    """Return a submit of the template with a value for every placeholder."""
    values = dict.fromkeys(declared, _EXAMPLE_VALUE)

    def fill(text: str | None) -> str | None:
        return None if text is None else fill_placeholders(text, values, declared)

    return Submission(
        command=[fill_placeholders(text, values, declared) for text in body.command],
        name=fill(body.job_name),
        type=body.type,
        priority=body.priority,
        pools=body.pools,
        locks=[
            LockRequest(key=fill_placeholders(lock.key, values, declared), mode=lock.mode)
            for lock in lock_templates(body)
        ],
        needs=[fill_placeholders(text, values, declared) for text in body.needs],
        produces=[fill_placeholders(text, values, declared) for text in body.produces],
        flow=fill(body.flow),
        phase=body.phase,
        target=fill(body.target),
        unique=fill(body.unique),
        timeout=body.timeout,
        idle_timeout=body.idle_timeout,
        skip_if=body.skip_if,
        retry=body.retry,
        retries=body.retries,
        env=body.env,
        webhooks=list(body.webhooks),
        webhook_events=list(body.webhook_events),
    )


def _warn_undeclared_placeholders(body: TemplateBody, declared: frozenset[str]) -> list[str]:
    """Warn of braced names that resemble a declared param: they stay literal text, probably by mistake."""
    texts = [*body.command, body.job_name or "", *(text for texts in list_fixed_texts(body).values() for text in texts)]
    undeclared = dict.fromkeys(name for text in texts for name in find_braced_names(text) if name not in declared)
    near = {name: get_close_matches(name, declared, n=1) for name in undeclared}
    return [
        f"{shorten_quoted('{' + name + '}')} is literal text, because no param {name} is declared;"
        f" did you mean {{{matches[0]}}}?"
        for name, matches in near.items()
        if matches
    ]


def _warn_invalid_defaults(body: TemplateBody) -> list[str]:
    """Warn of defaults that the schema refuses. Missing params are no reason: each submit adds its own."""
    if body.params_schema is None:
        return []
    return [f"default_{text}" for path, text in find_errors(body.params_schema, body.default_params) if path]
