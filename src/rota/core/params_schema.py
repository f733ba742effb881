"""How much work a JSON Schema makes of a value, at most. Pure.

A schema is asked of a value's parts, and where it refers to itself it may be asked of one part by several ways: two
alternatives that both hold their own kind again ask twice as often with each level. Nobody means harm with such a
schema, but whoever sends the value decides how deep it is. So the ways to its deepest part are counted first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MOST = 1_000_000_000
"""No more are counted."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_EACH_PART = (
    "additionalProperties", "unevaluatedProperties", "propertyNames", "items", "contains", "unevaluatedItems",
)  # fmt: skip


def ways(schema: Mapping[str, Any], depth: int) -> int:
    """By how many ways one part of a value of this depth is reached, at most."""
    count = _Count(schema)
    try:
        return max(count.at(schema, levels, frozenset()) for levels in range(depth + 1))
    except RecursionError:
        return MOST


class _Count:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._known: dict[tuple[int, int], int] = {}

    def at(self, node: Any, levels: int, within: frozenset[int]) -> int:
        """Of a part so many levels below what this schema is asked of. `within` are the schemas that have led here on
        one level: what leads back to one of them asks nothing new."""
        if not isinstance(node, dict):
            return int(levels == 0)
        known = self._known.get((id(node), levels))
        if known is not None or id(node) in within:
            return known or 0
        inside = within | {id(node)}
        total = 1 if levels == 0 else self._below(node, levels - 1)
        for child in self._beside(node):
            total += self.at(child, levels, inside)
        self._known[id(node), levels] = min(total, MOST)
        return min(total, MOST)

    def _below(self, node: Mapping[str, Any], levels: int) -> int:
        """A part has one name or one place, so of those that are told apart by it the worst counts."""
        total = sum(self.at(node[keyword], levels, frozenset()) for keyword in _EACH_PART if keyword in node)
        total += sum(self.at(child, levels, frozenset()) for child in _values(node.get("patternProperties")))
        for keyword in ("properties", "prefixItems"):
            total += max((self.at(child, levels, frozenset()) for child in _values(node.get(keyword))), default=0)
        return total

    def _beside(self, node: Mapping[str, Any]) -> Iterator[Any]:
        """What is asked of the same part too."""
        for keyword in _LISTS:
            yield from _values(node.get(keyword))
        yield from _values(node.get("dependentSchemas"))
        yield from (node[keyword] for keyword in _SINGLE if keyword in node)
        yield from (self._target(node[keyword]) for keyword in _REFERENCES if isinstance(node.get(keyword), str))

    def _target(self, reference: str) -> Any:
        """What a reference within the schema points at; one by another name is taken for all of it."""
        if not reference.startswith("#/"):
            return self._schema
        found: Any = self._schema
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        return found


def _values(found: Any) -> Iterable[Any]:
    if isinstance(found, dict):
        return found.values()
    return found if isinstance(found, list) else ()
