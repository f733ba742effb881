"""Params by JSON Schema: errors by path, nothing fetched, and nothing that could take long."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rota.command.schema import DEEPEST, MOST_PARAMS, check_params, check_schema
from rota.errors import InvalidInput

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
def test_what_does_not_fit_is_said_by_its_path(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_params(SCHEMA, params)
    assert refused.value.message == text


def test_what_fits_is_taken_and_without_a_schema_everything_is() -> None:
    check_params(SCHEMA, {"prompt": "x", "steps": [{"n": 1}], "more": None})
    check_params(None, {"anything": [1, {"x": None}]})


def test_a_long_value_is_not_said_whole() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_params({"properties": {"a": {"type": "integer"}}}, {"a": "x" * 100_000})
    assert refused.value.message.startswith('params.a: "xxx')
    assert refused.value.message.endswith('is not of type "integer"')
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "objct"}}}, r"params_schema\.properties\.a\.type: "),
        ({"type": "array"}, r'its type is "object"'),
        ({"properties": {"a": {"minimum": "1"}}}, r"params_schema\.properties\.a\.minimum: "),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, r"only .*2020-12.* is known, so leave it out"),
        ({"properties": {"a": {"pattern": "(?=x)y"}}}, r"not a \"regex\"; patterns are matched in linear time"),
        ({"properties": {"a": {"pattern": "(x)\\1"}}}, r"linear time"),
        ({"$ref": "#/$defs/nowhere"}, r"nowhere"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        check_schema(schema)


@pytest.mark.parametrize("uri", ["http://127.0.0.1:9/x.json", "https://example.com/a", "file:///etc/hostname"])
def test_nothing_is_ever_fetched(uri: str) -> None:
    with pytest.raises(InvalidInput, match="is not within the schema, and nothing is fetched"):
        check_schema({"properties": {"a": {"$ref": uri}}})


def test_a_reference_within_the_schema_works_also_to_itself() -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    tree = {"$defs": {"node": node}, "properties": {"tree": {"$ref": "#/$defs/node"}}}
    check_params(tree, {"tree": {"left": {"left": {"n": 1}}}})
    with pytest.raises(InvalidInput, match=r"params\.tree\.left\.left\.n: "):
        check_params(tree, {"tree": {"left": {"left": {"n": "1"}}}})


def test_a_pattern_that_would_backtrack_for_ever_takes_no_time() -> None:
    schema = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    began = time.monotonic()
    with pytest.raises(InvalidInput):
        check_params(schema, {"a": "a" * 50_000 + "b"})
    assert time.monotonic() - began < 2


def doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"$ref": f"#/$defs/a{n + 1}"}]} for n in range(levels)
    }
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "object"}}}


def test_references_that_multiply_are_refused() -> None:
    check_schema(doubling(8))
    for levels in (40, 400):
        with pytest.raises(InvalidInput, match="references lead too far"):
            check_schema(doubling(levels))


BRANCHES: list[Any] = [
    {"type": "object", "properties": {"kind": {"const": kind}, "of": {"$ref": "#/$defs/node"}}}
    for kind in ("and", "or")
]
TREE = {"$defs": {"node": {"oneOf": [*BRANCHES, {"type": "string"}]}}, "properties": {"tree": {"$ref": "#/$defs/node"}}}


def nested(levels: int, leaf: object) -> dict[str, Any]:
    for _ in range(levels):
        leaf = {"kind": "and", "of": leaf}
    return {"tree": leaf}


def test_alternatives_that_hold_each_other_take_no_time_however_deep_the_params_are() -> None:
    """Errors within alternatives are told by every way that leads to them: twice as many with each level."""
    began = time.monotonic()
    check_params(TREE, nested(10, "leaf"))
    with pytest.raises(InvalidInput, match=r"^params\.tree: "):
        check_params(TREE, nested(3, 5))
    with pytest.raises(InvalidInput, match="nested too deep to say where"):
        check_params(TREE, nested(12, 5))
    with pytest.raises(InvalidInput, match="nested too deep for the schema"):
        check_params(TREE, nested(40, 5))
    assert time.monotonic() - began < 2


def test_depth_and_size_have_limits() -> None:
    deep: Any = 1
    for _ in range(DEEPEST):
        deep = [deep]
    check_params(None, {"a": deep[0]})
    with pytest.raises(InvalidInput, match=f"params is nested deeper than {DEEPEST} levels"):
        check_params(None, {"a": deep})
    with pytest.raises(InvalidInput, match=r"params has \d+ bytes as JSON.*in a file"):
        check_params(None, {"a": "x" * MOST_PARAMS})
    check_params(None, {"a": "x" * (MOST_PARAMS - 10)})
