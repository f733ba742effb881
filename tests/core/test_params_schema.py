"""By how many ways a part of a value is asked, counted against a walk that really asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.params_schema import MOST, ways

TREE = {
    "$defs": {"node": {"oneOf": [{"properties": {"of": {"$ref": "#/$defs/node"}}} for _ in range(3)]}},
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "depth", "count"),
    [
        ({}, 0, 1),
        ({"type": "object"}, 9, 1),
        ({"properties": {"a": {}, "b": {"allOf": [{}, True]}}}, 1, 3),
        ({"properties": {"a": {}}, "patternProperties": {"x": {}, "y": {}}, "additionalProperties": {}}, 1, 4),
        ({"items": {"items": {"anyOf": [{}, {}]}}}, 2, 3),
        ({"items": {"items": {"anyOf": [{}, {}]}}}, 1, 1),
        ({"$ref": "#"}, 3, 1),
        ({"$ref": "#/$defs/nowhere"}, 0, 2),
        ({"if": {}, "then": {}, "else": {}, "not": {}, "dependentSchemas": {"a": {}}}, 0, 6),
        ({"$defs": {"a/b": {"allOf": [{}]}}, "$ref": "#/$defs/a~1b"}, 0, 3),
    ],
)
def test_small_ones(schema: dict[str, Any], depth: int, count: int) -> None:
    assert ways(schema, depth) == count


def test_each_level_multiplies_what_holds_its_own_kind() -> None:
    assert [ways(TREE, depth) // ways(TREE, depth - 1) for depth in (2, 3, 4, 5)] == [3, 3, 3, 3]
    assert ways(TREE, 64) == MOST


LEAF = st.sampled_from([{}, True, {"type": "string"}])
NODES = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda found: {"allOf": found}),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda found: {"properties": found}),
        st.tuples(inner, inner).map(lambda pair: {"not": pair[0], "properties": {"a": pair[1]}}),
    ),
    max_leaves=12,
)


def asked(schema: Any, path: str) -> int:
    """How often a schema without references is asked of the part at this path."""
    if not isinstance(schema, dict):
        return int(not path)
    beside = [*schema.get("allOf", ()), *([schema["not"]] if "not" in schema else ())]
    below = asked(schema["properties"][path[0]], path[1:]) if path and path[0] in schema.get("properties", {}) else 0
    return int(not path) + below + sum(asked(child, path) for child in beside)


@given(NODES, st.text("ab", max_size=4))
def test_no_part_is_asked_more_often_than_counted(schema: Any, path: str) -> None:
    if isinstance(schema, dict):
        assert asked(schema, path) <= ways(schema, len(path))
