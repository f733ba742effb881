"""What stands in a query, as its endpoint's type has it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from starlette.datastructures import QueryParams

from rota.api.decode import query_of
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.errors import InvalidInput


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str | None = None
    wait: Annotated[float, msgspec.Meta(ge=0)] | None = None
    all: bool = False
    kind: list[str] = []


async def _handle(call: Call[Query, None]) -> Reply[Nothing]:
    """Do nothing."""
    return Reply(Nothing())


def asked(query: str) -> Any:
    return msgspec.structs.asdict(query_of(Endpoint("GET", "/x", _handle), QueryParams(query)))


def test_a_query_becomes_its_type() -> None:
    assert asked("name=a&wait=1.5&all=true&kind=b&kind=c") == {
        "name": "a",
        "wait": 1.5,
        "all": True,
        "kind": ["b", "c"],
    }
    assert asked("") == {"name": None, "wait": None, "all": False, "kind": []}


def test_null_is_a_name_where_names_are_asked_for_and_nothing_elsewhere() -> None:
    assert asked("name=null&kind=null") == {"name": "null", "wait": None, "all": False, "kind": ["null"]}
    for text in ("null", "NULL"):
        with pytest.raises(InvalidInput, match="wait cannot be null; leave it out instead") as refused:
            asked(f"wait={text}")
        assert refused.value.path == ".wait"


@pytest.mark.parametrize(
    ("query", "path"), [("wait=-1", ".wait"), ("all=perhaps", ".all"), ("nmae=a", ".nmae"), ("name=a&name=b", ".name")]
)
def test_what_cannot_be_used_is_named(query: str, path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(query)
    assert refused.value.path == path
