"""The complete OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota import __version__
from rota.errors import RotaError
from rota.http.endpoint import Endpoint
from rota.http.openapi.operation import (
    HEADERS,
    IDEMPOTENCY_KEY_PARAMETER,
    REPLAYED_HEADER,
    TAGS,
    build_error_response,
    build_operation,
    shared_error_responses,
    tag_of,
)
from rota.http.openapi.schema import Schemas
from rota.http.problem_schemas import list_problem_kinds

_DESCRIPTION = """Rota is a durable, explainable scheduler for AI agents, LLM pipelines and any other command.

It listens on the socket `rota.sock` in its home, which is protected by its file mode, and on TCP, where each request
needs the token of the home. Both provide the same HTTP API.

- Times are in UTC in the format of RFC 3339. Durations are written as `300ms`, `1.5s` or `2m30s`.
- A refusal is a problem document (RFC 9457). `GET /problems` explains each kind.
- Lists have pages: the `next` of a page is the `cursor` of the following page.
- Unknown fields of a body and unknown query parameters are refused. Responses can get new fields, so a client ignores
  unknown ones."""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def build_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    schemas = Schemas(endpoints)
    listed = sorted(endpoints, key=_sort_key)
    paths: dict[str, dict[str, Any]] = {}
    error_responses: dict[str, list[type[RotaError]]] = {}
    for endpoint in listed:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = build_operation(endpoint, schemas)
        error_responses |= dict(shared_error_responses(endpoint).values())
    tags = {tag for operations in paths.values() for operation in operations.values() for tag in operation["tags"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "version": __version__,
            "summary": "A durable, explainable scheduler for AI agents' work.",
            "description": _DESCRIPTION,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "Server of this document."}],
        "security": [{"token": []}, {"key": []}],
        "tags": [{"name": tag.name, "description": tag.description} for tag in TAGS if tag.name in tags],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {name: build_error_response(errors) for name, errors in sorted(error_responses.items())},
            "parameters": {"Idempotency-Key": IDEMPOTENCY_KEY_PARAMETER},
            "headers": {**HEADERS, "Idempotent-Replayed": REPLAYED_HEADER},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Token of the home, required over TCP; `rota token` prints it.",
                },
                "key": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-API-Key",
                    "description": "The same token, for clients that cannot send the `Authorization` header.",
                },
            },
        },
    }


def _sort_key(endpoint: Endpoint) -> tuple[int, str, int]:
    """Return the order by tag and path, so that the document does not depend on the order of the code."""
    return TAGS.index(tag_of(endpoint.path)), endpoint.path, _METHODS.index(endpoint.method)


def render_problem_rows() -> str:
    """Render the table of docs/reference/problems.md."""
    return "".join(
        f"| `{kind.code}` | {kind.status} | {kind.exit_code} | {kind.title} | {kind.meaning} | {kind.remedy} |\n"
        for kind in list_problem_kinds()
    )


def render_document(document: dict[str, Any]) -> str:
    """Render docs/openapi.json, indented so that its diff is readable."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
