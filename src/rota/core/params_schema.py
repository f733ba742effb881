"""Cost limit for JSON Schema validation: an upper bound on the work that a schema causes for a value. Pure.

A recursive schema may be applied to one part of a value along several paths: two alternatives that both refer to their
parent double the paths with each level. Such a schema is usually harmless, but the client that sends the value chooses
its depth. Therefore the paths to the deepest part are counted before validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
