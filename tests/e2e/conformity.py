"""What the scheduler answers, held against its own OpenAPI document: every test that asks for something checks it.

The document lets answers have fields that it does not name, for versions to come. Here it does not: a field that nobody
has described is a fault.
"""

from __future__ import annotations

import json
from functools import cache
from http.client import HTTPMessage
from typing import Any

import jsonschema_rs

from rota.api.app import ENDPOINTS
from rota.api.openapi.document import document
from rota.api.router import Router
from rota.wire.problem import MEDIA

_JSON = ("application/json", MEDIA)


@cache
def _router() -> Router:
    return Router(ENDPOINTS)


@cache
def _document() -> dict[str, Any]:
    made = document(ENDPOINTS)
    for schema in made["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return made


def check(method: str, target: str, status: int, headers: HTTPMessage, body: bytes) -> None:
    """Nothing is said about what is not in the document."""
    assert status not in (429, 503) or "retry-after" in headers, f"{method} {target}: {status} without a Retry-After"
    path = target.partition("?")[0]
    found = _router().find(path)
    endpoint = None if found is None else found.endpoints.get(method)
    if endpoint is None:
        return
    asked = f"{method} {endpoint.path}"
    said = _document()["paths"][endpoint.path][method.lower()]["responses"]
    key = str(status) if str(status) in said else "default"
    assert status >= 400 or key != "default", f"{asked} answered {status}, which its document does not know"
    media = headers.get("content-type", "").partition(";")[0]
    if media not in _JSON:
        return
    validator = _validator(endpoint.path, method.lower(), key, media)
    assert validator is not None, f"{asked} answered {status} in {media}, which its document does not know"
    wrong = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(json.loads(body))]
    assert not wrong, f"{asked} answered {status} otherwise than its document says: {wrong[:5]}"


def check_said(verb: str, said: Any) -> None:
    """What a command says with `--json`, of verbs that say what the API answers."""
    if verb in _SAYS:
        wrong = [f"{error.instance_path}: {error.message}" for error in _form(_SAYS[verb]).iter_errors(said)]
        assert not wrong, f"`rota --json {verb}` says otherwise than the document: {wrong[:5]}"


_SAYS = {"show": "JobForm", "why": "WhyForm", "rewind": "RewindForm", "retry": "RetryForm", "tick": "TickForm"}


@cache
def _form(name: str) -> jsonschema_rs.Draft202012Validator:
    schemas = _document()["components"]["schemas"]
    whole = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


@cache
def _validator(path: str, method: str, status: str, media: str) -> jsonschema_rs.Draft202012Validator | None:
    answer = _document()["paths"][path][method]["responses"][status]
    components = _document()["components"]
    if "$ref" in answer:
        answer = components["responses"][answer["$ref"].rpartition("/")[2]]
    if media not in answer.get("content", {}):
        return None
    schema = {**answer["content"][media]["schema"], "components": {"schemas": components["schemas"]}}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
