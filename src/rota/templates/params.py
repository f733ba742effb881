"""JSON Schema (draft 2020-12) of a template's params.

The author of a template is trusted; the sender of params may not be. So patterns are matched in linear time, references
stay inside the schema, and both have size limits: a check takes at most some tenths of a second for any input, and a
submit is checked outside of the engine's thread. The library is loaded with the first schema.

A recursive schema may be applied to one part of a value along several paths: two alternatives that both refer to their
parent double the paths with each level. Such a schema is usually harmless, but the client that sends the value chooses
its depth. Therefore the paths to the deepest part are counted before validation, as an upper bound on its work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from rota.errors import InvalidInput
from rota.templates.model import shorten_quoted

MAX_SCHEMA_BYTES = 256 * 1024
MAX_PARAMS_BYTES = 128 * 1024 - 64
"""Maximum size as JSON: the child receives params in one environment variable, and Linux limits its length."""
MAX_DEPTH = 64
"""Maximum nesting levels of params or of a schema."""
MAX_CHECKS = 2_000_000
"""Maximum schema evaluations over all parts of the params: some tenths of a second."""
MAX_ERROR_BYTES = 4_000_000
"""Maximum schema bytes for a complete list of errors, counted once for each part of the params: the library collects
each error with the schema that it violates. Beyond the maximum, only the first error is requested."""
MAX_PATHS_PER_PART = 300
"""Maximum evaluation paths to one part for a list of errors: each path would add an error."""
_USUAL_DEPTH = 4
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_MAX_MESSAGE_LENGTH = 200
_MAX_LISTED_ERRORS = 5
MAX_PATHS = 1_000_000_000
"""Limit at which counting stops."""
_SCHEMA_LIST_KEYWORDS = ("allOf", "anyOf", "oneOf")
_SUBSCHEMA_KEYWORDS = ("not", "if", "then", "else")
_REFERENCE_KEYWORDS = ("$ref", "$dynamicRef", "$recursiveRef")
_CHILD_KEYWORDS = (
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "contains",
    "unevaluatedItems",
)
_last_prepared: list[tuple[Mapping[str, Any], SchemaValidator, bytes]] = []


class SchemaError(Protocol):
    @property
    def message(self) -> str: ...
    @property
    def instance_path(self) -> list[str | int]: ...


class SchemaValidator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...
    def iter_errors(self, instance: Any) -> Iterator[SchemaError]: ...
    def validate(self, instance: Any) -> None: ...


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that cannot be used."""
    _prepare(schema)


def _prepare(schema: Mapping[str, Any]) -> tuple[SchemaValidator, bytes]:
    """Return the validator and the text of a schema. The last result is cached, since the jobs of one submit mostly
    share one template and its schema object."""
    last = _last_prepared[0] if _last_prepared else None
    if last is not None and last[0] is schema:
        return last[1:]
    text, _ = _encode("params_schema", schema, MAX_SCHEMA_BYTES)
    validator = _compile(text)
    _last_prepared[:] = [(schema, validator, text)]
    return validator, text


def check_params(schema: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    """Refuse params that the schema does not allow, with the path of each error."""
    _, depth = _encode("params", params, MAX_PARAMS_BYTES)
    if schema is None:
        return
    validator, text = _prepare(schema)
    if _count_paths(text, depth) * _count_parts(params) > MAX_CHECKS:
        raise InvalidInput(
            "params: nested too deep for the recursive schema, so that a check would take too long; make them flatter"
        )
    if validator.is_valid(dict(params)):
        return
    if _count_paths(text, depth) > MAX_PATHS_PER_PART:
        raise InvalidInput("params: invalid for the schema, and nested too deep to locate the error; make them flatter")
    if errors := find_errors(schema, params):
        rest = f"; and {len(errors) - _MAX_LISTED_ERRORS} more" if len(errors) > _MAX_LISTED_ERRORS else ""
        raise InvalidInput("; ".join(message for _, message in errors[:_MAX_LISTED_ERRORS]) + rest)


def find_errors(schema: Mapping[str, Any], params: Mapping[str, Any]) -> list[tuple[list[str | int], str]]:
    """Return the path and message of each violation of the schema."""
    validator, text = _prepare(schema)
    if _count_parts(params) * len(text) <= MAX_ERROR_BYTES:
        errors = list(validator.iter_errors(dict(params)))
    else:
        errors = _find_first_error(validator, params)
    return [(list(error.instance_path), _format_error(error)) for error in errors]


def _find_first_error(validator: SchemaValidator, params: Mapping[str, Any]) -> list[SchemaError]:
    import jsonschema_rs as library

    try:
        validator.validate(dict(params))
    except library.ValidationError as error:
        return [error]
    return []


def _format_error(error: SchemaError) -> str:
    text = error.message
    text = text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:80]} … {text[-100:]}"
    return f"{_format_path(list(error.instance_path))}: {text}"


