"""Check every response that a test receives against the OpenAPI document of the scheduler.

The document allows undeclared fields in responses, for later versions. This check does not: an undeclared field is an
error.
"""

from __future__ import annotations

import json
from functools import cache
from http.client import HTTPMessage
from typing import Any

import jsonschema_rs

from rota.http.openapi.document import build_document
from rota.http.problem_schemas import PROBLEM_MEDIA_TYPE
from rota.http.router import Router
from rota.routes import ENDPOINTS

_JSON = ("application/json", PROBLEM_MEDIA_TYPE)


@cache
def _router() -> Router:
    return Router(ENDPOINTS)


@cache
def _document() -> dict[str, Any]:
    document = build_document(ENDPOINTS)
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return document


def check_response(method: str, target: str, status: int, headers: HTTPMessage, body: bytes) -> None:
    """Check a response. A request to an endpoint outside the document is not checked."""
    assert status not in (429, 503) or "retry-after" in headers, f"{method} {target}: {status} without Retry-After"
    path = target.partition("?")[0]
    match = _router().find(path)
    endpoint = None if match is None else match.endpoints.get(method)
    if endpoint is None:
        return
    request = f"{method} {endpoint.path}"
    responses = _document()["paths"][endpoint.path][method.lower()]["responses"]
    key = str(status) if str(status) in responses else "default"
    assert status >= 400 or key != "default", f"{request} returned the undocumented status {status}"
    media = headers.get("content-type", "").partition(";")[0]
    if media not in _JSON:
        return
    validator = _validator(endpoint.path, method.lower(), key, media)
    assert validator is not None, f"{request} returned {status} as {media}, an undocumented media type"
    errors = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(json.loads(body))]
    assert not errors, f"{request} returned {status} with a body that violates its schema: {errors[:5]}"


def check_json_output(verb: str, output: Any) -> None:
    """Check the `--json` output of a command that prints a response of the API."""
    if verb in _COMPONENTS:
        errors = [
            f"{error.instance_path}: {error.message}"
            for error in _component_validator(_COMPONENTS[verb]).iter_errors(output)
        ]
        assert not errors, f"`rota --json {verb}` violates the schema: {errors[:5]}"


_COMPONENTS = {
    "show": "Job",
    "why": "WaitExplanation",
    "rewind": "RewindResult",
    "retry": "RetryResult",
    "tick": "TickResult",
}


@cache
def _component_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    schemas = _document()["components"]["schemas"]
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


@cache
def _validator(path: str, method: str, status: str, media: str) -> jsonschema_rs.Draft202012Validator | None:
    response = _document()["paths"][path][method]["responses"][status]
    components = _document()["components"]
    if "$ref" in response:
        response = components["responses"][response["$ref"].rpartition("/")[2]]
    if media not in response.get("content", {}):
        return None
    schema = {**response["content"][media]["schema"], "components": {"schemas": components["schemas"]}}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
