"""The whole document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota import __version__
from rota.api.endpoint import Endpoint
from rota.api.openapi.operation import KEY, REPLAYED, operation
from rota.api.openapi.refusal import HEADERS, response, responses_of
from rota.api.openapi.schema import Schemas
from rota.api.openapi.tag import TAGS, tag_of
from rota.errors import RotaError
from rota.wire.problem import meanings

_ABOUT = """Rota is a durable, explainable scheduler for AI agents, LLM pipelines and any other command.

It listens on the socket `rota.sock` in its home, which is trusted by its file mode, and on TCP, where each request
needs the home's token. Both speak the same HTTP.

- Times are RFC 3339 in UTC, durations are written `300ms`, `1.5s`, `2m30s`.
- A refusal is a problem by RFC 9457; `GET /problems` explains each kind.
- Lists come in pages: `next` of one is the `cursor` of the one after.
- Unknown fields of a body and unknown names in a query are refused. Answers may get new fields: pass over what you do
  not know."""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    schemas = Schemas(endpoints)
    listed = sorted(endpoints, key=_place)
    paths: dict[str, dict[str, Any]] = {}
    refusals: dict[str, list[type[RotaError]]] = {}
    for endpoint in listed:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation(endpoint, schemas)
        refusals |= dict(responses_of(endpoint).values())
    tags = {tag for path in paths.values() for one in path.values() for tag in one["tags"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rota",
            "version": __version__,
            "summary": "A durable, explainable scheduler for AI agents' work.",
            "description": _ABOUT,
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "Where this document comes from."}],
        "security": [{"token": []}, {"key": []}],
        "tags": [{"name": tag.name, "description": tag.description} for tag in TAGS if tag.name in tags],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {name: response(kinds) for name, kinds in sorted(refusals.items())},
            "parameters": {"Idempotency-Key": KEY},
            "headers": {**HEADERS, "Idempotent-Replayed": REPLAYED},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The home's token, on TCP; `rota token` shows it. On the socket none is needed.",
                },
                "key": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-API-Key",
                    "description": "The same token, for clients that cannot send the other header.",
                },
            },
        },
    }


def _place(endpoint: Endpoint) -> tuple[int, str, int]:
    """By tag, then path: where a module's endpoints stand in the code is nobody's business."""
    return TAGS.index(tag_of(endpoint.path)), endpoint.path, _METHODS.index(endpoint.method)


def problem_rows() -> str:
    """The table of docs/problems.md."""
    return "".join(
        f"| `{one.code}` | {one.status} | {one.exit_code} | {one.title} | {one.meaning} | {one.remedy} |\n"
        for one in meanings()
    )


def written(document: dict[str, Any]) -> str:
    """As docs/openapi.json has it: for people who read what has changed."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
