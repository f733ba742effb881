"""JSON Schema (draft 2020-12) of a template's params.

Whoever writes a template is trusted, whoever sends params perhaps not. So patterns are matched in linear time, no
reference leaves the schema, and both have limits: a check takes some tenths of a second at most, whatever it is given,
and that of a submit is made away from the engine's thread. The library is loaded with the first schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from rota.core.params_schema import ways
from rota.core.template import shortened
from rota.errors import InvalidInput

MOST_SCHEMA = 256 * 1024
MOST_PARAMS = 128 * 1024 - 64
"""Bytes of JSON: they reach the child in one variable of its environment, and Linux passes no longer one."""
DEEPEST = 64
"""Levels of params or of a schema."""
MOST_WORK = 2_000_000
"""Questions that the schema may ask of all parts of the params together: some tenths of a second."""
MOST_TOLD = 4_000_000
"""Bytes of the schema that all parts of the params together could be told of, for the library gathers every complaint,
each with what it was checked by; beyond that only the first is asked for."""
MOST_WAYS = 300
"""By how many ways a part may be asked where it is to be said what is wrong: each of them would be told of."""
_USUAL_DEPTH = 4
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LONGEST = 200
_MOST_NAMED = 5

_last: list[tuple[Mapping[str, Any], Validator, bytes]] = []


class Trouble(Protocol):
    @property
    def message(self) -> str: ...
    @property
    def instance_path(self) -> list[str | int]: ...


class Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Iterator[Trouble]: ...
    def validate(self, instance: Any) -> None: ...


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuses what cannot be used as a schema."""
    _prepared(schema)


def _prepared(schema: Mapping[str, Any]) -> tuple[Validator, bytes]:
    """The jobs of one submit mostly share one template, and with it the very same schema."""
    last = _last[0] if _last else None
    if last is not None and last[0] is schema:
        return last[1:]
    text, _ = _text("params_schema", schema, MOST_SCHEMA)
    validator = _validator(text)
    _last[:] = [(schema, validator, text)]
    return validator, text


@lru_cache(maxsize=1024)
def ways_of(text: bytes, depth: int) -> int:
    return ways(msgspec.json.decode(text), depth)


def check_params(schema: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    """Refuses params that the schema does not allow, by the path of each."""
    _, depth = _text("params", params, MOST_PARAMS)
    if schema is None:
        return
    validator, text = _prepared(schema)
    if ways_of(text, depth) * _parts(params) > MOST_WORK:
        raise InvalidInput(
            "params: nested too deep for the schema, which refers to itself by several ways and would take too long"
        )
    if validator.is_valid(dict(params)):
        return
    if ways_of(text, depth) > MOST_WAYS:
        raise InvalidInput("params: not as the schema wants them, and nested too deep to say where; make them flatter")
    if found := troubles(schema, params):
        rest = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise InvalidInput("; ".join(text for _, text in found[:_MOST_NAMED]) + rest)


def troubles(schema: Mapping[str, Any], params: Mapping[str, Any]) -> list[tuple[list[str | int], str]]:
    """Where the params are not as the schema wants them, and why not."""
    validator, text = _prepared(schema)
    if _parts(params) * len(text) <= MOST_TOLD:
        found = list(validator.iter_errors(dict(params)))
    else:
        found = _first_trouble(validator, params)
    return [(list(each.instance_path), _told(each)) for each in found]


def _first_trouble(validator: Validator, params: Mapping[str, Any]) -> list[Trouble]:
    import jsonschema_rs as library

    try:
        validator.validate(dict(params))
    except library.ValidationError as trouble:
        return [trouble]
    return []


def _told(trouble: Trouble) -> str:
    text = trouble.message
    text = text if len(text) <= _LONGEST else f"{text[:80]} … {text[-100:]}"
    return f"{_shown(list(trouble.instance_path))}: {text}"


def _shown(path: list[str | int]) -> str:
    return "params" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _text(what: str, value: Mapping[str, Any], most: int) -> tuple[bytes, int]:
    depth = _depth(value)
    if depth > DEEPEST:
        raise InvalidInput(f"{what} is nested deeper than {DEEPEST} levels; make it flatter")
    text = msgspec.json.encode(value, order="sorted")
    if len(text) > most:
        raise InvalidInput(
            f"{what} has {len(text)} bytes as JSON, more than the {most} that are taken; put what is long in a file"
            " and name the file instead"
        )
    return text, depth


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


def _parts(value: object) -> int:
    """How many there are; it is not deep."""
    if not isinstance(value, dict | list):
        return 1
    return 1 + sum(_parts(child) for child in (value.values() if isinstance(value, dict) else value))


@lru_cache(maxsize=64)
def _validator(text: bytes) -> Validator:
    import jsonschema_rs as library

    schema = msgspec.json.decode(text)
    if schema.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        raise InvalidInput(f"params_schema: $schema is {schema['$schema']!r}; only {_DRAFT} is known, so leave it out")
    if schema.get("type", "object") != "object":
        raise InvalidInput('params_schema: params are an object, so its type is "object"')
    if ways(schema, _USUAL_DEPTH) > MOST_WORK:
        raise InvalidInput("params_schema: its references lead too far when they are followed; make it simpler")
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
