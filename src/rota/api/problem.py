"""Refusals as RFC 9457 problem documents, with the stable code that a client turns back into the same error."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from rota.errors import BY_CODE, InFlight, InvalidInput, RotaError
from rota.wire.problem import MEDIA, type_of

log = logging.getLogger("rota.api")

T = TypeVar("T")

_PATH = re.compile(r" - at `\$([^`]*)`$")
"""How msgspec says where."""

_RETRY_AFTER = "1"
"""Seconds, for what is over in a moment."""
_FLAGS = {"1": True, "true": True, "0": False, "false": False}
_PASSING = (429, 503)
"""Statuses of what is over in a while: each such answer says when to ask again."""


def answer(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def problem(
    code: str, status: int, detail: str, *, more: Mapping[str, object] = {}, headers: Mapping[str, str] | None = None
) -> Response:
    """`more` is what the document says beyond what every one of them does."""
    body = {
        **more,
        "type": type_of(code),
        "title": BY_CODE.get(code, RotaError).title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    passing = {"Retry-After": _RETRY_AFTER} if status in _PASSING or code == InFlight.code else {}
    return Response(msgspec.json.encode(body), status, {**passing, **(headers or {})}, media_type=MEDIA)


async def on_rota_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RotaError)  # noqa: S101 - registered for this class
    more = {"path": f"${error.path}"} if error.path else {}
    return problem(error.code, error.http_status, error.message, more=more)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    if error.status_code == 404:
        return problem(
            "not-found",
            404,
            f"nothing is at {request.url.path}; if the scheduler is an older one, `rota down` and `rota up` renew it",
        )
    return problem("error", error.status_code, error.detail)


async def on_defect(_request: Request, error: Exception) -> Response:
    log.error("a defect while answering", exc_info=error)
    return problem("error", 500, f"a defect in Rota: {type(error).__name__}; `rota.log` in the home has the details")


async def read(request: Request, kind: type[T]) -> T:
    """The body, checked against its type; unknown fields and wrong values are named by their path."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        path = _PATH.search(str(error))
        refusal = InvalidInput(f"the request body cannot be used: {error}")
        raise refusal.under("" if path is None else path[1]) from error
    except RecursionError:
        raise InvalidInput("the request body is nested too deep") from None


def flag(request: Request, name: str) -> bool:
    """What is not understood is refused: who asks for less than the whole must not get it by a misspelling."""
    text = request.query_params.get(name, "0").lower()
    if text not in _FLAGS:
        raise InvalidInput(f"{name} is 1 or 0, not {request.query_params[name]!r}")
    return _FLAGS[text]


def refuse_others(request: Request, known: Sequence[str]) -> None:
    for name in request.query_params:
        if name not in known:
            raise InvalidInput(f"nothing is asked by {name!r} here; known are {', '.join(known)}")


def number(request: Request, name: str, default: float, *, least: float, most: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, not {text!r}") from None
    if not least <= value <= most:
        raise InvalidInput(f"{name} goes from {least:g} to {most:g}, not {text}")
    return value
