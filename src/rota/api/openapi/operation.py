"""One endpoint as an operation: what can be sent to it, and what it answers."""

from __future__ import annotations

from types import NoneType
from typing import Any

from msgspec import UNSET

from rota.api.attendance import MEDIA as STREAM
from rota.api.endpoint import Endpoint, Header
from rota.api.openapi.place import PLACES, Place
from rota.api.openapi.prose import EVERYWHERE, paragraphs, summary
from rota.api.openapi.refusal import responses_of
from rota.api.openapi.schema import Schemas, plain, without_null
from rota.api.openapi.tag import tag_of

_JSON = "application/json"
_MEANS = {
    200: "As asked.",
    201: "It was made.",
    202: "It was taken up.",
    204: "It is done.",
    206: "A part of it.",
    304: "It is what you have.",
}
_WITHOUT_CONTENT = (204, 304)
REPLAYED = {
    "description": "There if this is what the first request with this key was answered.",
    "schema": {"type": "string", "enum": ["true"]},
}
KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Made up by you, for this request alone. With the same key and the same request the answer is that"
    " of the first time, to the byte, and nothing is done twice, also after a restart.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    "example": "6f1f0a3e-7c0b-4f6e-9d39-6f2f5a2b8f10",
}


def operation(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    text = paragraphs(endpoint.handle.__doc__)
    said: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [tag_of(endpoint.path).name],
        "summary": summary(text),
        "description": text,
    }
    if endpoint.is_deprecated:
        said["deprecated"] = True
    if endpoint.is_public:
        said["security"] = []
    if parameters := _parameters(endpoint, schemas):
        said["parameters"] = parameters
    if endpoint.takes is not NoneType:
        content = _content(schemas.of(endpoint.form), endpoint.sends)
        said["requestBody"] = {"required": not endpoint.may_be_empty, "content": {_JSON: content}}
    said["responses"] = _responses(endpoint, schemas)
    return said


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[dict[str, Any]]:
    places = [_place(name) for name in endpoint.places]
    asked = [_asked(name, schema) for name, schema in schemas.query(endpoint.asks).items()]
    heard = [_heard(name, header) for name, header in endpoint.hears.items()]
    key = [{"$ref": "#/components/parameters/Idempotency-Key"}] if endpoint.is_keyed else []
    return [*places, *asked, *heard, *key]


def _place(name: str) -> dict[str, Any]:
    place = PLACES.get(name, Place("", name))
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": place.description,
        "schema": place.schema,
        "example": place.example,
    }


def _heard(name: str, header: Header) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": {"type": "string", "pattern": header.pattern},
        "example": header.example,
    }


def _asked(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    said = without_null(schema)
    parameter = {"name": name, "in": "query", "required": False, "description": EVERYWHERE.get(name, "")}
    for key in ("description", "deprecated", "example"):
        if key in said:
            parameter[key] = said.pop(key)
    return {**parameter, "schema": said}


def _content(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"schema": schema, **({} if example is UNSET else {"example": plain(example)})}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    said = {str(status): _answer(endpoint, status, schemas) for status in endpoint.statuses}
    for status, (name, _) in responses_of(endpoint).items():
        said[status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(said.items()))


def _answer(endpoint: Endpoint, status: int, schemas: Schemas) -> dict[str, Any]:
    said: dict[str, Any] = {"description": _MEANS.get(status, "As asked.")}
    headers = {name: {"description": words, "schema": {"type": "string"}} for name, words in endpoint.tells.items()}
    if endpoint.is_keyed:
        headers["Idempotent-Replayed"] = {"$ref": "#/components/headers/Idempotent-Replayed"}
    if headers:
        said["headers"] = headers
    if status in _WITHOUT_CONTENT:
        return said
    example = endpoint.also_shows.get(status, endpoint.shows)
    if endpoint.gives is not None:
        schema = schemas.of(endpoint.gives)
        if status in endpoint.or_gives:
            schema = {"anyOf": [schema, schemas.of(endpoint.or_gives[status])]}
        said["content"] = {_JSON: _content(schema, example)}
    for media in (endpoint.media,) if isinstance(endpoint.media, str) else endpoint.media or ():
        shown = UNSET if endpoint.gives is not None else example
        said.setdefault("content", {})[media] = _content(_raw(media), shown)
    return said


def _raw(media: str) -> dict[str, Any]:
    """Of messages nothing: OpenAPI 3.1 has no way to say what one of a stream is."""
    is_text = (media.startswith("text/") and media != "text/event-stream") or media == STREAM
    return {"type": "string"} if is_text else {}
