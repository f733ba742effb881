"""A template: named defaults for jobs of one kind, and how params fill its places. Pure.

`{name}` is a place only where a param of that name is declared, by a default or by the schema's properties; every other
brace is text. A place is filled within the argument that it stands in, once and from left to right: a value that looks
like a place stays a value, and an argument stays one argument, whatever is in it. No shell is involved.

A job keeps what was made of its template (INV-005). What an edit of its params needs later goes with it as its
`Recipe`, so that nothing about the job depends on the template as it is then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.core.artifact import MissingProducer
from rota.core.lock import LockMode
from rota.errors import InvalidInput
from rota.ids import TemplateId

_PLACE = re.compile(r"\{([^{}]*)\}")

MOST_ARGUMENT = 128 * 1024 - 1
"""Bytes: Linux passes no longer one to a program."""

FIXED = ("locks", "needs", "produces", "unique", "target", "flow")
"""Fields with places that are settled at submit: no edit of a param can reach them."""


class LockPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock, with places in its key."""

    key: str
    """What is held."""
    mode: LockMode = LockMode.EXCLUSIVE
    """Alone, or with others that share it."""


class TemplateBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What its jobs are asked for; a field that is none, empty or false asks for nothing."""

    description: str | None = None
    command: tuple[str, ...] = ()
    """The argument vector, with places."""
    default_params: dict[str, Any] = {}
    params_schema: dict[str, Any] | None = None
    """JSON Schema, draft 2020-12, that the params of each job must meet."""
    job_name: str | None = None
    """What its jobs are called, with places."""
    type: str | None = None
    priority: int | None = None
    retry: str | None = None
    retries: int | None = None
    pools: dict[str, int] = {}
    locks: tuple[LockPlace | str, ...] = ()
    """A key by itself is held alone."""
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
    """A shell's text, so it has no places: it reads ROTA_PARAMS."""
    worktree: bool | None = None
    base: str | None = None
    patch: bool | None = None
    env: dict[str, str] = {}
    webhooks: tuple[str, ...] = ()
    webhook_events: tuple[str, ...] = ()

    @property
    def declared(self) -> frozenset[str]:
        """The params that can be places."""
        properties = (self.params_schema or {}).get("properties")
        return frozenset(self.default_params) | frozenset(properties if isinstance(properties, dict) else ())


class Template(msgspec.Struct, frozen=True, kw_only=True):
    id: TemplateId
    name: str
    body: TemplateBody
    created_at: datetime
    changed_at: datetime
    archived_at: datetime | None = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job of a template keeps of it, for an edit of its params."""

    declared: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None
    command: tuple[str, ...] | None = None
    """With its places; none once somebody has written the command by hand."""
    name: str | None = None
    """The same of its name."""
    settled: dict[str, str] = {}
    """Params with a place in a field that no edit changes, and that field."""


def fill(text: str, params: Mapping[str, Any], declared: frozenset[str]) -> str:
    """The text with every place of a declared param filled."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        return _shown(name, params) if name in declared else found[0]

    return _PLACE.sub(value, text)


def fill_all(texts: Sequence[str], params: Mapping[str, Any], declared: frozenset[str]) -> list[str]:
    filled = [fill(text, params, declared) for text in texts]
    for text, given in zip(filled, texts, strict=True):
        if len(text) > MOST_ARGUMENT // 4 and len(text.encode()) > MOST_ARGUMENT:
            raise InvalidInput(
                f"the argument {shortened(given)} becomes longer than {MOST_ARGUMENT} bytes, which no program can be"
                " given; put the text in a file and give its path"
            )
    return filled


def places(text: str | None, declared: frozenset[str]) -> list[str]:
    """The declared params that have a place in the text."""
    return [] if text is None else [name for name in _PLACE.findall(text) if name in declared]


def braced(text: str) -> list[str]:
    """Whatever stands in braces and could be meant for a place."""
    return [name for name in _PLACE.findall(text) if name]


def _shown(name: str, params: Mapping[str, Any]) -> str:
    if name not in params:
        raise InvalidInput(
            f"param {name} has no value, and the template has a place for it: give it in `params`, or a default in the"
            " template's default_params"
        )
    value = params[name]
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if "\x00" in text:
        raise InvalidInput(f"param {name} has a NUL character, which no program can be given; remove it")
    return text


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """By key, the later over the earlier; what a key holds is never merged further."""
    params: dict[str, Any] = {}
    for layer in layers:
        params.update(layer)
    return params


def locks_of(body: TemplateBody) -> list[LockPlace]:
    return [LockPlace(key=lock) if isinstance(lock, str) else lock for lock in body.locks]


def fixed_texts(body: TemplateBody) -> dict[str, list[str]]:
    """The texts of each field with places that is settled at submit."""
    return {
        "locks": [lock.key for lock in locks_of(body)],
        "needs": list(body.needs),
        "produces": list(body.produces),
        "unique": [] if body.unique is None else [body.unique],
        "target": [] if body.target is None else [body.target],
        "flow": [] if body.flow is None else [body.flow],
    }


def recipe_of(body: TemplateBody, *, has_own_name: bool, own: frozenset[str] = frozenset()) -> Recipe:
    """`own` are the fields that the submit said itself, instead of the template."""
    declared = body.declared
    settled = {
        name: field
        for field, texts in fixed_texts(body).items()
        if field not in own
        for text in texts
        for name in places(text, declared)
    }
    return Recipe(
        declared=tuple(sorted(declared)),
        schema=body.params_schema,
        command=body.command,
        name=None if has_own_name else body.job_name,
        settled=settled,
    )


def follow(
    recipe: Recipe, was: Mapping[str, Any], params: Mapping[str, Any], check: Callable[[Any, Mapping[str, Any]], None]
) -> dict[str, Any]:
    """What else changes with a job's params, after `check` has taken them by the schema that was in force."""
    check(recipe.schema, params)
    for name, field in sorted(recipe.settled.items()):
        if was.get(name) != params.get(name) or (name in was) != (name in params):
            raise InvalidInput(
                f"param {name} has a place in its {field}, which is fixed at submit: cancel the job and submit it anew"
            )
    declared = frozenset(recipe.declared)
    changes: dict[str, Any] = {}
    if recipe.command is not None:
        changes["command"] = tuple(fill_all(recipe.command, params, declared))
    if recipe.name is not None:
        changes["name"] = fill(recipe.name, params, declared)
    return changes


def shortened(text: str, most: int = 60) -> str:
    shown = repr(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
