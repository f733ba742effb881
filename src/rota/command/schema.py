"""JSON Schema (draft 2020-12) of a template's params.

Whoever writes a template is trusted, whoever sends params perhaps not. So patterns are matched in linear time, no
reference leaves the schema, and both have limits: a check is a matter of milliseconds, whatever it is given. The
library is loaded when the first schema is met.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from rota.core.template import shortened
from rota.errors import InvalidInput

MOST_SCHEMA = 256 * 1024
MOST_PARAMS = 128 * 1024 - 64
"""Bytes of JSON: they reach the child in one variable of its environment, and Linux passes no longer one."""
DEEPEST = 64
"""Levels of params or of a schema."""
MOST_STEPS = 100_000
"""Subschemas that one look may go through when references are followed."""
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LONGEST = 200
_MOST_NAMED = 5


class Trouble(Protocol):
    @property
    def message(self) -> str: ...
    @property
    def instance_path(self) -> list[str | int]: ...


class Validator(Protocol):
    def iter_errors(self, instance: Any) -> Iterator[Trouble]: ...


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuses what cannot be used as a schema."""
    _validator(_text("params_schema", schema, MOST_SCHEMA))


def check_params(schema: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    """Refuses params that the schema does not allow, by the path of each."""
    _text("params", params, MOST_PARAMS)
    if schema is None:
        return
    if found := troubles(schema, params):
        rest = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise InvalidInput("; ".join(text for _, text in found[:_MOST_NAMED]) + rest)


def troubles(schema: Mapping[str, Any], params: Mapping[str, Any]) -> list[tuple[list[str | int], str]]:
    """Where the params are not as the schema wants them, and why not."""
    validator = _validator(_text("params_schema", schema, MOST_SCHEMA))
    found = []
    for trouble in validator.iter_errors(dict(params)):
        path, text = list(trouble.instance_path), trouble.message
        text = text if len(text) <= _LONGEST else f"{text[:80]} … {text[-100:]}"
        found.append((path, f"{_shown(path)}: {text}"))
        if len(found) > 100:
            break
    return found


def _shown(path: list[str | int]) -> str:
    return "params" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _text(what: str, value: Mapping[str, Any], most: int) -> bytes:
    if _depth(value) > DEEPEST:
        raise InvalidInput(f"{what} is nested deeper than {DEEPEST} levels; make it flatter")
    text = msgspec.json.encode(value, order="sorted")
    if len(text) > most:
        raise InvalidInput(
            f"{what} has {len(text)} bytes as JSON, more than the {most} that are taken; put what is long in a file"
            " and name the file instead"
        )
    return text


def _depth(value: object) -> int:
    """Counted level by level, so that no depth is too deep to count; what is far too deep is not counted out."""
    level: list[object] = [value]
    for depth in range(DEEPEST + 2):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return depth
    return DEEPEST + 2


@lru_cache(maxsize=64)
def _validator(text: bytes) -> Validator:
    import jsonschema_rs as library

    schema = msgspec.json.decode(text)
    if schema.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        raise InvalidInput(f"params_schema: $schema is {schema['$schema']!r}; only {_DRAFT} is known, so leave it out")
    if schema.get("type", "object") != "object":
        raise InvalidInput('params_schema: params are an object, so its type is "object"')
    _refuse_endless(schema)
    try:
        return library.Draft202012Validator(  # the linear engine knows no look-around and no back-references
            schema, pattern_options=library.RegexOptions(), retriever=_refuse_remote
        )
    except (library.ValidationError, library.ReferencingError, ValueError) as error:
        where = "".join(f".{part}" for part in getattr(error, "instance_path", ()))
        message = getattr(error, "message", None) or str(error)
        hint = ""
        if 'not a "regex"' in message:
            hint = "; patterns are matched in linear time, without look-around and back-references"
        raise InvalidInput(f"params_schema{where}: {message.splitlines()[0][:_LONGEST]}{hint}") from None


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"{shortened(uri)} is not within the schema, and nothing is fetched: put it into $defs")


def _refuse_endless(schema: Mapping[str, Any]) -> None:
    """References to one schema from several places multiply when they are followed from one to the next."""
    steps: dict[int, int] = {}

    def count(node: Any, following: frozenset[int]) -> int:
        if not isinstance(node, dict | list):
            return 0
        known = steps.get(id(node))
        if known is not None or id(node) in following:
            return known or 1
        within = following | {id(node)}
        children = node.values() if isinstance(node, dict) else node
        total = 1 + sum(count(child, within) for child in children)
        for keyword in ("$ref", "$dynamicRef"):
            reference = node.get(keyword) if isinstance(node, dict) else None
            if isinstance(reference, str):
                total += count(_target(schema, reference), within)
        steps[id(node)] = min(total, MOST_STEPS + 1)
        return steps[id(node)]

    try:
        total = count(schema, frozenset())
    except RecursionError:
        total = MOST_STEPS + 1
    if total > MOST_STEPS:
        raise InvalidInput("params_schema: its references lead too far when they are followed; make it simpler")


def _target(schema: Mapping[str, Any], reference: str) -> Any:
    """What a reference within the schema points at; an anchor is taken for all of it."""
    if not reference.startswith("#/"):
        return schema
    found: Any = schema
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, dict) else None
    return found
