"""The OpenAPI document is valid and complete, matches its own examples, and is the one that is checked in."""

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

from rota.http.openapi.document import build_document, render_document
from rota.http.openapi.operation import PATH_PARAMETERS
from rota.http.openapi.schema import Schemas, field_descriptions, paragraphs, summary, without_null
from rota.routes import ENDPOINTS

DOCUMENT_FILE = Path(__file__).parents[2] / "docs" / "openapi.json"


@cache
def document() -> dict[str, Any]:
    return build_document(ENDPOINTS)


class Operation(NamedTuple):
    name: str
    fields: dict[str, Any]

    def json_contents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the JSON contents of the body and of the successful responses."""
        responses = {status: value for status, value in self.fields["responses"].items() if "$ref" not in value}
        for name, part in {"body": self.fields.get("requestBody", {}), **responses}.items():
            if (content := part.get("content", {}).get("application/json")) is not None:
                yield f"{self.name} {name}", content


def list_operations() -> list[Operation]:
    return [
        Operation(f"{method.upper()} {path}", fields)
        for path, methods in document()["paths"].items()
        for method, fields in methods.items()
    ]


def make_validator(schema: Any) -> jsonschema_rs.Draft202012Validator:
    """Return a validator for a part of the document, which refers to other parts."""
    with_components = {**schema, "components": {"schemas": document()["components"]["schemas"]}}
    return jsonschema_rs.Draft202012Validator(with_components, validate_formats=True)


def test_docs_openapi_json_is_current() -> None:
    assert DOCUMENT_FILE.read_text() == render_document(document()), (
        "docs/openapi.json differs from the code; `make openapi` writes it"
    )


def test_document_does_not_depend_on_the_order_of_endpoints() -> None:
    assert render_document(build_document(ENDPOINTS)) == render_document(build_document(tuple(reversed(ENDPOINTS))))


def test_document_is_valid() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(document()).iter_errors()] == []


def test_operations_have_unique_ids_and_descriptions() -> None:
    ids = [operation.fields["operationId"] for operation in list_operations()]
    assert sorted(ids) == sorted(set(ids)), "two operations have one id"
    assert [operation.name for operation in list_operations() if not operation.fields["description"]] == []
    too_long = [operation.name for operation in list_operations() if len(operation.fields["summary"]) > 80]
    assert too_long == [], "the first sentence is too long"


def test_public_operations_need_no_token() -> None:
    public = [operation.name.split("/")[1] for operation in list_operations() if operation.fields.get("security") == []]
    assert set(public) == {"docs", "openapi.json", "problems", "health"}


def test_bodies_and_responses_have_examples() -> None:
    missing = [
        name
        for operation in list_operations()
        for name, content in operation.json_contents()
        if "example" not in content
    ]
    assert not missing, f"{missing}: add `request_example`, `response_example` or `other_response_examples`"


def test_examples_match_their_schemas() -> None:
    contents = [pair for operation in list_operations() for pair in operation.json_contents()]
    contents += [
        (name, {"schema": content["schema"], "example": example["value"]})
        for name, response in document()["components"]["responses"].items()
        for content in response["content"].values()
        for example in content["examples"].values()
    ]
    errors = [
        f"{name} at {error.instance_path}: {error.message}"
        for name, content in contents
        if "example" in content
        for error in make_validator(content["schema"]).iter_errors(content["example"])
    ]
    assert errors == []


def test_fields_and_parameters_have_descriptions() -> None:
    schemas = document()["components"]["schemas"]
    missing = [name for name, schema in schemas.items() if not schema.get("description")]
    for name, schema in schemas.items():
        properties = schema.get("properties", {})
        missing += [f"{name}.{field}" for field, value in properties.items() if "description" not in value]
    for operation in list_operations():
        missing += [
            f"{operation.name} {parameter['name']}"
            for parameter in operation.fields.get("parameters", [])
            if "$ref" not in parameter and not parameter["description"]
        ]
    assert not missing, f"{missing}: add a docstring below the field, or an entry in rota/http/openapi/schema.py"


def test_examples_of_path_parameters_are_valid() -> None:
    invalid = [
        name
        for name, parameter in PATH_PARAMETERS.items()
        if not make_validator(parameter.schema).is_valid(parameter.example)
    ]
    assert invalid == []


def test_bodies_refuse_unknown_fields() -> None:
    schemas = document()["components"]["schemas"]
    names = [getattr(endpoint.body_type, "__name__", "") for endpoint in ENDPOINTS]
    assert [name for name in names if schemas.get(name, {}).get("additionalProperties", False) is not False] == []


def test_responses_require_all_fields_except_optional_ones() -> None:
    job = document()["components"]["schemas"]["Job"]
    assert sorted(job["required"]) == sorted(job["properties"])
    submitted = document()["components"]["schemas"]["SubmitResult"]
    assert submitted["required"] == ["result", "job", "warning"], "`depth` is present if the queue is nearly full"
    assert "default" not in submitted["properties"]["warning"]


def test_query_parameters_have_no_null_and_keep_their_defaults() -> None:
    parameters = {parameter["name"]: parameter for parameter in document()["paths"]["/api/jobs"]["get"]["parameters"]}
    assert parameters["cursor"]["schema"]["type"] == "string"
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert not any("null" in json.dumps(parameter["schema"]) for parameter in parameters.values())


def test_error_responses_list_the_codes_of_their_endpoint() -> None:
    submit = document()["paths"]["/api/jobs"]["post"]["responses"]
    assert submit["422"] == {"$ref": "#/components/responses/idempotency-key-reused-or-invalid-input"}
    assert submit["429"] == {"$ref": "#/components/responses/deferred"}
    why = document()["paths"]["/api/jobs/{job}/why"]["get"]["responses"]
    assert why["422"] == {"$ref": "#/components/responses/invalid-input"}
    assert "507" not in why, "a read does not fill the disk"


@pytest.mark.parametrize("status", ["429", "503"])
def test_temporary_refusals_have_retry_after(status: str) -> None:
    for operation in list_operations():
        if (response := operation.fields["responses"].get(status)) is not None:
            name = response["$ref"].rpartition("/")[2]
            assert "Retry-After" in document()["components"]["responses"][name]["headers"], operation.name


class Base(msgspec.Struct):
    described: str
    """First line; and
    second line."""
    undescribed: int = 0

    @property
    def computed(self) -> str:
        """Not a field."""
        return self.described


class Derived(Base):
    own: str | None = None
    """Own field."""


def test_docstring_of_a_field_is_its_description() -> None:
    assert field_descriptions(Base) == {"described": "First line; and second line."}
    assert field_descriptions(Derived) == {"described": "First line; and second line.", "own": "Own field."}


def test_summary_is_the_first_sentence() -> None:
    text = paragraphs("""Submit a job. It is
    checked.

    And then.""")
    assert text == "Submit a job. It is checked.\n\nAnd then."
    assert summary(text) == "Submit a job"


def test_equal_component_names_are_refused() -> None:
    other = msgspec.defstruct("JobView", [("id", str)], module="elsewhere")
    (get_job,) = [endpoint for endpoint in ENDPOINTS if endpoint.path == "/api/jobs/{job}" and endpoint.method == "GET"]
    original, get_job.other_response_types = get_job.other_response_types, {200: other}
    try:
        with pytest.raises(ValueError, match="two components are called Job"):
            Schemas(ENDPOINTS)
    finally:
        get_job.other_response_types = original


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": ["string", "null"], "default": None}, {"type": "string"}),
        ({"type": ["string", "null"], "enum": ["a", None]}, {"type": "string", "enum": ["a"]}),
        ({"anyOf": [{"$ref": "#/x"}, {"type": "null"}], "default": None}, {"$ref": "#/x"}),
        ({"type": "integer", "default": 0}, {"type": "integer", "default": 0}),
    ],
)
def test_query_schema_leaves_out_null(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert without_null(schema) == expected
