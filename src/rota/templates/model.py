"""A template: named defaults for jobs of one kind, with placeholders that params fill. Pure.

`{name}` is a placeholder only if a param of that name is declared, by a default or by the schema's properties; any
other brace is plain text. A placeholder is filled within its own argument, once and from left to right: a value that
looks like a placeholder stays a value, and an argument stays one argument, whatever it contains. No shell is involved.

A job keeps the result of its template (INV-005). Its `TemplateSnapshot` holds what a later edit of its params needs, so
that the job does not depend on the current template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.errors import InvalidInput
from rota.ids import TemplateId
from rota.kernel.artifacts import MissingProducer
from rota.kernel.job import TemplateSnapshot
from rota.kernel.locks import LockMode

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""Maximum length of an argument that Linux passes to a program."""

FIXED_FIELDS = ("locks", "needs", "produces", "unique", "target", "flow")
"""Fields with placeholders that are fixed at submit: an edit of a param cannot change them."""


class LockTemplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock with placeholders in its key."""

    key: str
    """Lock key."""
    mode: LockMode = LockMode.EXCLUSIVE
    """Exclusive, or shared with other holders."""


class TemplateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Defaults for the jobs of a template. A field that is null, empty or false sets no default."""

    description: str | None = None
    command: tuple[str, ...] = ()
    """The argument vector, with placeholders."""
    default_params: dict[str, Any] = {}
    params_schema: dict[str, Any] | None = None
    """JSON Schema, draft 2020-12, that the params of each job must meet."""
    job_name: str | None = None
    """Name of the jobs, with placeholders."""
    type: str | None = None
    priority: int | None = None
    retry: str | None = None
    retries: int | None = None
    pools: dict[str, int] = {}
    locks: tuple[LockTemplate | str, ...] = ()
    """Locks; a plain key is exclusive."""
    needs: tuple[str, ...] = ()
    produces: tuple[str, ...] = ()
    missing_producer: MissingProducer | None = None
    flow: str | None = None
    phase: str | None = None
    parallelizable: bool | None = None
    unique: str | None = None
    target: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None
    skip_if: str | None = None
    """Shell command without placeholders; it reads ROTA_PARAMS."""
    worktree: bool | None = None
    base: str | None = None
    patch: bool | None = None
    env: dict[str, str] = {}
    webhooks: tuple[str, ...] = ()
    webhook_events: tuple[str, ...] = ()

    @property
    def declared(self) -> frozenset[str]:
        """Params that can be placeholders."""
        properties = (self.params_schema or {}).get("properties")
        return frozenset(self.default_params) | frozenset(properties if isinstance(properties, dict) else ())


class Template(msgspec.Struct, frozen=True, kw_only=True):
    id: TemplateId
    name: str
    body: TemplateBody
    created_at: datetime
    changed_at: datetime
    archived_at: datetime | None = None


def fill_placeholders(text: str, params: Mapping[str, Any], declared: frozenset[str]) -> str:
    """Return the text with every placeholder of a declared param filled."""

    def fill(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        return _format_param(name, params) if name in declared else placeholder[0]

    return _PLACEHOLDER.sub(fill, text)


def fill_all_placeholders(texts: Sequence[str], params: Mapping[str, Any], declared: frozenset[str]) -> list[str]:
    filled = [fill_placeholders(text, params, declared) for text in texts]
    for text, source in zip(filled, texts, strict=True):
        if len(text) > MAX_ARGUMENT_BYTES // 4 and len(text.encode()) > MAX_ARGUMENT_BYTES:
            raise InvalidInput(
                f"the filled argument {shorten_quoted(source)} is longer than {MAX_ARGUMENT_BYTES} bytes, the limit of"
                " Linux; put the text in a file and pass its path"
            )
    return filled


def find_placeholders(text: str | None, declared: frozenset[str]) -> list[str]:
    """Return the declared params with a placeholder in the text."""
    return [] if text is None else [name for name in _PLACEHOLDER.findall(text) if name in declared]


def find_braced_names(text: str) -> list[str]:
    """Return all names in braces, including text that only looks like a placeholder."""
    return [name for name in _PLACEHOLDER.findall(text) if name]


def _format_param(name: str, params: Mapping[str, Any]) -> str:
    if name not in params:
        raise InvalidInput(
            f"param {name} has no value, but the template has a placeholder for it; set it in `params` or in the"
            " template's default_params"
        )
    value = params[name]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\x00" in text:
        raise InvalidInput(f"param {name} contains a NUL character, which cannot be passed to a program; remove it")
    return text


def merge_params(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge params by key. A later layer replaces an earlier value; nested values are not merged."""
    params: dict[str, Any] = {}
    for layer in layers:
        params.update(layer)
    return params


def lock_templates(body: TemplateBody) -> list[LockTemplate]:
    return [LockTemplate(key=lock) if isinstance(lock, str) else lock for lock in body.locks]


def list_fixed_texts(body: TemplateBody) -> dict[str, list[str]]:
    """Return the texts with placeholders of each field that is fixed at submit."""
    return {
        "locks": [lock.key for lock in lock_templates(body)],
        "needs": list(body.needs),
        "produces": list(body.produces),
        "unique": [] if body.unique is None else [body.unique],
        "target": [] if body.target is None else [body.target],
        "flow": [] if body.flow is None else [body.flow],
    }


def make_snapshot(
    body: TemplateBody, *, has_own_name: bool, overridden: frozenset[str] = frozenset()
) -> TemplateSnapshot:
    """Make the snapshot for a job. `overridden` are the fields that the submit set itself."""
    declared = body.declared
    fixed = {
        name: field
        for field, texts in list_fixed_texts(body).items()
        if field not in overridden
        for text in texts
        for name in find_placeholders(text, declared)
    }
    return TemplateSnapshot(
        declared=tuple(sorted(declared)),
        schema=body.params_schema,
        command=body.command,
        name=None if has_own_name else body.job_name,
        fixed_params=fixed,
    )


def rerender_fields(
    snapshot: TemplateSnapshot,
    old_params: Mapping[str, Any],
    params: Mapping[str, Any],
    check: Callable[[Any, Mapping[str, Any]], None],
) -> dict[str, Any]:
    """Return the other fields that change with a job's params. `check` validates the params against the schema that was
    in force at submit."""
    check(snapshot.schema, params)
    for name, field in sorted(snapshot.fixed_params.items()):
        if old_params.get(name) != params.get(name) or (name in old_params) != (name in params):
            raise InvalidInput(
                f"param {name} has a placeholder in {field}, which is fixed at submit; cancel the job and submit it"
                " again"
            )
    declared = frozenset(snapshot.declared)
    changes: dict[str, Any] = {}
    if snapshot.command is not None:
        changes["command"] = tuple(fill_all_placeholders(snapshot.command, params, declared))
    if snapshot.name is not None:
        changes["name"] = fill_placeholders(snapshot.name, params, declared)
    return changes


def shorten_quoted(text: str, max_length: int = 60) -> str:
    shown = repr(text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"
