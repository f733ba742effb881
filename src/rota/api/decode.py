"""Decoders of queries and bodies by the types of an endpoint. An error has the path of the invalid value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any

import msgspec
from starlette.datastructures import QueryParams

from rota.api import invalid_body
from rota.api.duplicate import refuse_duplicate_keys
from rota.api.endpoint import Endpoint
from rota.api.nul import refuse_in_body, refuse_in_texts
from rota.errors import InvalidInput
from rota.suggest import find_nearest
from rota.wire.validation_error import make_validation_error


def decode_query(endpoint: Endpoint, raw_query: QueryParams) -> Any:
    query: dict[str, Any] = {}
    for name in raw_query:
        values = raw_query.getlist(name)
        if name not in endpoint.query_parameters:
            raise _unknown_parameter(name, endpoint.query_parameters).at_path(f".{name}")
        if name not in endpoint.repeatable_parameters and len(values) > 1:
            raise InvalidInput(f"{name} cannot be repeated; send it once").at_path(f".{name}")
        if values[0].lower() == "null" and name not in endpoint.text_parameters | endpoint.repeatable_parameters:
            # msgspec would take the text for None. A query leaves a parameter out instead.
            raise InvalidInput(f"{name} cannot be null; leave it out instead").at_path(f".{name}")
        refuse_in_texts({name: "".join(values)})
        query[name] = values if name in endpoint.repeatable_parameters else values[0]
    return _convert_query(endpoint, query)


def _unknown_parameter(name: str, known: Sequence[str]) -> InvalidInput:
    near = find_nearest(name, known)
    if near is not None:
        hint = f"did you mean {near}?"
    else:
        hint = f"known parameters: {', '.join(known)}" if known else "this endpoint takes none"
    return InvalidInput(f"unknown query parameter {name!r}; {hint}")


@cache
def empty_query(endpoint: Endpoint) -> Any:
    """Return the query of a request without parameters."""
    return _convert_query(endpoint, {})


def _convert_query(endpoint: Endpoint, values: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(values, type=endpoint.query_type, strict=False)
    except msgspec.ValidationError as error:
        raise make_validation_error("the query", error) from None


def decode_body(endpoint: Endpoint, raw_body: bytes) -> Any:
    if endpoint.body_type is NoneType or (not raw_body and endpoint.is_body_optional):
        return None
    if not raw_body or raw_body.isspace():
        raise InvalidInput("the request body is empty; send a JSON object")
    try:
        body = endpoint.body_decoder(raw_body)
        refuse_duplicate_keys(raw_body)
        if not endpoint.has_free_form_body:
            refuse_in_body(raw_body)
        return body
    except msgspec.ValidationError as error:
        raise make_validation_error("the request body", error, value=invalid_body.decode_or_none(raw_body)) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:  # UnicodeDecodeError: a string is not UTF-8
        raise invalid_body.find_lone_surrogate(raw_body) or make_validation_error("the request body", error) from None
    except RecursionError:
        raise invalid_body.make_too_deep_error(raw_body) from None
