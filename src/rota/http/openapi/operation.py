"""Operation of an endpoint: its tag, parameters, body and responses, including the error responses that endpoints
share. An error is a `RotaError` class; its document in a response is a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from msgspec import UNSET

from rota.errors import (
    BY_CODE,
    BadRequest,
    ConfigError,
    HeadersTooLarge,
    IdempotencyKeyReused,
    MethodNotAllowed,
    MisdirectedRequest,
    OriginNotAllowed,
    QueueFull,
    RequestInProgress,
    RequestTimeout,
    ReservationTimeout,
    RotaError,
    TargetTooLong,
)
from rota.http.endpoint import JSON, RESERVATION_STREAM, Endpoint, Header
from rota.http.openapi.pages import DOCS_FILES
from rota.http.openapi.schema import COMMON_DESCRIPTIONS, Schemas, paragraphs, summary, to_example, without_null
from rota.http.problem_schemas import PROBLEM_MEDIA_TYPE, problem_type
from rota.kernel.artifacts import ARTIFACT_TYPES
from rota.naming import POOL_PATTERN

_SEGMENT = r"^[^/\u0000]+$"
_ID_NUMBER = "[1-9][0-9]{0,17}"
_COMMON_STATUSES = (500, 503)
_EXPLICIT_ERRORS = (IdempotencyKeyReused, RequestInProgress, ReservationTimeout, ConfigError)
"""Errors that a status in `Endpoint.errors` does not include. An endpoint names them, or they follow from
`accepts_key`."""
_TRANSPORT_ERRORS = (
    BadRequest,
    OriginNotAllowed,
    MethodNotAllowed,
    RequestTimeout,
    TargetTooLong,
    MisdirectedRequest,
    HeadersTooLarge,
)
"""Errors of requests that do not reach their endpoint."""
_TRANSPORT_ERROR_RESPONSE = "transport-error"
_RETRY_AFTER = "Seconds to wait before the next attempt."
HEADERS = {
    "Retry-After": {"description": _RETRY_AFTER, "schema": {"type": "integer", "minimum": 0}},
    "WWW-Authenticate": {"description": "Authentication scheme: `Bearer`.", "schema": {"type": "string"}},
    "Content-Range": {"description": "Size of the log in bytes, as `bytes */1024`.", "schema": {"type": "string"}},
}
_EXAMPLE_DETAILS = {
    "invalid-input": "the request body cannot be used: Expected `int`, got `str` - at `$.priority`",
    "not-found": "no such job: job-24; `rota list --all` lists all jobs",
    "conflict": "job-24 has already ended (COMPLETED); nothing was changed",
    "deferred": "the queue is full: 100 jobs are ready, and the hard limit is 100",
    "storage-full": "the disk that holds /srv/web/.rota/rota.db is full; nothing was stored: free some space and try"
    " again",
}
_EXAMPLE_FIELDS: dict[str, dict[str, Any]] = {
    "invalid-input": {"path": "$.priority"},
    "deferred": {
        "result": "deferred",
        "job": None,
        "warning": _EXAMPLE_DETAILS["deferred"],
        "depth": {"total": 100, "soft": 80, "hard": 100, "by_flow": {}},
    },
}
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
IDEMPOTENCY_KEY_PARAMETER = {
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
        operation["requestBody"] = {"required": not endpoint.is_body_optional, "content": {JSON: content}}
    operation["responses"] = _responses(endpoint, schemas)
    return operation


def _parameters(endpoint: Endpoint, schemas: Schemas) -> list[dict[str, Any]]:
    path_schemas = schemas.query_schemas(endpoint.path_type)
    path = [
        _parameter("path", name, path_schemas[name], is_required=True)
        if name in path_schemas
        else _path_parameter(name)
        for name in endpoint.path_parameters
    ]
    query = [
        _parameter("query", name, schema, is_required=name in endpoint.required_parameters)
        for name, schema in schemas.query_schemas(endpoint.query_type).items()
    ]
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


def _parameter(place: str, name: str, schema: dict[str, Any], *, is_required: bool) -> dict[str, Any]:
    value_schema = without_null(schema)
    parameter = {"name": name, "in": place, "required": is_required, "description": COMMON_DESCRIPTIONS.get(name, "")}
    for key in ("description", "deprecated", "example"):
        if key in value_schema:
            parameter[key] = value_schema.pop(key)
    if place == "path" and "examples" in value_schema:
        parameter["example"] = value_schema.pop("examples")[0]
    return {**parameter, "schema": value_schema}


def _content(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return {"schema": schema, **({} if example is UNSET else {"example": to_example(example)})}


def _responses(endpoint: Endpoint, schemas: Schemas) -> dict[str, Any]:
    responses = {str(status): _response(endpoint, status, schemas) for status in endpoint.statuses}
    for status, (name, _) in shared_error_responses(endpoint).items():
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
        response["content"] = {JSON: _content(schema, example)}
    for media in (endpoint.media,) if isinstance(endpoint.media, str) else endpoint.media or ():
        raw_example = UNSET if endpoint.response_type is not None else example
        response.setdefault("content", {})[media] = _content(_raw_schema(media), raw_example)
    return response


def _raw_schema(media: str) -> dict[str, Any]:
    """Return the schema of a body that is not JSON. It is empty for server-sent events, because OpenAPI 3.1 cannot
    describe a single message of a stream."""
    is_text = (media.startswith("text/") and media != "text/event-stream") or media == RESERVATION_STREAM
    return {"type": "string"} if is_text else {}


class Tag(NamedTuple):
    name: str
    description: str
    prefixes: Sequence[str]
    """Prefixes of the paths that have the tag."""


TAGS: Sequence[Tag] = (
    Tag("jobs", "Submit, list, change, cancel and rewind jobs.", ("/api/jobs",)),
    Tag("runs", "Executions of jobs.", ("/api/job-runs",)),
    Tag(
        "queue",
        "Waiting jobs: their order, dependencies, locks and artifacts.",
        ("/api/queue", "/api/graph", "/api/locks", "/api/artifacts"),
    ),
    Tag("work", "Work items of trackers and lists.", ("/api/work",)),
    Tag("groups", "Jobs that belong together.", ("/api/job-groups",)),
    Tag("templates", "Named defaults for jobs of one kind.", ("/api/job-templates",)),
    Tag("schedules", "Cron expressions, and the jobs that they create.", ("/api/schedules",)),
    Tag(
        "webhooks",
        "Endpoints that receive messages about the ends of jobs, and the deliveries to them.",
        ("/api/webhooks", "/api/webhook-deliveries"),
    ),
    Tag("direct", "Commands that run ahead of the queue.", ("/api/direct", "/api/reservations")),
    Tag(
        "scheduler",
        "The scheduler itself: status, pauses, pools, breakers and shutdown.",
        ("/api/scheduler", "/api/pools", "/api/breakers", "/api/display"),
    ),
    Tag("events", "Stream and history of events.", ("/api/events",)),
    Tag("health", "Health, readiness and metrics for monitoring.", ("/health", "/ready", "/metrics")),
    Tag("about", "Documentation of the API.", ("/openapi.json", "/docs", "/problems")),
    Tag("legacy", "Deprecated endpoints for existing clients. Each names its replacement.", ("/jobs", "/scheduler")),
)
"""A path has the first tag with a matching prefix."""


def tag_of(path: str) -> Tag:
    for tag in TAGS:
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in tag.prefixes):
            return tag
    raise ValueError(f"{path} has no tag; add a prefix to a tag in {__name__}")


class PathParameter(NamedTuple):
    description: str
    example: str
    pattern: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "minLength": 1, **({} if self.pattern is None else {"pattern": self.pattern})}


def _id_parameter(noun: str) -> PathParameter:
    return PathParameter(f"Id of the {noun}.", f"{noun}-24", f"^{noun}-{_ID_NUMBER}$")


PATH_PARAMETERS: Mapping[str, PathParameter] = {
    "job": _id_parameter("job"),
    "run": _id_parameter("run"),
    "run_or_job": PathParameter(
        "Id of a run, or of a job, because a job that never ran has no run.", "run-24", f"^(run|job)-{_ID_NUMBER}$"
    ),
    "group": PathParameter("Id or name of the group.", "group-3", _SEGMENT),
    "template": PathParameter("Id or name of the template.", "agent", _SEGMENT),
    "schedule": PathParameter("Id or name of the schedule.", "nightly", _SEGMENT),
    "webhook": _id_parameter("webhook"),
    "delivery": _id_parameter("delivery"),
    "reservation": _id_parameter("reservation"),
    "stream": PathParameter("Stream to read.", "stdout", choices=("stdout", "stderr")),
    "name": PathParameter(
        "Name of the pool: `global`, or a kind and a name. Its slash need not be escaped.", "flow/review", POOL_PATTERN
    ),
    "key": PathParameter(
        "Key of the breaker: `type/` or `target/` and a name, whose slash need not be escaped. Or the id of a job.",
        "type/story",
        r"^[^\u0000]+$",
    ),
    "artifact": PathParameter(
        "Artifact, as `type:name`. Its slashes need not be escaped.",
        "file:plan.md",
        f"^({'|'.join(ARTIFACT_TYPES)}):[^\\u0000]+$",
    ),
    "job_id": PathParameter("Id of the job, or only its number.", "job-24", f"^(job-)?{_ID_NUMBER}$"),
    "batch_id": PathParameter("Id of the batch, or only its number.", "group-3", f"^(group-)?{_ID_NUMBER}$"),
    "type": PathParameter("Name of a template, or a type that only one template creates jobs of.", "story", _SEGMENT),
    "file": PathParameter("Name of the file.", "docs.css", choices=DOCS_FILES),
    "code": PathParameter("Code of the problem.", "not-found", choices=tuple(sorted(BY_CODE))),
}


def _possible_errors(endpoint: Endpoint) -> list[type[RotaError]]:
    """Return all errors of an endpoint."""
    errors: list[type[RotaError]] = []
    for error_or_status in (*_COMMON_STATUSES, *_implied_errors(endpoint), *endpoint.errors):
        errors += [error_or_status] if isinstance(error_or_status, type) else _errors_with_status(error_or_status)
    return list(dict.fromkeys(errors))


def _errors_with_status(status: int) -> list[type[RotaError]]:
    return [error for error in BY_CODE.values() if error.http_status == status and error not in _EXPLICIT_ERRORS]


def _implied_errors(endpoint: Endpoint) -> Iterator[int | type[RotaError]]:
    """Yield the errors, as classes or statuses, that follow from authentication, body, path parameters, idempotency key
    and method."""
    if not endpoint.is_public:
        yield 401
    if endpoint.body_type is not NoneType:
        yield 413
        yield 415
    if endpoint.path_parameters:
        yield 404
    yield 422  # an invalid query
    if endpoint.accepts_key:
        yield RequestInProgress
        yield IdempotencyKeyReused
    if endpoint.method != "GET":
        yield 507


def shared_error_responses(endpoint: Endpoint) -> dict[str, tuple[str, list[type[RotaError]]]]:
    """Return the name and the errors of each shared response, by status."""
    errors = sorted(_possible_errors(endpoint), key=lambda error: (error.http_status, error.code))
    by_status: dict[str, list[type[RotaError]]] = {}
    for error in errors:
        by_status.setdefault(str(error.http_status), []).append(error)
    return {
        **{status: (_error_response_name(errors), errors) for status, errors in by_status.items()},
        "default": (_TRANSPORT_ERROR_RESPONSE, list(_TRANSPORT_ERRORS)),
    }


def _error_response_name(errors: Sequence[type[RotaError]]) -> str:
    """Return the name of a response in `components`."""
    return "any-error" if RotaError in errors else "-or-".join(error.code for error in errors)


def build_error_response(errors: Sequence[type[RotaError]]) -> dict[str, Any]:
    statuses = sorted({error.http_status for error in errors})
    component = "DeferredProblem" if errors[0] is QueueFull else "Problem"
    properties = {"status": {"enum": statuses}, "code": {"enum": [error.code for error in errors]}}
    schema = {"allOf": [{"$ref": f"#/components/schemas/{component}"}, {"properties": properties}]}
    response: dict[str, Any] = {
        "description": " ".join((error.__doc__ or "").partition("\n")[0] for error in errors),
        "content": {
            PROBLEM_MEDIA_TYPE: {
                "schema": schema,
                "examples": {error.code: _problem_example(error) for error in errors},
            }
        },
    }
    headers = ["Retry-After"] if {429, 503} & {*statuses} or RequestInProgress in errors else []
    headers += ["Content-Range"] if 416 in statuses else []
    headers += ["WWW-Authenticate"] if 401 in statuses else []
    if headers:
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return response


def _problem_example(error: type[RotaError]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "type": problem_type(error.code),
        "title": error.title,
        "status": error.http_status,
        "detail": _EXAMPLE_DETAILS.get(error.code, error.__doc__ or error.title),
        "code": error.code,
        **_EXAMPLE_FIELDS.get(error.code, {}),
    }
    return {"summary": error.title, "value": value}
