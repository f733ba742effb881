"""The application: from a request to its endpoint's handler, and from what comes of it to an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from types import NoneType
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.api import (
    artifact,
    breaker,
    control,
    delivery,
    direct,
    display,
    edit,
    event,
    gc,
    graph,
    group,
    health,
    job,
    legacy,
    lock,
    log,
    metrics,
    progress,
    queue,
    retry,
    rewind,
    run,
    schedule,
    scheduler,
    slot,
    submit,
    template,
    tick,
    webhook,
)
from rota.api.about import About
from rota.api.context import Context
from rota.api.decode import body_of, query_of, unasked
from rota.api.deprecation import Notes, headers_of
from rota.api.endpoint import Call, Endpoint, Key, Reply
from rota.api.nul import refuse_in_texts
from rota.api.problem import NOBODY, Json, defect, not_with, nowhere, refusal
from rota.api.router import Router
from rota.api.trace import traced
from rota.engine.meter import OTHER
from rota.engine.once import told_before
from rota.errors import Conflict, InFlight, InvalidInput, NotFound, RotaError, UnsupportedMedia

_MODULES = (
    submit, job, edit, retry, rewind, run, log, queue, lock, graph, artifact, group, progress, template, schedule,
    webhook, delivery, slot, direct, scheduler, control, tick, breaker, gc, display, event, health, metrics, legacy,
)  # fmt: skip

_ENDPOINTS = tuple(endpoint for module in _MODULES for endpoint in module.ENDPOINTS)
ENDPOINTS: tuple[Endpoint, ...] = (*_ENDPOINTS, *About(_ENDPOINTS).endpoints)
ROUTER = Router(ENDPOINTS)

_LONGEST_KEY = 255
_MOST_OF_NOTHING = 1024


class Application:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._router = ROUTER
        self._notes = Notes()
        self._in_flight: set[str] = set()
        """The idempotency keys of requests that are being carried out."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with traced(scope["headers"]):
            response, endpoint = await self._ask(Request(scope, receive, send))
            asked = (OTHER, OTHER) if endpoint is None else (endpoint.method, endpoint.path)
            self._context.meter.answered(*asked, response.status_code)
            await response(scope, receive, send)

    async def _ask(self, request: Request) -> tuple[Response, Endpoint | None]:
        """The answer, and who gave it: none where nobody did, for anybody can think up paths."""
        method, path = request.scope["method"], request.scope["path"]
        found = self._router.find(path) or direct.find_route(self._context, path)
        if found is None:
            return nowhere(path), None
        endpoint = found.at(method)
        if endpoint is None:
            response = not_with(method, path, allowed=found.allowed)
        else:
            response = await self._answer(endpoint, request, endpoint.path_of(found.values))
        meant = endpoint or next(iter(found.endpoints.values()))
        if meant.is_deprecated:
            self._notes.take(meant)
            response.headers.update(headers_of(meant, meant.path_of(found.values)))
        return response, endpoint

    async def _answer(self, endpoint: Endpoint, request: Request, path: dict[str, str]) -> Response:
        try:
            body = await _body(request) if endpoint.takes is not NoneType else await _no_body(request)
            key = _key(endpoint, request, body)
            if key is None:
                return await self._called(endpoint, request, path, body, key)
            with self._flying(key):
                return await self._called(endpoint, request, path, body, key)
        except RotaError as error:
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=NOBODY)
        except Exception as error:  # noqa: BLE001 - it is said, and logged with all there is to say
            return defect(error)

    async def _called(
        self, endpoint: Endpoint, request: Request, path: dict[str, str], body: bytes, key: Key | None
    ) -> Response:
        try:
            refuse_in_texts(path)
            call: Call[Any, Any] = Call(
                request,
                self._context,
                path=path,
                query=query_of(endpoint, request.query_params) if request.scope["query_string"] else unasked(endpoint),
                body=body_of(endpoint, body),
                key=key,
            )
            reply = await endpoint.handle(call)
        except RotaError as error:
            # What has been done is answered as it was, though it could not be done again now.
            told = None if key is None else await self._context.look(lambda reader: told_before(reader, *key))
            if told is None:
                _say_where(error, endpoint)
                raise
            reply = Reply.repeated(told)
        if isinstance(reply, Response):
            return reply
        return Json(reply.form, reply.status, reply.headers)

    @contextmanager
    def _flying(self, key: Key) -> Iterator[None]:
        if key.key in self._in_flight:
            raise InFlight("a request with this Idempotency-Key is being carried out; ask again in a moment")
        self._in_flight.add(key.key)
        try:
            yield
        finally:
            self._in_flight.discard(key.key)


def _say_where(error: RotaError, endpoint: Endpoint) -> None:
    """What is not there, or not in a state for it, is what the address names, unless another place is said."""
    if type(error) in (NotFound, Conflict) and not error.path and endpoint.names is not None:
        error.path = f".{endpoint.names}"


async def _body(request: Request) -> bytes:
    """Taken as it is: what is compressed could be any size, and is not read. By hand, for most bodies come in one piece
    and Starlette's two generators around that cost as much as all the rest of it."""
    for coding in _said(request, b"content-encoding"):
        if coding.lower() not in ("", "identity"):
            raise UnsupportedMedia(f"the request's body is said to be {coding!r}; send it uncompressed, as JSON")
    pieces: list[bytes] = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _no_body(request: Request) -> bytes:
    """Of an endpoint that takes none: an empty object is taken for that, and all else is refused, unread."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_OF_NOTHING:
            break
    if body.strip() not in (b"", b"{}"):
        raise InvalidInput(f"{request.method} {request.url.path} takes no body; nothing was done")
    return body


def _said(request: Request, header: bytes) -> list[str]:
    """Each time that it stands there; nearly always it does not."""
    return [value.decode("latin-1").strip() for name, value in request.scope["headers"] if name == header]


def _key(endpoint: Endpoint, request: Request, body: bytes) -> Key | None:
    keys = _said(request, b"idempotency-key") if endpoint.is_keyed else []
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidInput(f"the request has {len(keys)} Idempotency-Key headers; send one, a new one for each request")
    (given,) = keys
    if not 1 <= len(given) <= _LONGEST_KEY:
        raise InvalidInput(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters; a UUID is a good one")
    if not (given.isascii() and given.isprintable()):
        raise InvalidInput("an Idempotency-Key has printable ASCII characters only; a UUID is a good one")
    scope = request.scope
    digest = blake2b(digest_size=32)
    for part in (scope["method"].encode(), scope["path"].encode(), scope["query_string"], body):
        digest.update(part)
        digest.update(b"\0")
    return Key(given, digest.hexdigest())
