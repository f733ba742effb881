"""The OpenAPI document: valid, whole, true to its own examples, and the one that is checked in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from rota.api.app import ENDPOINTS
from rota.api.openapi.document import document, written
from rota.api.openapi.place import PLACES
from rota.api.openapi.prose import fields_of, paragraphs, summary
from rota.api.openapi.schema import Schemas, without_null

PAGE = Path(__file__).parents[2] / "docs" / "openapi.json"


@cache
def made() -> dict[str, Any]:
    return document(ENDPOINTS)


class Operation(NamedTuple):
    name: str
    said: dict[str, Any]

    def contents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The JSON of its body and of each answer that is no refusal; pages, files and streams are what they are."""
        answers = {status: answer for status, answer in self.said["responses"].items() if "$ref" not in answer}
        for name, said in {"body": self.said.get("requestBody", {}), **answers}.items():
            if (content := said.get("content", {}).get("application/json")) is not None:
                yield f"{self.name} {name}", content


def operations() -> list[Operation]:
    return [
        Operation(f"{method.upper()} {path}", said)
        for path, methods in made()["paths"].items()
        for method, said in methods.items()
    ]


def validator(schema: Any) -> jsonschema_rs.Draft202012Validator:
    """Of a part of the document, whose references lead into the whole."""
    whole = {**schema, "components": {"schemas": made()["components"]["schemas"]}}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def test_the_document_in_docs_is_the_one_of_the_code() -> None:
    assert PAGE.read_text() == written(made()), "docs/openapi.json is not what the code says; `make openapi` writes it"


def test_the_document_is_made_the_same_each_time() -> None:
    assert written(document(ENDPOINTS)) == written(document(tuple(reversed(ENDPOINTS))))


def test_the_document_is_valid() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(made()).iter_errors()] == []


def test_every_endpoint_says_what_it_is_for() -> None:
    names = [operation.said["operationId"] for operation in operations()]
    assert sorted(names) == sorted(set(names)), "two operations have one name"
    assert [one.name for one in operations() if not one.said["description"]] == []
    assert [one.name for one in operations() if len(one.said["summary"]) > 80] == [], "the first sentence is too long"


def test_no_token_is_asked_for_where_none_is_needed() -> None:
    public = [operation.name.split("/")[1] for operation in operations() if operation.said.get("security") == []]
    assert set(public) == {"docs", "openapi.json", "problems", "health"}, "and /health says less without one"


def test_every_body_and_every_answer_has_an_example() -> None:
    lacking = [name for operation in operations() for name, content in operation.contents() if "example" not in content]
    assert not lacking, f"{lacking}: give these endpoints `sends`, `shows` or `also_shows`"


def test_the_examples_are_what_the_schemas_say() -> None:
    contents = [pair for operation in operations() for pair in operation.contents()]
    contents += [
        (name, {"schema": content["schema"], "example": example["value"]})
        for name, answer in made()["components"]["responses"].items()
        for content in answer["content"].values()
        for example in content["examples"].values()
    ]
    wrong = [
        f"{name} at {error.instance_path}: {error.message}"
        for name, content in contents
        if "example" in content
        for error in validator(content["schema"]).iter_errors(content["example"])
    ]
    assert wrong == []


def test_every_field_and_every_parameter_is_described() -> None:
    schemas = made()["components"]["schemas"]
    lacking = [name for name, schema in schemas.items() if not schema.get("description")]
    for name, schema in schemas.items():
        lacking += [
            f"{name}.{field}" for field, said in schema.get("properties", {}).items() if "description" not in said
        ]
    for operation in operations():
        lacking += [
            f"{operation.name} {said['name']}"
            for said in operation.said.get("parameters", [])
            if "$ref" not in said and not said["description"]
        ]
    assert not lacking, f"{lacking}: give these a docstring below the field, or a place in rota/api/openapi/place.py"


def test_the_example_of_a_place_is_one() -> None:
    wrong = [name for name, place in PLACES.items() if not validator(place.schema).is_valid(place.example)]
    assert wrong == []


def test_bodies_refuse_what_they_do_not_know() -> None:
    open_ones = [
        name
        for endpoint in ENDPOINTS
        for name in [getattr(endpoint.takes, "__name__", "")]
        if made()["components"]["schemas"].get(name, {}).get("additionalProperties", False) is not False
    ]
    assert open_ones == []


def test_answers_have_all_that_can_be_in_them_but_what_is_left_out_on_purpose() -> None:
    job = made()["components"]["schemas"]["JobForm"]
    assert sorted(job["required"]) == sorted(job["properties"])
    submitted = made()["components"]["schemas"]["SubmitForm"]
    assert submitted["required"] == ["result", "job", "warning"], "`depth` only where the queue is nearly full"
    assert "default" not in submitted["properties"]["warning"]


def test_a_query_has_no_null_and_keeps_its_defaults() -> None:
    asked = {said["name"]: said for said in made()["paths"]["/api/jobs"]["get"]["parameters"]}
    assert asked["cursor"]["schema"]["type"] == "string"
    assert asked["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert not any("null" in json.dumps(said["schema"]) for said in asked.values())


def test_refusals_have_the_codes_of_their_endpoint() -> None:
    submit = made()["paths"]["/api/jobs"]["post"]["responses"]
    assert submit["422"] == {"$ref": "#/components/responses/invalid-input-or-key-reused"}
    assert submit["429"] == {"$ref": "#/components/responses/deferred"}
    why = made()["paths"]["/api/jobs/{job}/why"]["get"]["responses"]
    assert why["422"] == {"$ref": "#/components/responses/invalid-input"}
    assert "507" not in why, "who only looks fills no disk"


@pytest.mark.parametrize("status", ["429", "503"])
def test_what_passes_says_when_to_ask_again(status: str) -> None:
    for operation in operations():
        if (said := operation.said["responses"].get(status)) is not None:
            name = said["$ref"].rpartition("/")[2]
            assert "Retry-After" in made()["components"]["responses"][name]["headers"], operation.name


class Form(msgspec.Struct):
    named: str
    """One thing; and
    another."""
    bare: int = 0

    @property
    def shown(self) -> str:
        """No field."""
        return self.named


class Wider(Form):
    more: str | None = None
    """What it has beyond."""


def test_words_below_a_field_are_its_description() -> None:
    assert fields_of(Form) == {"named": "One thing; and another."}
    assert fields_of(Wider) == {"named": "One thing; and another.", "more": "What it has beyond."}


def test_summary_is_the_first_sentence() -> None:
    text = paragraphs("""Submit a job. It is
    checked.

    And then.""")
    assert text == "Submit a job. It is checked.\n\nAnd then."
    assert summary(text) == "Submit a job"


def test_namesakes_are_refused() -> None:
    other = msgspec.defstruct("JobForm", [("id", str)], module="elsewhere")
    (endpoint, *_) = [one for one in ENDPOINTS if one.path == "/api/jobs/{job}" and one.method == "GET"]
    known, endpoint.or_gives = endpoint.or_gives, {200: other}
    try:
        with pytest.raises(ValueError, match="two forms are called JobForm"):
            Schemas(ENDPOINTS)
    finally:
        endpoint.or_gives = known


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({"type": ["string", "null"], "default": None}, {"type": "string"}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"type": "string", "enum": ["a"]}),
        ({"anyOf": [{"$ref": "#/x"}, {"type": "null"}], "default": None}, {"$ref": "#/x"}),
        ({"type": "integer", "default": 0}, {"type": "integer", "default": 0}),
    ],
)
def test_null_is_left_out_of_a_query(said: dict[str, Any], asked: dict[str, Any]) -> None:
    assert without_null(said) == asked
