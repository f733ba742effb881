"""The OpenAPI 3.1 document, made from the endpoints.

Schemas come from the same types that decode requests and encode answers; what an endpoint is for comes from its
handler's docstring. `docs/openapi.json` is this document as of the last change, so that a change of the API is seen.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec

from rota import __version__
from rota.api.endpoint import Endpoint
from rota.errors import BY_CODE

_PLACES: Mapping[str, Mapping[str, Any]] = {
    "job": {"type": "string", "pattern": "^job-[1-9][0-9]{0,17}$", "example": "job-24"},
    "run": {"type": "string", "pattern": "^(run|job)-[1-9][0-9]{0,17}$", "example": "run-24"},
}
"""What may stand in a path; a place that is not here is a name."""
_NAME: Mapping[str, Any] = {"type": "string", "minLength": 1}
_ANY_REFUSAL = (500, 503)
_ABOUT = """Rota is a durable, explainable scheduler for AI agents, LLM pipelines and any other command."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, by RFC 9457. `/problems` explains each type."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    """The last part of `type`."""
    path: str | msgspec.UnsetType = msgspec.UNSET
    """Where in the request the trouble is: `$.jobs[3].locks[0]`."""


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    kinds = _kinds(endpoints)
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = {_key(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema_of, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {"schemas": components},
    }


def _key(kind: Any) -> str:
    return repr(kind)


def _kinds(endpoints: Sequence[Endpoint]) -> list[Any]:
    found: dict[str, Any] = {_key(Problem): Problem}
    for endpoint in endpoints:
        for kind in (endpoint.asks, endpoint.takes, endpoint.gives, *endpoint.or_gives.values()):
            if kind not in (None, NoneType):
                found[_key(kind)] = kind
    return list(found.values())


def _operation(endpoint: Endpoint, schema_of: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    text = inspect.cleandoc(endpoint.handle.__doc__ or "")
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.module],
        "summary": text.partition(". ")[0].partition(".\n")[0].removesuffix(".").replace("\n", " "),
        "description": text,
        "parameters": _parameters(endpoint, schema_of, components),
        "responses": _responses(endpoint, schema_of),
    }
    if endpoint.takes is not NoneType:
        content: dict[str, Any] = {"schema": schema_of[_key(endpoint.takes)]}
        if endpoint.sends is not msgspec.UNSET:
            content["example"] = endpoint.sends
        operation["requestBody"] = {
            "required": not endpoint.may_be_empty, "content": {"application/json": content},
        }  # fmt: skip
    if endpoint.is_deprecated:
        operation["deprecated"] = True
    return operation


def _parameters(
    endpoint: Endpoint, schema_of: Mapping[str, Any], components: Mapping[str, Any]
) -> list[dict[str, Any]]:  # fmt: skip
    places = [
        {"name": name, "in": "path", "required": True, "schema": dict(_PLACES.get(name, _NAME))}
        for name in endpoint.places
    ]
    asked = components[schema_of[_key(endpoint.asks)]["$ref"].rpartition("/")[2]].get("properties", {})
    queries = []
    for name, schema in asked.items():
        said = {key: value for key, value in schema.items() if key != "description"}
        queries.append({"name": name, "in": "query", "schema": said, "description": schema.get("description", "")})
    keys = []
    if endpoint.is_keyed:
        keys.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "With the same key and the same request, the answer of the first time.",
            }
        )
    return [*places, *queries, *keys]


def _responses(endpoint: Endpoint, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for status in endpoint.statuses:
        if endpoint.gives is None:
            said[str(status)] = {"description": "As asked.", "content": {endpoint.media or "*/*": {}}}
            continue
        schema = schema_of[_key(endpoint.gives)]
        if status in endpoint.or_gives:
            schema = {"anyOf": [schema, schema_of[_key(endpoint.or_gives[status])]]}
        content: dict[str, Any] = {"schema": schema}
        if endpoint.shows is not msgspec.UNSET and status == endpoint.statuses[0]:
            content["example"] = endpoint.shows
        said[str(status)] = {"description": "As asked.", "content": {"application/json": content}}
    for status in sorted({*_ANY_REFUSAL, *endpoint.refuses, *_implied(endpoint)}):
        content = {"application/problem+json": {"schema": schema_of[_key(Problem)]}}
        said[str(status)] = {"description": _meaning(status), "content": content}
    return said


def _implied(endpoint: Endpoint) -> list[int]:
    """Refusals that follow from what an endpoint takes."""
    takes_something = endpoint.places or endpoint.known or endpoint.takes is not NoneType
    return [
        *((404,) if endpoint.places else ()),
        *((422,) if takes_something else ()),
        *((409, 422, 507) if endpoint.is_keyed else ()),
        *((507,) if endpoint.method != "GET" else ()),
    ]


def _meaning(status: int) -> str:
    said = [kind.__doc__ or "" for kind in BY_CODE.values() if kind.http_status == status and kind.code != "error"]
    return " ".join(said) or "Something went wrong."
