"""Refusals as RFC 9457 problem documents, with the stable code that a client turns back into the same error."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from rota.errors import BY_CODE, InFlight, NotFound, RotaError, shortened
from rota.wire import encode
from rota.wire.problem import MEDIA, type_of

log = logging.getLogger("rota.api")

NOBODY = 499
"""The status of an answer that nobody is there to read."""
_RETRY_AFTER = "1"
"""Seconds, for what is over in a moment."""
_PASSING = (429, 503)
"""Statuses of what is over in a while: each such answer says when to ask again."""


class Json(Response):
    """An answer in JSON, with the two headers that nearly each of them has made at once."""

    def __init__(self, body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(encode(body), status, headers, media_type="application/json")

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        if headers:
            super().init_headers(headers)
        else:
            self.raw_headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]


def problem(
    code: str, status: int, detail: str, *, more: Mapping[str, object] = {}, headers: Mapping[str, str] | None = None
) -> Response:
    """`more` is what the document says beyond what every one of them does."""
    body = {
        **more,
        "type": type_of(code),
        "title": BY_CODE.get(code, RotaError).title,
        "status": status,
        "detail": shortened(detail),
        "code": code,
    }
    passing = {"Retry-After": _RETRY_AFTER} if status in _PASSING or code == InFlight.code else {}
    return Response(msgspec.json.encode(body), status, {**passing, **(headers or {})}, media_type=MEDIA)


def refusal(error: RotaError) -> Response:
    more = {"path": shortened(f"${error.path}")} if error.path else {}
    return problem(error.code, error.http_status, error.message, more=more)


def nowhere(path: str) -> Response:
    advice = "if the scheduler is an older one, `rota down` and `rota up` renew it"
    return problem(NotFound.code, NotFound.http_status, f"nothing is at {path}; {advice}")


def not_with(method: str, path: str, *, allowed: str) -> Response:
    text = f"{path} cannot be asked with {method}, only with {allowed}"
    return problem("method-not-allowed", 405, text, headers={"Allow": allowed})


def defect(error: Exception) -> Response:
    log.error("a defect while answering", exc_info=error)
    return problem("error", 500, f"a defect in Rota: {type(error).__name__}; `rota.log` in the home has the details")
