"""ASGI application: dispatches a request to the handler of its endpoint and turns the result into a response.

Every response of a deprecated endpoint has these headers, refusals included (CON-004):

    Deprecation: @1794787200                                  time of the deprecation (RFC 9745)
    Sunset: Fri, 31 Dec 2027 23:59:59 GMT                     earliest time of the removal (RFC 8594)
    Link: </api/jobs/job-24>; rel="successor-version"         replacement
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import blake2b
from types import NoneType
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.engine.idempotency import find_response
from rota.engine.metrics import OTHER_LABEL
from rota.errors import Conflict, InvalidInput, NotFound, RequestInProgress, RotaError, UnsupportedMediaType
from rota.http.context import Context
from rota.http.decode import decode_body, decode_query, empty_query, refuse_nul_in_path
from rota.http.endpoint import Endpoint, Handler, Invocation, JsonReply, RequestKey
from rota.http.problem import (
    CLIENT_CLOSED_REQUEST,
    JsonResponse,
    internal_error_response,
    method_not_allowed_response,
    no_route_response,
    refusal_response,
)
from rota.http.router import RouteMatch, Router
from rota.http.trace import TraceScope

log = logging.getLogger("rota.http")

DEPRECATED = datetime(2026, 11, 16, tzinfo=UTC)
SUNSET = datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC)
_ID_PREFIXES = {"job_id": "job", "batch_id": "group"}
"""Path parameters that can be a bare number, with the prefix of their ids."""
_DEPRECATION_HEADERS = {
    "Deprecation": f"`@{DEPRECATED.timestamp():.0f}`: time of the deprecation (RFC 9745).",
    "Sunset": f"`{format_datetime(SUNSET, usegmt=True)}`: earliest time of the removal (RFC 8594).",
    "Link": "Path of the replacement, as `successor-version`.",
}
_MAX_KEY_LENGTH = 255
_MAX_EMPTY_BODY_BYTES = 1024


class Application:
    """ASGI application of the scheduler, on the socket and over TCP."""

    def __init__(self, context: Context, router: Router, find_custom_route: Callable[[str], RouteMatch | None]) -> None:
        """Create the application. `find_custom_route` finds the endpoint of a path that the configuration defines."""
        self._context = context
        self._router = router
        self._find_custom_route = find_custom_route
        self._deprecation_log = DeprecationLog()
        self._in_flight: set[str] = set()
        """Idempotency keys of the requests in progress."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with TraceScope(scope["headers"]):
            response, endpoint = await self._dispatch(Request(scope, receive, send))
            request = (OTHER_LABEL, OTHER_LABEL) if endpoint is None else (endpoint.method, endpoint.path)
            self._context.metrics.record_response(*request, response.status_code)
            await response(scope, receive, send)

    async def _dispatch(self, request: Request) -> tuple[Response, Endpoint | None]:
        """Return the response and the endpoint that sent it. The endpoint is None for an unknown path or method, so
        that metrics have no label for each path that a client invents."""
        method, path = request.scope["method"], request.scope["path"]
        match = self._router.find(path) or self._find_custom_route(path)
        if match is None:
            return no_route_response(path), None
        endpoint = match.endpoint_for(method)
        if endpoint is None:
            response = method_not_allowed_response(method, path, allowed_methods=match.allowed_methods)
        else:
            response = await self._handle(endpoint, request, endpoint.path_values(match.values))
        path_endpoint = endpoint or next(iter(match.endpoints.values()))
        if path_endpoint.is_deprecated:
            self._deprecation_log.warn_once(path_endpoint)
            response.headers.update(deprecation_headers(path_endpoint, path_endpoint.path_values(match.values)))
        return response, endpoint

    async def _handle(self, endpoint: Endpoint, request: Request, path_values: dict[str, str]) -> Response:
        try:
            body = await _read_body(request) if endpoint.body_type is not NoneType else await _read_empty_body(request)
            key = _parse_idempotency_key(endpoint, request, body)
            if key is None:
                return await self._call_endpoint(endpoint, request, path_values, body, key)
            with self._track_in_flight(key):
                return await self._call_endpoint(endpoint, request, path_values, body, key)
        except RotaError as error:
            return refusal_response(error)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        except Exception as error:  # noqa: BLE001 - it is logged and answered with 500
            return internal_error_response(error)

    async def _call_endpoint(
        self, endpoint: Endpoint, request: Request, path_values: dict[str, str], body: bytes, key: RequestKey | None
    ) -> Response:
        try:
            refuse_nul_in_path(path_values)
            call: Invocation[Any, Any] = Invocation(
                request,
                self._context,
                path_values=path_values,
                query=decode_query(endpoint, request.query_params)
                if request.scope["query_string"]
                else empty_query(endpoint),
                body=decode_body(endpoint, body),
                key=key,
            )
            reply = await endpoint.handler(call)
        except RotaError as error:
            # A request that was carried out before gets its stored response, even if it would be refused now.
            stored = None if key is None else await self._context.read(lambda reader: find_response(reader, *key))
            if stored is None:
                _add_error_path(error, endpoint)
                raise
            reply = JsonReply.replay(stored)
        if isinstance(reply, Response):
            return reply
        return JsonResponse(reply.body, reply.status, reply.headers)

    @contextmanager
    def _track_in_flight(self, key: RequestKey) -> Iterator[None]:
        if key.key in self._in_flight:
            raise RequestInProgress("a request with this Idempotency-Key is in progress; try again in a moment")
        self._in_flight.add(key.key)
        try:
            yield
        finally:
            self._in_flight.discard(key.key)


