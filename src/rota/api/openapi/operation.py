"""Operation of an endpoint: its parameters, body and responses."""

from __future__ import annotations

from types import NoneType
from typing import Any

from msgspec import UNSET

from rota.api.endpoint import Endpoint, Header
from rota.api.openapi.descriptions import COMMON_DESCRIPTIONS, paragraphs, summary
from rota.api.openapi.path_parameter import PATH_PARAMETERS, PathParameter
from rota.api.openapi.refusal import shared_responses
from rota.api.openapi.schema import Schemas, to_example, without_null
from rota.api.openapi.tag import tag_of
from rota.api.reservation_stream import MEDIA as STREAM

_JSON = "application/json"
_STATUS_DESCRIPTIONS = {
    200: "Success.",
    201: "Created.",
    202: "Accepted.",
    204: "Done, without content.",
    206: "Part of the content.",
    304: "Not changed.",
}
_STATUSES_WITHOUT_CONTENT = (204, 304)
REPLAYED_HEADER = {
    "description": "Present if this is the stored response to an earlier request with the key.",
    "schema": {"type": "string", "enum": ["true"]},
}
KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Key that the client creates for this request, such as a UUID. A repeated request with the key gets"
    " the stored response, byte for byte, and nothing is done twice, even after a restart.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "example": "6f1f0a3e-7c0b-4f6e-9d39-6f2f5a2b8f10",
}


def build_operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    text = paragraphs(endpoint.handler.__doc__)
    operation: dict[str, Any] = {
        "operationId": endpoint.operation_id,
        "tags": [tag_of(endpoint.path).name],
        "summary": summary(text),
        "description": text,
    }
    if endpoint.is_deprecated:
        operation["deprecated"] = True
    if endpoint.is_public:
        operation["security"] = []
    if parameters := _parameters(endpoint, schemas):
        operation["parameters"] = parameters
    if endpoint.body_type is not NoneType:
        content = _content(schemas.schema_of(endpoint.required_body_type), endpoint.request_example)
        operation["requestBody"] = {"required": not endpoint.is_body_optional, "content": {_JSON: content}}
    operation["responses"] = _responses(endpoint, schemas)
    return operation


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[dict[str, Any]]:
    path = [_path_parameter(name) for name in endpoint.path_parameters]
    query = [_query_parameter(name, schema) for name, schema in schemas.query_schemas(endpoint.query_type).items()]
    headers = [_header_parameter(name, header) for name, header in endpoint.request_headers.items()]
    key = [{"$ref": "#/components/parameters/Idempotency-Key"}] if endpoint.accepts_key else []
    return [*path, *query, *headers, *key]


def _path_parameter(name: str) -> dict[str, Any]:
    parameter = PATH_PARAMETERS.get(name, PathParameter("", name))
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": parameter.description,
        "schema": parameter.schema,
        "example": parameter.example,
    }


def _header_parameter(name: str, header: Header) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": {"type": "string", "pattern": header.pattern},
        "example": header.example,
    }


def _query_parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    value_schema = without_null(schema)
    parameter = {"name": name, "in": "query", "required": False, "description": COMMON_DESCRIPTIONS.get(name, "")}
    for key in ("description", "deprecated", "example"):
        if key in value_schema:
            parameter[key] = value_schema.pop(key)
    return {**parameter, "schema": value_schema}


def _content(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"schema": schema, **({} if example is UNSET else {"example": to_example(example)})}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    responses = {str(status): _response(endpoint, status, schemas) for status in endpoint.statuses}
    for status, (name, _) in shared_responses(endpoint).items():
        responses[status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(responses.items()))


def _response(endpoint: Endpoint, status: int, schemas: Schemas) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _STATUS_DESCRIPTIONS.get(status, "Success.")}
    headers = {
        name: {"description": description, "schema": {"type": "string"}}
        for name, description in endpoint.response_headers.items()
    }
    if endpoint.accepts_key:
        headers["Idempotent-Replayed"] = {"$ref": "#/components/headers/Idempotent-Replayed"}
    if headers:
        response["headers"] = headers
    if status in _STATUSES_WITHOUT_CONTENT:
        return response
    example = endpoint.other_response_examples.get(status, endpoint.response_example)
    if endpoint.response_type is not None:
        schema = schemas.schema_of(endpoint.response_type)
        if status in endpoint.other_response_types:
            schema = {"anyOf": [schema, schemas.schema_of(endpoint.other_response_types[status])]}
        response["content"] = {_JSON: _content(schema, example)}
    for media in (endpoint.media,) if isinstance(endpoint.media, str) else endpoint.media or ():
        raw_example = UNSET if endpoint.response_type is not None else example
        response.setdefault("content", {})[media] = _content(_raw_schema(media), raw_example)
    return response


def _raw_schema(media: str) -> dict[str, Any]:
    """Return the schema of a body that is not JSON. It is empty for server-sent events, because OpenAPI 3.1 cannot
    describe a single message of a stream."""
    is_text = (media.startswith("text/") and media != "text/event-stream") or media == STREAM
    return {"type": "string"} if is_text else {}
