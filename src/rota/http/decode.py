"""Decoders of queries and bodies by the types of an endpoint. An error has the path of the invalid value.

Two kinds of bodies are refused that the decoder accepts. Both checks are cheap for a valid body.

- Two equal keys in one object: a decoder silently keeps the last of them. A decoder that reports them is ten times
  slower, so the body is decoded and encoded again, and the strings of both texts are counted: a duplicate loses at
  least one, its key.
- NUL characters: no program can receive one as an argument, and PostgreSQL cannot store one. Params can have them: they
  are stored as JSON, which escapes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import NoneType
from typing import Any, NamedTuple

import msgspec
from starlette.datastructures import QueryParams

from rota.errors import InvalidInput, find_nearest
from rota.http.endpoint import Endpoint
from rota.schema_types import make_validation_error

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_ESCAPED_NUL = b"\\u0000"
"""NUL character in JSON, which always escapes it."""
_FREE_FORM_FIELDS = frozenset(("params", "set_params", "default_params", "set_default_params", "params_schema"))
"""Fields whose values are arbitrary JSON."""


class _Forbidden(NamedTuple):
    """Characters that no string may contain."""

    pattern: re.Pattern[str]
    message: str
    exempt_fields: Collection[str] = ()


_NUL = _Forbidden(re.compile("\0"), "a string contains a NUL character; remove it", _FREE_FORM_FIELDS)
_LONE_SURROGATE = _Forbidden(
    re.compile("[\ud800-\udfff]"),
    "a string contains half of a surrogate pair, such as \\ud800; remove it, or write both halves",
)


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
        _refuse_characters("".join(values), f".{name}", _NUL)
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
    except RecursionError:
        raise InvalidInput("the request body is nested too deep; make it flatter") from None
    except msgspec.ValidationError as error:
        raise make_validation_error("the request body", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # UnicodeDecodeError: a string is not UTF-8
        _refuse_lone_surrogates(raw_body)
        raise make_validation_error("the request body", error) from None
    if _ESCAPED_NUL in raw_body and not endpoint.has_free_form_body:
        _refuse_characters(_decoder.decode(raw_body), "", _NUL)
    return body


def _refuse_lone_surrogates(body: bytes) -> None:
    """Refuse half of a surrogate pair in a body that is valid JSON otherwise. The decoder's own message does not name
    the field, and may say that the body is truncated."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return
    _refuse_characters(value, "", _LONE_SURROGATE)


def refuse_duplicate_keys(body: bytes) -> None:
    """Refuse a body with two equal keys in one object. The body is valid JSON."""
    if _count_strings(body) != _count_strings(_encoder.encode(_decoder.decode(body))):
        json.loads(body, object_pairs_hook=_refuse_duplicate)


def _count_strings(text: bytes) -> int:
    """Return the number of unescaped quotes in a JSON text, which is twice the number of its strings."""
    if b"\\" not in text:
        return text.count(b'"')
    unescaped = text.replace(b"\\\\", b"")
    return unescaped.count(b'"') - unescaped.count(b'\\"')


def _refuse_duplicate(members: list[tuple[str, Any]]) -> None:
    known: set[str] = set()
    for key, _ in members:
        if key in known:
            raise InvalidInput(f"the key {key!r} occurs twice in one object; send it once")
        known.add(key)


def refuse_nul_in_path(path_values: Mapping[str, str]) -> None:
    for name, text in path_values.items():
        _refuse_characters(text, f".{name}", _NUL)


def _refuse_characters(value: object, path: str, forbidden: _Forbidden) -> None:
    """Refuse strings of a value that contain forbidden characters. The path of a key is that of its object."""
    if isinstance(value, str):
        if forbidden.pattern.search(value):
            raise InvalidInput(forbidden.message).at_path(path)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            _refuse_characters(item, f"{path}[{n}]", forbidden)
    elif isinstance(value, dict):
        for name, item in value.items():
            _refuse_characters(name, path, forbidden)
            if name not in forbidden.exempt_fields:
                _refuse_characters(item, f"{path}.{name}", forbidden)