def _add_error_path(error: RotaError, endpoint: Endpoint) -> None:
    """Set the path of a NotFound or Conflict without a path to the path parameter that names the subject."""
    if type(error) in (NotFound, Conflict) and not error.path and endpoint.subject_parameter is not None:
        error.path = f".{endpoint.subject_parameter}"


async def _read_body(request: Request) -> bytes:
    """Read the request body. A compressed body is refused, because its size after decompression is unbounded. The ASGI
    messages are read directly: most bodies arrive in one message, and Starlette's two generators would cost as much as
    the rest of the request's handling."""
    for coding in _header_values(request, b"content-encoding"):
        if coding.lower() not in ("", "identity"):
            raise UnsupportedMediaType(f"Content-Encoding {coding!r} is not supported; send uncompressed JSON")
    chunks: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _read_empty_body(request: Request) -> bytes:
    """Read the body of an endpoint that takes none. An empty object counts as no body. Anything else is refused without
    being read to its end."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_EMPTY_BODY_BYTES:
            break
    if body.strip() not in (b"", b"{}"):
        raise InvalidInput(f"{request.method} {request.url.path} takes no body; nothing was done")
    return body


def _header_values(request: Request, header: bytes) -> list[str]:
    """Return all values of a header."""
    return [value.decode("latin-1").strip() for name, value in request.scope["headers"] if name == header]


def _parse_idempotency_key(endpoint: Endpoint, request: Request, body: bytes) -> RequestKey | None:
    keys = _header_values(request, b"idempotency-key") if endpoint.accepts_key else []
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidInput(f"the request has {len(keys)} Idempotency-Key headers; send one, a new one for each request")
    (key,) = keys
    if not 1 <= len(key) <= _MAX_KEY_LENGTH:
        raise InvalidInput(f"an Idempotency-Key has 1 to {_MAX_KEY_LENGTH} characters; a UUID is a good one")
    if not (key.isascii() and key.isprintable()):
        raise InvalidInput("an Idempotency-Key has printable ASCII characters only; a UUID is a good one")
    scope = request.scope
    digest = blake2b(digest_size=32)
    for part in (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body):
        digest.update(part)
        digest.update(b"\0")
    return RequestKey(key, digest.hexdigest())


def deprecated_endpoint(method: str, path: str, handler: Handler, successor: str, **options: Any) -> Endpoint:
    return Endpoint(
        method, path, handler, is_deprecated=True, successor=successor, response_headers=_DEPRECATION_HEADERS, **options
    )


def deprecation_headers(endpoint: Endpoint, path_values: Mapping[str, str]) -> dict[str, str]:
    successor = (endpoint.successor or "/").format_map(
        {name: _format_path_value(name, value) for name, value in path_values.items()}
    )
    return {
        "Deprecation": f"@{DEPRECATED.timestamp():.0f}",
        "Sunset": format_datetime(SUNSET, usegmt=True),
        "Link": f'<{successor}>; rel="successor-version"',
    }


def _format_path_value(name: str, value: str) -> str:
    full = f"{_ID_PREFIXES[name]}-{value}" if name in _ID_PREFIXES and value.isascii() and value.isdigit() else value
    return quote(full, safe="")


class DeprecationLog:
    """Logs the first use of each deprecated endpoint, because the operator of Rota may not be the author of the
    client."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str]] = set()

    def warn_once(self, endpoint: Endpoint) -> None:
        name = (endpoint.method, endpoint.path)
        if name in self._logged:
            return
        self._logged.add(name)
        log.warning(
            "%s %s is deprecated and can be removed after %s; use %s instead", *name, SUNSET.date(), endpoint.successor
        )
