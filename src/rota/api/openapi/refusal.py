"""The refusals of an endpoint, as responses that endpoints share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

from rota.api.endpoint import Endpoint
from rota.errors import (
    BY_CODE,
    BadRequest,
    ConfigError,
    Deferred,
    ForeignOrigin,
    HeadersTooLarge,
    InFlight,
    KeyReused,
    MethodNotAllowed,
    Misdirected,
    RotaError,
    TargetTooLong,
    TooSlow,
    WaitOver,
)
from rota.wire.problem import MEDIA, type_of

_ANY = (500, 503)
_SPECIAL = (KeyReused, InFlight, WaitOver, ConfigError)
"""Refusals that an endpoint has only if that is said, not by their status alone."""
_DOOR = (BadRequest, ForeignOrigin, MethodNotAllowed, TooSlow, TargetTooLong, Misdirected, HeadersTooLarge)
"""Those of a request that does not get as far as to its endpoint."""
_DOOR_NAME = "at-the-door"
_RETRY_AFTER = "Seconds after which to ask again."
HEADERS = {
    "Retry-After": {"description": _RETRY_AFTER, "schema": {"type": "integer", "minimum": 0}},
    "WWW-Authenticate": {"description": "How to show who asks: `Bearer`.", "schema": {"type": "string"}},
    "Content-Range": {"description": "How many bytes there are, as `bytes */1024`.", "schema": {"type": "string"}},
}


def kinds_of(endpoint: Endpoint) -> list[type[RotaError]]:
    """All that it may say no with."""
    said: list[type[RotaError]] = []
    for refused in (*_ANY, *_implied(endpoint), *endpoint.refuses):
        said += [refused] if isinstance(refused, type) else _of_status(refused)
    return list(dict.fromkeys(said))


def _of_status(status: int) -> list[type[RotaError]]:
    return [kind for kind in BY_CODE.values() if kind.http_status == status and kind not in _SPECIAL]


def _implied(endpoint: Endpoint) -> Iterator[int | type[RotaError]]:
    """Refusals that follow from what an endpoint takes."""
    if not endpoint.is_public:
        yield 401
    if endpoint.takes is not NoneType:
        yield 413
        yield 415
    if endpoint.places:
        yield 404
    yield 422  # for a query that asks for what is not there
    if endpoint.is_keyed:
        yield InFlight
        yield KeyReused
    if endpoint.method != "GET":
        yield 507


def responses_of(endpoint: Endpoint) -> dict[str, tuple[str, list[type[RotaError]]]]:
    """By status: the name of the shared response, and the problems in it."""
    kinds = sorted(kinds_of(endpoint), key=lambda kind: (kind.http_status, kind.code))
    by_status: dict[str, list[type[RotaError]]] = {}
    for kind in kinds:
        by_status.setdefault(str(kind.http_status), []).append(kind)
    return {
        **{status: (_name(kinds), kinds) for status, kinds in by_status.items()},
        "default": (_DOOR_NAME, list(_DOOR)),
    }


def _name(kinds: Sequence[type[RotaError]]) -> str:
    """As a name in `components` may be, and as short as it can."""
    return "any-error" if RotaError in kinds else "-or-".join(kind.code for kind in kinds)


def response(kinds: Sequence[type[RotaError]]) -> dict[str, Any]:
    statuses = sorted({kind.http_status for kind in kinds})
    form = "DeferredProblem" if kinds[0] is Deferred else "Problem"
    said = {"status": {"enum": statuses}, "code": {"enum": [kind.code for kind in kinds]}}
    schema = {"allOf": [{"$ref": f"#/components/schemas/{form}"}, {"properties": said}]}
    answer: dict[str, Any] = {
        "description": " ".join((kind.__doc__ or "").partition("\n")[0] for kind in kinds),
        "content": {MEDIA: {"schema": schema, "examples": {kind.code: _example(kind) for kind in kinds}}},
    }
    headers = ["Retry-After"] if {429, 503} & {*statuses} or InFlight in kinds else []
    headers += ["Content-Range"] if 416 in statuses else []
    headers += ["WWW-Authenticate"] if 401 in statuses else []
    if headers:
        answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
    return answer


def _example(kind: type[RotaError]) -> dict[str, Any]:
    value: dict[str, Any] = {
        "type": type_of(kind.code),
        "title": kind.title,
        "status": kind.http_status,
        "detail": _DETAILS.get(kind.code, kind.__doc__ or kind.title),
        "code": kind.code,
        **_MORE.get(kind.code, {}),
    }
    return {"summary": kind.title, "value": value}


_DETAILS = {
    "invalid-input": "the request body cannot be used: Expected `int`, got `str` - at `$.priority`",
    "not-found": "nothing has the id job-24; see `rota list --all`",
    "conflict": "job-24 is COMPLETED; nothing was changed",
    "deferred": "the queue is full: 100 jobs are ready, and the hard limit is 100",
    "storage-full": "the disk is full; nothing was stored",
}
_MORE: dict[str, dict[str, Any]] = {
    "invalid-input": {"path": "$.priority"},
    "deferred": {
        "result": "deferred",
        "job": None,
        "warning": _DETAILS["deferred"],
        "depth": {"total": 100, "soft": 80, "hard": 100, "by_flow": {}},
    },
}
