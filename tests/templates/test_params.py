"""Params checked by JSON Schema: errors have paths, nothing is fetched, and no check takes long."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota.errors import InvalidInput
from rota.templates.params import MAX_DEPTH, MAX_PARAMS_BYTES, check_params, check_schema

SCHEMA = {
    "required": ["prompt"],
    "properties": {
        "prompt": {"type": "string"},
        "steps": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    },
}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"prompt": 5}, 'params.prompt: 5 is not of type "string"'),
        ({}, 'params: "prompt" is a required property'),
        ({"prompt": "", "steps": [{"n": 1}, {"n": 1.5}]}, 'params.steps[1].n: 1.5 is not of type "integer"'),
        ({"prompt": 1, "steps": 2}, 'params.prompt: 1 is not of type "string"; params.steps: 2 is not of type "array"'),
    ],
)
def test_schema_violation_names_path(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_params(SCHEMA, params)
    assert refused.value.message == text


def test_valid_params_and_params_without_schema_are_accepted() -> None:
    check_params(SCHEMA, {"prompt": "x", "steps": [{"n": 1}], "more": None})
    check_params(None, {"anything": [1, {"x": None}]})


def test_long_value_is_shortened_in_error() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_params({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 100_000})
    assert refused.value.message.startswith('params.a: "xxx')
    assert refused.value.message.endswith('is not of type "integer"')
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "objct"}}}, r"params_schema\.properties\.a\.type: "),
        ({"type": "array"}, r'type must be "object"'),
        ({"properties": {"a": {"minimum": "1"}}}, r"params_schema\.properties\.a\.minimum: "),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, r"only .*2020-12.* is supported; leave it out"),
        ({"properties": {"a": {"pattern": "(?=x)y"}}}, r"not a \"regex\"; patterns are matched in linear time"),
        ({"properties": {"a": {"pattern": "(x)\\1"}}}, r"linear time"),
        ({"$ref": "#/$defs/nowhere"}, r"nowhere"),
    ],
)
def test_unusable_schema_is_refused(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        check_schema(schema)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9/x.json", "https://example.com/a", "file:///etc/hostname"])
def test_remote_reference_is_not_fetched(uri: str) -> None:
    with pytest.raises(InvalidInput, match="is outside of the schema, and nothing is fetched"):
        check_schema({"properties": {"a": {"$ref": uri}}})


def test_recursive_reference_is_supported() -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    tree = {"$defs": {"node": node}, "properties": {"tree": {"$ref": "#/$defs/node"}}}
    check_params(tree, {"tree": {"left": {"left": {"n": 1}}}})
    with pytest.raises(InvalidInput, match=r"params\.tree\.left\.left\.n: "):
        check_params(tree, {"tree": {"left": {"left": {"n": "1"}}}})


def test_pattern_is_matched_in_linear_time() -> None:
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    began = time.monotonic()
    with pytest.raises(InvalidInput):
        check_params(schema, {"a": "a" * 50_000 + "b"})
    assert time.monotonic() - began < 2


def make_doubling_schema(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "object"}}}


def test_exponential_references_are_refused() -> None:
    check_schema(make_doubling_schema(8))
    for levels in (40, 400):
        with pytest.raises(InvalidInput, match="references expand to too many checks"):
            check_schema(make_doubling_schema(levels))


BRANCHES: list[Any] = [
    {"type": "object", "properties": {"kind": {"const": kind}, "of": {"$ref": "#/$defs/node"}}}
    for kind in ("and", "or")
]
TREE = {"$defs": {"node": {"oneOf": [*BRANCHES, {"type": "string"}]}}, "properties": {"tree": {"$ref": "#/$defs/node"}}}


def make_nested_params(levels: int, leaf: object) -> dict[str, Any]:
    for _ in range(levels):
        leaf = {"kind": "and", "of": leaf}
    return {"tree": leaf}


def test_recursive_alternatives_are_checked_fast_at_any_depth() -> None:
    """The library reports an error in alternatives once for each path to it: each level doubles their number."""
    began = time.monotonic()
    check_params(TREE, make_nested_params(10, "leaf"))
    with pytest.raises(InvalidInput, match=r"^params\.tree: "):
        check_params(TREE, make_nested_params(3, 5))
    with pytest.raises(InvalidInput, match="nested too deep to locate the error"):
        check_params(TREE, make_nested_params(12, 5))
    with pytest.raises(InvalidInput, match="nested too deep for the recursive schema"):
        check_params(TREE, make_nested_params(40, 5))
    assert time.monotonic() - began < 2


def test_params_depth_and_size_are_limited() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    check_params(None, {"a": deep[0]})
    with pytest.raises(InvalidInput, match=f"params is nested deeper than {MAX_DEPTH} levels"):
        check_params(None, {"a": deep})
    with pytest.raises(InvalidInput, match=r"params has \d+ bytes as JSON.*in a file"):
        check_params(None, {"a": "x" * MAX_PARAMS_BYTES})
    check_params(None, {"a": "x" * (MAX_PARAMS_BYTES - 10)})
