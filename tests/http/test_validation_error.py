"""Requests that do not match the type of their endpoint are refused with the path of the error, for every endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any

import msgspec
import pytest
from starlette.datastructures import QueryParams

from rota.errors import InvalidInput
from rota.http.decode import decode_body, decode_query
from rota.http.endpoint import Endpoint
from rota.http.openapi.document import build_document
from rota.http.problem import refusal_response
from rota.routes import ENDPOINTS
from rota.schema_types import make_validation_error

VALUES: tuple[Any, ...] = (5, "text", True, [], {}, [{"text": 5}], [5], {"text": [5]}, [[]])
"""Values of several types. Each type refuses at least one of them."""
UNKNOWN = "nonsense"


def body_error_path(endpoint: Endpoint, body: Any) -> str | None:
    """Return the path in the refusal of a body; None if the body is accepted."""
    try:
        decode_body(endpoint, json.dumps(body).encode())
    except InvalidInput as error:
        return str(json.loads(bytes(refusal_response(error).body)).get("path", ""))
    return None


def find_body_schemas() -> Iterator[tuple[Endpoint, dict[str, Any]]]:
    """Yield each endpoint that takes an object, and the schema of the object."""
    document = build_document(ENDPOINTS)
    for endpoint in ENDPOINTS:
        if endpoint.body_type is NoneType:
            continue
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        name = schema.get("$ref", "").rpartition("/")[2]
        if name:
            yield endpoint, document["components"]["schemas"][name]


BODY_SCHEMAS = list(find_body_schemas())
ENDPOINT_NAMES = [f"{endpoint.method} {endpoint.path}" for endpoint, _ in BODY_SCHEMAS]


def test_endpoints_with_bodies_are_found() -> None:
    assert len(BODY_SCHEMAS) >= 25, ENDPOINT_NAMES


@pytest.mark.parametrize(("endpoint", "schema"), BODY_SCHEMAS, ids=ENDPOINT_NAMES)
def test_field_of_wrong_type_is_refused_with_its_path(endpoint: Endpoint, schema: dict[str, Any]) -> None:
    required = endpoint.request_example if isinstance(endpoint.request_example, dict) else {}
    for field in schema["properties"]:
        results = [body_error_path(endpoint, {**required, field: value}) for value in VALUES]
        paths = [path for path in results if path is not None]
        assert paths, f"{field} accepts every value"
        assert all(path == f"$.{field}" or path.startswith((f"$.{field}.", f"$.{field}[")) for path in paths), results


@pytest.mark.parametrize(("endpoint", "schema"), BODY_SCHEMAS, ids=ENDPOINT_NAMES)
def test_missing_and_unknown_fields_are_refused_with_their_path(endpoint: Endpoint, schema: dict[str, Any]) -> None:
    for field in schema.get("required", ()):
        rest = {name: value for name, value in dict(endpoint.request_example).items() if name != field}
        assert body_error_path(endpoint, rest) == f"$.{field}"
    assert body_error_path(endpoint, {**dict(endpoint.request_example), UNKNOWN: 1}) == f"$.{UNKNOWN}"


def query_error_path(endpoint: Endpoint, field: str) -> str | None:
    try:
        decode_query(endpoint, QueryParams({field: "no such thing"}))
    except InvalidInput as error:
        return error.path
    return None


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=[f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS])
def test_invalid_query_parameter_is_refused_with_its_path(endpoint: Endpoint) -> None:
    for field in (*(name for name in endpoint.query_parameters if name not in endpoint.text_parameters), UNKNOWN):
        if field in endpoint.repeatable_parameters:
            assert query_error_path(endpoint, field) in (f".{field}[0]", None), "handlers check texts"
        else:
            assert query_error_path(endpoint, field) == f".{field}"


class Lock(msgspec.Struct, forbid_unknown_fields=True):
    key: str


class Job(msgspec.Struct, forbid_unknown_fields=True):
    locks: list[Lock] = []
    pools: dict[str, int] = {}
    many: dict[str, list[dict[str, int]]] = {}
    few: dict[str, Annotated[int, msgspec.Meta(le=2)]] = {}


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"locks": [{"key": 1}]}, ".locks[0].key", "Expected `str`, got `int` - at `$.jobs[3].locks[0].key`"),
        ({"locks": [{"x": 1}]}, ".locks[0].x", "Object contains unknown field `x` - at `$.jobs[3].locks[0]`"),
        ({"locks": [{}]}, ".locks[0].key", "Object missing required field `key` - at `$.jobs[3].locks[0]`"),
        ({"pools": {"x": 1, "a": "b"}}, ".pools", "Expected `int`, got `str` - at `$.jobs[3].pools[...]`"),
        (
            {"many": {"x": [{}], "y": [{}, {"a": 1, "b": None}]}},
            ".many",
            "Expected `int`, got `null` - at `$.jobs[3].many[...][1][...]`",
        ),
        ({"few": {"a": 1, "b": 3}}, ".few", "Expected `int` <= 2 - at `$.jobs[3].few[...]`"),
        ([], "", "Expected `object`, got `array` - at `$.jobs[3]`"),
    ],
)
def test_message_and_path_name_the_same_location(value: Any, path: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Job)
    error = make_validation_error("the body", caught.value, prefix=".jobs[3]")
    assert (error.path, error.message) == (f".jobs[3]{path}", f"the body cannot be used: {message}")


HALF_PAIR = "a string contains half of a surrogate pair"
DEEP = b'{"a":' * 1200 + b"1" + b"}" * 1200


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        (b"", "", "the request body is empty; send a JSON object"),
        (b" \n", "", "the request body is empty; send a JSON object"),
        (b'{"jobs": [', "", "the request body cannot be used: Input data was truncated"),
        (rb'{"jobs": [{"name": "\ud800"}', "", "the request body cannot be used: "),
        (rb'{"jobs": [{"name": "a\ud83d"}]}', ".jobs[0].name", HALF_PAIR),
        (rb'{"jobs": [{"name": "\udc00 and more"}]}', ".jobs[0].name", HALF_PAIR),
        (rb'{"jobs": [{"env": {"\ud800": "x"}}]}', ".jobs[0].env", HALF_PAIR),
        (b'{"jobs": [{"params": %b}]}' % DEEP, "", "the request body is nested too deep; make it flatter"),
    ],
    ids=range(8),
)
def test_undecodable_bodies_have_distinct_errors(body: bytes, path: str, message: str) -> None:
    (batch,) = (endpoint for endpoint in ENDPOINTS if (endpoint.method, endpoint.path) == ("POST", "/api/jobs/batch"))
    with pytest.raises(InvalidInput) as refused:
        decode_body(batch, body)
    assert refused.value.message.startswith(message)
    assert refused.value.path == path