def _format_path(path: list[str | int]) -> str:
    return "params" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _encode(name: str, value: Mapping[str, Any], max_bytes: int) -> tuple[bytes, int]:
    depth = _measure_depth(value)
    if depth > MAX_DEPTH:
        raise InvalidInput(f"{name} is nested deeper than {MAX_DEPTH} levels; make it flatter")
    text = msgspec.json.encode(value, order="sorted")
    if len(text) > max_bytes:
        raise InvalidInput(
            f"{name} has {len(text)} bytes as JSON; the maximum is {max_bytes}; put long values in a file and pass its"
            " path"
        )
    return text, depth


def _measure_depth(value: object) -> int:
    """Return the nesting depth, capped above the maximum. Counting by level avoids recursion, so any depth is safe."""
    level: list[object] = [value]
    for depth in range(MAX_DEPTH + 2):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return depth
    return MAX_DEPTH + 2


def _count_parts(value: object) -> int:
    """Count the parts of a value whose depth was checked before."""
    if not isinstance(value, dict | list):
        return 1
    return 1 + sum(_count_parts(child) for child in (value.values() if isinstance(value, dict) else value))


@lru_cache(maxsize=64)
def _compile(text: bytes) -> SchemaValidator:
    import jsonschema_rs as library

    schema = msgspec.json.decode(text)
    if schema.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        raise InvalidInput(f"params_schema: $schema is {schema['$schema']!r}; only {_DRAFT} is supported; leave it out")
    if schema.get("type", "object") != "object":
        raise InvalidInput('params_schema: type must be "object", because params are an object')
    if count_evaluation_paths(schema, _USUAL_DEPTH) > MAX_CHECKS:
        raise InvalidInput("params_schema: its references expand to too many checks; make it simpler")
    try:
        return library.Draft202012Validator(  # the linear regex engine has no look-around and no back-references
            schema, pattern_options=library.RegexOptions(), retriever=_refuse_remote
        )
    except (library.ValidationError, library.ReferencingError, ValueError) as error:
        path = "".join(f".{part}" for part in getattr(error, "instance_path", ()))
        message = getattr(error, "message", None) or str(error)
        hint = ""
        if 'not a "regex"' in message:
            hint = "; patterns are matched in linear time, without look-around and back-references"
        raise InvalidInput(f"params_schema{path}: {message.splitlines()[0][:_MAX_MESSAGE_LENGTH]}{hint}") from None


def _refuse_remote(uri: str) -> Any:
    raise ValueError(f"{shorten_quoted(uri)} is outside of the schema, and nothing is fetched; put it into $defs")


@lru_cache(maxsize=1024)
def _count_paths(text: bytes, depth: int) -> int:
    return count_evaluation_paths(msgspec.json.decode(text), depth)


def count_evaluation_paths(schema: Mapping[str, Any], depth: int) -> int:
    """Return the maximum number of paths on which a schema reaches one part of a value of this depth."""
    count = _PathCounter(schema)
    try:
        return max(count.count_at(schema, levels, frozenset()) for levels in range(depth + 1))
    except RecursionError:
        return MAX_PATHS


class _PathCounter:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._cache: dict[tuple[int, int], int] = {}

    def count_at(self, node: Any, levels: int, visited: frozenset[int]) -> int:
        """Count the paths from this schema to a part that is `levels` deeper. `visited` are the schemas on the current
        path at the same level; returning to one of them adds no path."""
        if not isinstance(node, dict):
            return int(levels == 0)
        cached = self._cache.get((id(node), levels))
        if cached is not None or id(node) in visited:
            return cached or 0
        visited |= {id(node)}
        total = 1 if levels == 0 else self._count_children(node, levels - 1)
        for child in self._sibling_schemas(node):
            total += self.count_at(child, levels, visited)
        self._cache[id(node), levels] = min(total, MAX_PATHS)
        return min(total, MAX_PATHS)

    def _count_children(self, node: Mapping[str, Any], levels: int) -> int:
        """Count the paths through child schemas. A property or an index selects only one schema, so the most expensive
        one counts."""
        total = sum(self.count_at(node[keyword], levels, frozenset()) for keyword in _CHILD_KEYWORDS if keyword in node)
        total += sum(self.count_at(child, levels, frozenset()) for child in _subschemas(node.get("patternProperties")))
        for keyword in ("properties", "prefixItems"):
            total += max(
                (self.count_at(child, levels, frozenset()) for child in _subschemas(node.get(keyword))), default=0
            )
        return total

    def _sibling_schemas(self, node: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the schemas that apply to the same part."""
        for keyword in _SCHEMA_LIST_KEYWORDS:
            yield from _subschemas(node.get(keyword))
        yield from _subschemas(node.get("dependentSchemas"))
        yield from (node[keyword] for keyword in _SUBSCHEMA_KEYWORDS if keyword in node)
        yield from (
            self._resolve_reference(node[keyword])
            for keyword in _REFERENCE_KEYWORDS
            if isinstance(node.get(keyword), str)
        )

    def _resolve_reference(self, reference: str) -> Any:
        """Return the target of a reference within the schema. Any other reference counts as the whole schema."""
        if not reference.startswith("#/"):
            return self._schema
        target: Any = self._schema
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        return target


def _subschemas(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()
