"""Refusals as RFC 9457 problem documents. A client turns the stable code back into the same error."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from rota.errors import BY_CODE, NotFound, RequestInProgress, RotaError, shorten
from rota.http.problem_schemas import PROBLEM_MEDIA_TYPE, problem_type
from rota.schema_types import encode

log = logging.getLogger("rota.http")

CLIENT_CLOSED_REQUEST = 499
"""Status of a response to a client that has disconnected."""
_RETRY_AFTER = "1"
"""Seconds after which a temporary refusal may be over."""
_RETRYABLE_STATUSES = (429, 503)
"""Statuses of temporary refusals. Each of their responses has a `Retry-After` header."""


class JsonResponse(Response):
    """JSON response. The two headers that almost every response has are built directly, which is faster."""

    def __init__(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(encode(body), status, headers, media_type="application/json")

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        if headers:
            super().init_headers(headers)
        else:
            self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]


def problem_response(
    code: str, status: int, detail: str, *, extra: Mapping[str, object] = {}, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a problem document. `extra` has members beyond the standard ones."""
    body = {
        **extra,
        "type": problem_type(code),
        "title": BY_CODE.get(code, RotaError).title,
        "status": status,
        "detail": shorten(detail),
        "code": code,
    }
    is_temporary = status in _RETRYABLE_STATUSES or code == RequestInProgress.code
    all_headers = {**({"Retry-After": _RETRY_AFTER} if is_temporary else {}), **(headers or {})}
    return Response(msgspec.json.encode(body), status, all_headers, media_type=PROBLEM_MEDIA_TYPE)


def refusal_response(error: RotaError) -> Response:
    extra = {"path": shorten(f"${error.path}")} if error.path else {}
    return problem_response(error.code, error.http_status, error.message, extra=extra)


def no_route_response(path: str) -> Response:
    advice = "if the scheduler is older than the client, restart it with `rota down` and `rota up`"
    return problem_response(NotFound.code, NotFound.http_status, f"no endpoint at {path}; {advice}")


def method_not_allowed_response(method: str, path: str, *, allowed_methods: str) -> Response:
    message = f"{path} does not support {method}; use {allowed_methods}"
    return problem_response("method-not-allowed", 405, message, headers={"Allow": allowed_methods})


def internal_error_response(error: Exception) -> Response:
    log.error("internal error while handling a request", exc_info=error)
    return problem_response("error", 500, f"internal error: {type(error).__name__}; see `rota.log` in the home")
