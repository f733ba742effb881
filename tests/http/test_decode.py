"""Queries and bodies, decoded by the types of an endpoint."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from rota.errors import InvalidInput
from rota.http.decode import decode_body, decode_query, refuse_duplicate_keys
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = ""
    env: dict[str, str] = {}
    rows: list[dict[str, int]] = []


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    wait: Annotated[float, msgspec.Meta(ge=0)] | None = None
    all: bool = False
    kind: list[str] = []


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner) | st.dictionaries(st.text(), inner)


async def _handle(call: Invocation[Query, None]) -> JsonReply[NoQuery]:
    """Do nothing."""
    return JsonReply(NoQuery())


def decode(query: str) -> Any:
    return msgspec.structs.asdict(decode_query(Endpoint("GET", "/x", _handle), QueryParams(query)))


def test_query_is_converted_to_its_type() -> None:
    assert decode("name=a&wait=1.5&all=true&kind=b&kind=c") == {
        "name": "a",
        "wait": 1.5,
        "all": True,
        "kind": ["b", "c"],
    }
    assert decode("") == {"name": None, "wait": None, "all": False, "kind": []}


def test_null_is_text_in_text_parameters_and_refused_elsewhere() -> None:
    assert decode("name=null&kind=null") == {"name": "null", "wait": None, "all": False, "kind": ["null"]}
    for text in ("null", "NULL"):
        with pytest.raises(InvalidInput, match="wait cannot be null; leave it out instead") as refused:
            decode(f"wait={text}")
        assert refused.value.path == ".wait"


@pytest.mark.parametrize(
    ("query", "path"), [("wait=-1", ".wait"), ("all=perhaps", ".all"), ("nmae=a", ".nmae"), ("name=a&name=b", ".name")]
)
def test_invalid_query_is_refused_with_its_path(query: str, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(query)
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("nmae=a", "unknown query parameter 'nmae'; did you mean name?"),
        ("zzz=1", "unknown query parameter 'zzz'; known parameters: name, wait, all, kind"),
    ],
)
def test_unknown_parameter_is_refused_with_a_suggestion(query: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode(query)
    assert refused.value.message == message


async def _handle_body(call: Invocation[NoQuery, Body]) -> JsonReply[NoQuery]:
    """Do nothing."""
    return JsonReply(NoQuery())


async def _handle_any_object(call: Invocation[NoQuery, dict[str, Any]]) -> JsonReply[NoQuery]:
    """Do nothing."""
    return JsonReply(NoQuery())


@pytest.mark.parametrize("handler", [_handle_body, _handle_any_object])
@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"name": "a", "name": "b"}', "name"),
        (rb'{"name": "a", "\u006eame": "b"}', "name"),
        (b'{"name":"a","env":{"A":"1","B":"2","A":"1"}}', "A"),
        (b'{"rows": [{"a": 1}, {"a": 1, "a": 1}]}', "a"),
        (rb'{"env": {"a\\": "\"", "b": "\\\"", "a\\": "\"a"}}', "a\\"),
    ],
)
def test_equal_keys_are_refused(handler: Any, body: bytes, key: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_body(Endpoint("POST", "/x", handler), body)
    assert refused.value.message == f"the key {key!r} occurs twice in one object; send it once"


@given(
    st.recursive(
        st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70), _nested
    )
)
def test_distinct_keys_are_accepted(value: object) -> None:
    """Escapes, spaces and large numbers do not count as repeated keys."""
    for body in (json.dumps({"a": value}), json.dumps({"a": value}, ensure_ascii=False, indent=1)):
        refuse_duplicate_keys(body.encode())
