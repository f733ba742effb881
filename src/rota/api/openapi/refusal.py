"""Refusals of an endpoint, as responses that endpoints share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from rota.api.endpoint import Endpoint
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
from rota.wire.problem import PROBLEM_MEDIA_TYPE, problem_type

_COMMON_STATUSES = (500, 503)
_EXPLICIT_ERRORS = (IdempotencyKeyReused, RequestInProgress, ReservationTimeout, ConfigError)
"""Refusals that an endpoint has only if it names them. Their status alone does not imply them."""
_TRANSPORT_ERRORS = (
    BadRequest,
    OriginNotAllowed,
    MethodNotAllowed,
    RequestTimeout,
    TargetTooLong,
    MisdirectedRequest,
    HeadersTooLarge,
)
"""Refusals of requests that do not reach their endpoint."""
_TRANSPORT_RESPONSE = "transport-error"
_RETRY_AFTER = "Seconds to wait before the next attempt."
HEADERS = {
    "Retry-After": {"description": _RETRY_AFTER, "schema": {"type": "integer", "minimum": 0}},
    "WWW-Authenticate": {"description": "Authentication scheme: `Bearer`.", "schema": {"type": "string"}},
    "Content-Range": {"description": "Size of the log in bytes, as `bytes */1024`.", "schema": {"type": "string"}},
}


def possible_errors(endpoint: Endpoint) -> list[type[RotaError]]:
    """Return all refusals of an endpoint."""
    kinds: list[type[RotaError]] = []
    for kind_or_status in (*_COMMON_STATUSES, *_implied_errors(endpoint), *endpoint.errors):
        kinds += [kind_or_status] if isinstance(kind_or_status, type) else _errors_with_status(kind_or_status)
    return list(dict.fromkeys(kinds))


def _errors_with_status(status: int) -> list[type[RotaError]]:
    return [kind for kind in BY_CODE.values() if kind.http_status == status and kind not in _EXPLICIT_ERRORS]


def _implied_errors(endpoint: Endpoint) -> Iterator[int | type[RotaError]]:
    """Yield the refusals that follow from the request type of an endpoint."""
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


def shared_responses(endpoint: Endpoint) -> dict[str, tuple[str, list[type[RotaError]]]]:
    """Return the name and the problems of each shared response, by status."""
    kinds = sorted(possible_errors(endpoint), key=lambda kind: (kind.http_status, kind.code))
    by_status: dict[str, list[type[RotaError]]] = {}
    for kind in kinds:
        by_status.setdefault(str(kind.http_status), []).append(kind)
    return {
        **{status: (_response_name(kinds), kinds) for status, kinds in by_status.items()},
        "default": (_TRANSPORT_RESPONSE, list(_TRANSPORT_ERRORS)),
    }


def _response_name(kinds: Sequence[type[RotaError]]) -> str:
    """Return the name of a response in `components`."""
    return "any-error" if RotaError in kinds else "-or-".join(kind.code for kind in kinds)


def build_response(kinds: Sequence[type[RotaError]]) -> dict[str, Any]:
    statuses = sorted({kind.http_status for kind in kinds})
    component = "DeferredProblem" if kinds[0] is QueueFull else "Problem"
    properties = {"status": {"enum": statuses}, "code": {"enum": [kind.code for kind in kinds]}}
    schema = {"allOf": [{"$ref": f"#/components/schemas/{component}"}, {"properties": properties}]}
    response: dict[str, Any] = {
        "description": " ".join((kind.__doc__ or "").partition("\n")[0] for kind in kinds),
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schema, "examples": {kind.code: _example(kind) for kind in kinds}}},
    }
    headers = ["Retry-After"] if {429, 503} & {*statuses} or RequestInProgress in kinds else []
    headers += ["Content-Range"] if 416 in statuses else []
    headers += ["WWW-Authenticate"] if 401 in statuses else []
    if headers:
        response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return response


def _example(kind: type[RotaError]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "type": problem_type(kind.code),
        "title": kind.title,
        "status": kind.http_status,
        "detail": _DETAILS.get(kind.code, kind.__doc__ or kind.title),
        "code": kind.code,
        **_EXTRA_FIELDS.get(kind.code, {}),
    }
    return {"summary": kind.title, "value": value}


_DETAILS = {
    "invalid-input": "the request body cannot be used: Expected `int`, got `str` - at `$.priority`",
    "not-found": "no such job: job-24; `rota list --all` lists all jobs",
    "conflict": "job-24 has already ended (COMPLETED); nothing was changed",
    "deferred": "the queue is full: 100 jobs are ready, and the hard limit is 100",
    "storage-full": "the disk that holds /srv/web/.rota/rota.db is full; nothing was stored: free some space and try"
    " again",
}
_EXTRA_FIELDS: dict[str, dict[str, Any]] = {
    "invalid-input": {"path": "$.priority"},
    "deferred": {
        "result": "deferred",
        "job": None,
        "warning": _DETAILS["deferred"],
        "depth": {"total": 100, "soft": 80, "hard": 100, "by_flow": {}},
    },
}
