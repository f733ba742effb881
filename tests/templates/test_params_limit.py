"""Number of paths to a part of a value, compared with a real evaluation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.templates.params import MAX_PATHS, count_evaluation_paths

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
def test_path_count_of_small_schemas(schema: dict[str, Any], depth: int, count: int) -> None:
    assert count_evaluation_paths(schema, depth) == count


def test_recursive_alternatives_multiply_with_each_level() -> None:
    assert [
        count_evaluation_paths(TREE, depth) // count_evaluation_paths(TREE, depth - 1) for depth in (2, 3, 4, 5)
    ] == [3, 3, 3, 3]
    assert count_evaluation_paths(TREE, 64) == MAX_PATHS


LEAF = st.sampled_from([{}, True, {"type": "string"}])
NODES = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda schemas: {"allOf": schemas}),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda properties: {"properties": properties}),
        st.tuples(inner, inner).map(lambda pair: {"not": pair[0], "properties": {"a": pair[1]}}),
    ),
    max_leaves=12,
)


def count_applications(schema: Any, path: str) -> int:
    """Count how often a schema without references is applied to the part at the path."""
    if not isinstance(schema, dict):
        return int(not path)
    siblings = [*schema.get("allOf", ()), *([schema["not"]] if "not" in schema else ())]
    children = (
        count_applications(schema["properties"][path[0]], path[1:])
        if path and path[0] in schema.get("properties", {})
        else 0
    )
    return int(not path) + children + sum(count_applications(child, path) for child in siblings)


@given(NODES, st.text("ab", max_size=4))
def test_path_count_is_an_upper_bound(schema: Any, path: str) -> None:
    if isinstance(schema, dict):
        assert count_applications(schema, path) <= count_evaluation_paths(schema, len(path))
