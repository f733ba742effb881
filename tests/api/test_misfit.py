"""What does not fit the form of its endpoint is refused with its place, whatever the endpoint and the field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any

import msgspec
import pytest
from starlette.datastructures import QueryParams

from rota.api.app import ENDPOINTS
from rota.api.decode import body_of, query_of
from rota.api.endpoint import Endpoint
from rota.api.openapi.document import document
from rota.api.problem import refusal
from rota.errors import InvalidInput
from rota.wire.misfit import misfit

WRONG: tuple[Any, ...] = (5, "text", True, [], {}, [{"text": 5}], [5], {"text": [5]}, [[]])
"""Something of each kind: for each type there is one that it is not."""
NOWHERE = "nonsense"


def said_at(endpoint: Endpoint, body: Any) -> str | None:
    """Where a body is said to be wrong; none where it is taken."""
    try:
        body_of(endpoint, json.dumps(body).encode())
    except InvalidInput as error:
        return str(json.loads(bytes(refusal(error).body)).get("path", ""))
    return None


def with_body() -> Iterator[tuple[Endpoint, dict[str, Any]]]:
    """Each endpoint that takes an object, and that object's schema."""
    said = document(ENDPOINTS)
    for endpoint in ENDPOINTS:
        if endpoint.takes is NoneType:
            continue
        schema = said["paths"][endpoint.path][endpoint.method.lower()]["requestBody"]["content"]["application/json"][
            "schema"
        ]
        name = schema.get("$ref", "").rpartition("/")[2]
        if name:
            yield endpoint, said["components"]["schemas"][name]


BODIES = list(with_body())
NAMES = [f"{endpoint.method} {endpoint.path}" for endpoint, _ in BODIES]


def test_there_are_bodies() -> None:
    assert len(BODIES) >= 25, NAMES


@pytest.mark.parametrize(("endpoint", "schema"), BODIES, ids=NAMES)
def test_a_field_of_another_type_is_named(endpoint: Endpoint, schema: dict[str, Any]) -> None:
    required = endpoint.sends if isinstance(endpoint.sends, dict) else {}
    for field in schema["properties"]:
        said = [said_at(endpoint, {**required, field: value}) for value in WRONG]
        refused = [path for path in said if path is not None]
        assert refused, f"{field} takes everything"
        assert all(path == f"$.{field}" or path.startswith((f"$.{field}.", f"$.{field}[")) for path in refused), said


@pytest.mark.parametrize(("endpoint", "schema"), BODIES, ids=NAMES)
def test_so_is_one_that_is_missing_and_one_that_nobody_knows(endpoint: Endpoint, schema: dict[str, Any]) -> None:
    for field in schema.get("required", ()):
        left = {name: value for name, value in dict(endpoint.sends).items() if name != field}
        assert said_at(endpoint, left) == f"$.{field}"
    assert said_at(endpoint, {**dict(endpoint.sends), NOWHERE: 1}) == f"$.{NOWHERE}"


def asked_at(endpoint: Endpoint, field: str) -> str | None:
    try:
        query_of(endpoint, QueryParams({field: "no such thing"}))
    except InvalidInput as error:
        return error.path
    return None


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=[f"{each.method} {each.path}" for each in ENDPOINTS])
def test_what_cannot_be_asked_in_the_query_is_named(endpoint: Endpoint) -> None:
    for field in (*(known for known in endpoint.known if known not in endpoint.texts), NOWHERE):
        if field in endpoint.listed:
            assert asked_at(endpoint, field) in (f".{field}[0]", None), "texts are looked at later"
        else:
            assert asked_at(endpoint, field) == f".{field}"


class Lock(msgspec.Struct, forbid_unknown_fields=True):
    key: str


class Job(msgspec.Struct, forbid_unknown_fields=True):
    locks: list[Lock] = []
    pools: dict[str, int] = {}
    many: dict[str, list[dict[str, int]]] = {}
    few: dict[str, Annotated[int, msgspec.Meta(le=2)]] = {}


@pytest.mark.parametrize(
    ("said", "path", "where"),
    [
        ({"locks": [{"key": 1}]}, ".locks[0].key", "Expected `str`, got `int` - at `$.jobs[3].locks[0].key`"),
        ({"locks": [{"x": 1}]}, ".locks[0].x", "Object contains unknown field `x` - at `$.jobs[3].locks[0]`"),
        ({"locks": [{}]}, ".locks[0].key", "Object missing required field `key` - at `$.jobs[3].locks[0]`"),
        ({"pools": {"x": 1, "a": "b"}}, ".pools.a", "Expected `int`, got `str` - at `$.jobs[3].pools.a`"),
        (
            {"many": {"x": [{}], "y": [{}, {"a": 1, "b": None}]}},
            ".many.y[1].b",
            "Expected `int`, got `null` - at `$.jobs[3].many.y[1].b`",
        ),
        ({"few": {"a": 1, "b": 3}}, ".few", "Expected `int` <= 2 - at `$.jobs[3].few[...]`"),
        ([], "", "Expected `object`, got `array` - at `$.jobs[3]`"),
    ],
)
def test_its_words_and_its_place_agree(said: Any, path: str, where: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(said, Job)
    refused = misfit("the body", caught.value, at=".jobs[3]", of=said)
    assert (refused.path, refused.message) == (f".jobs[3]{path}", f"the body cannot be used: {where}")


DEEP = b'{"a":' * 1200 + b"1" + b"}" * 1200


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        (b"", "", "the request body is empty; send a JSON object"),
        (b" \n", "", "the request body is empty; send a JSON object"),
        (b'{"jobs": [', "", "the request body cannot be used: Input data was truncated"),
        (rb'{"jobs": [{"name": "a\ud83d"}]}', ".jobs[0].name", "half of a surrogate pair"),
        (rb'{"jobs": [{"name": "\udc00 and more"}]}', ".jobs[0].name", "half of a surrogate pair"),
        (rb'{"jobs": [{"env": {"\ud800": "x"}}]}', ".jobs[0].env", "half of a surrogate pair"),
        (rb'{"jobs": [{"name": "\ud800"}', "", "the request body cannot be used: "),
        (b'{"jobs": [{"params": %b}]}' % DEEP, ".jobs[0].params", "the request body is nested too deep"),
        (b'{"jobs": [{"name": "a\\"}]{[", "env": {}}, {"params" : {"x": [%b]}}]}' % DEEP, ".jobs[1].params", "the req"),
        (
            b'{"jobs": [{"name": "%b", "params": %b}]}' % (b'\\"' * (1 << 20), DEEP),
            "",
            "the request body is nested too",
        ),
    ],
    ids=range(10),
)
def test_what_cannot_even_be_read_is_told_apart(body: bytes, path: str, said: str) -> None:
    (endpoint,) = (each for each in ENDPOINTS if (each.method, each.path) == ("POST", "/api/jobs/batch"))
    with pytest.raises(InvalidInput) as refused:
        body_of(endpoint, body)
    assert refused.value.message.startswith(said)
    assert refused.value.path == path
