"""Query and body of a request, decoded by the types of its endpoint; what cannot be used is named by its path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from rota.api import spoilt
from rota.api.endpoint import Endpoint
from rota.api.nul import refuse_in_body, refuse_in_texts
from rota.errors import InvalidInput
from rota.wire.misfit import misfit


def query_of(endpoint: Endpoint, given: QueryParams) -> Any:
    asked: dict[str, Any] = {}
    for name in given:
        values = given.getlist(name)
        if name not in endpoint.known:
            known = f"known are {', '.join(endpoint.known)}" if endpoint.known else "there is nothing to ask for"
            raise InvalidInput(f"nothing is asked by {name!r} here; {known}").under(f".{name}")
        if name not in endpoint.listed and len(values) > 1:
            raise InvalidInput(f"{name} can be said once only").under(f".{name}")
        if values[0].lower() == "null" and name not in endpoint.texts | endpoint.listed:
            # To msgspec this would be none at all; in a query, what is not wanted is left out.
            raise InvalidInput(f"{name} cannot be null; leave it out instead").under(f".{name}")
        refuse_in_texts({name: "".join(values)})
        asked[name] = values if name in endpoint.listed else values[0]
    return _converted(endpoint, asked)


@cache
def unasked(endpoint: Endpoint) -> Any:
    """The query of who asks for nothing."""
    return _converted(endpoint, {})


def _converted(endpoint: Endpoint, asked: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(asked, type=endpoint.asks, strict=False)
    except msgspec.ValidationError as error:
        raise misfit("the query", error) from None


def body_of(endpoint: Endpoint, given: bytes) -> Any:
    if endpoint.takes is NoneType or (not given and endpoint.may_be_empty):
        return None
    if not given or given.isspace():
        raise InvalidInput("the request body is empty; send a JSON object")
    try:
        body = endpoint.read(given)
        if not endpoint.is_free:
            refuse_in_body(given)
        return body
    except msgspec.ValidationError as error:
        raise misfit("the request body", error, of=spoilt.readable(given)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # the latter where a text is no UTF-8
        raise spoilt.half_character(given) or misfit("the request body", error) from None
    except RecursionError:
        raise spoilt.too_deep(given) from None
