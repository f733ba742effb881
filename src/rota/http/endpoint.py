"""Endpoint: a method, a path, and a handler whose signature defines the request and the response.

    async def get_job(call: Invocation[JobQuery, None]) -> JsonReply[JobView]: ...
    async def submit_job(call: Invocation[NoQuery, Submission]) -> JsonReply[SubmitResult]: ...

    ENDPOINTS = [
        Endpoint("GET", "/api/jobs/{job}", get_job),
        Endpoint("POST", "/api/jobs", submit_job, statuses=(201,), accepts_key=True),
    ]

The first type is the query, the second the body: None for no body, `T | None` for one that can be left out. Requests
are decoded by these types before the handler is called, and the OpenAPI document is generated from them, so the three
cannot differ. The handler's docstring is the description of the operation; its first sentence is the summary.

Queries that several endpoints share, and their parameters, are here too: page size, cursor, wait time and dry run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from rota.engine.idempotency import StoredResponse
from rota.errors import InvalidInput, RotaError, error_path
from rota.http.context import Context
from rota.schema_types import PageSize as PageSize  # noqa: PLC0414 - endpoints import it from here
from rota.schema_types import encode

Q = TypeVar("Q")
B = TypeVar("B")
F = TypeVar("F")
T = TypeVar("T")
JSON = "application/json"
RESERVATION_STREAM = "application/vnd.rota.stream"
_PATH_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")
MAX_WAIT_SECONDS = 60
"""Maximum seconds that a request waits before it is answered with the current state."""
WaitSeconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Query without parameters."""


class DryRunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Return what would be done, without doing it."""


class WaitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds = MAX_WAIT_SECONDS
    """Maximum seconds to wait until everything has ended."""


class CancelQuery(WaitQuery, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Return what would be cancelled, without cancelling it."""


class RequestKey(NamedTuple):
    """`Idempotency-Key` of a request, and the digest of the request."""

    key: str
    digest: str


class Header(NamedTuple):
    """Header that an endpoint reads."""

    description: str
    example: str
    pattern: str


class Invocation(Generic[Q, B]):
    """Decoded request to an endpoint."""

    def __init__(
        self,
        request: Request,
        context: Context,
        *,
        path_values: Mapping[str, str],
        query: Q,
        body: B,
        key: RequestKey | None,
    ) -> None:
        self.request = request
        self.context = context
        self.path_values = path_values
        """Path parameters by name."""
        self.query = query
        self.body = body
        self.key = key

    def names_media_type(self, media_type: str) -> bool:
        """Return whether the `Accept` header names this media type. A type that it does not name is not preferred to
        the default, whatever the header allows."""
        ranges = ",".join(self.request.headers.getlist("accept")).lower().split(",")
        return any(media_range.partition(";")[0].strip() == media_type for media_range in ranges)

    def path_parameter(self, name: str, parse: Callable[[str], T]) -> T:
        """Parse a path parameter. Errors get its name as their path."""
        with error_path(f".{name}"):
            return parse(self.path_values[name])


class JsonReply(Generic[F]):
    """JSON response of a handler."""

    def __init__(self, body: F, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.status = status
        self.headers = headers

    def to_stored(self) -> StoredResponse:
        return StoredResponse(status=self.status, body=encode(self.body))

    @classmethod
    def replay(cls, response: StoredResponse) -> JsonReply[Any]:
        """Return a stored response, byte for byte."""
        return JsonReply(msgspec.Raw(response.body), response.status, {"Idempotent-Replayed": "true"})


Handler = Callable[[Invocation[Any, Any]], Awaitable[JsonReply[Any] | Response]]


class Endpoint:
    """HTTP operation."""

    def __init__(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        statuses: Sequence[int] = (200,),
        media: str | Sequence[str] | None = None,
        other_response_types: Mapping[int, Any] = {},
        accepts_key: bool = False,
        is_public: bool = False,
        errors: Sequence[int | type[RotaError]] = (),
        request_headers: Mapping[str, Header] = {},
        response_headers: Mapping[str, str] = {},
        is_deprecated: bool = False,
        successor: str | None = None,
        request_example: Any = msgspec.UNSET,
        response_example: Any = msgspec.UNSET,
        other_response_examples: Mapping[int, Any] = {},
        body_decoder: Callable[[bytes], Any] | None = None,
    ) -> None:
        """Create an endpoint.

        `statuses` are the success statuses. Responses have the type in the handler's signature, or the one that
        `other_response_types` gives for their status, where None is a response without a body. `media` is their media
        type if it is not JSON. `errors` are refusals, as classes or statuses, in addition to those that every endpoint
        can send. `request_headers` are the headers that the endpoint reads; `response_headers` describes the headers
        that it sends. `request_example` and `response_example` go into the OpenAPI document; `other_response_examples`
        has examples for statuses that need their own. `body_decoder` replaces the decoder of the body type where that
        would not describe errors well enough. A public endpoint (`is_public`) needs no token. `successor` is the path
        that replaces a deprecated endpoint; it has the same path parameters.
        """
        self.method = method
        self.path = _PATH_PARAMETER.sub(r"{\1}", path)
        self.segments = tuple(path.strip("/").split("/"))
        self.path_parameters = tuple(name for name, _ in _PATH_PARAMETER.findall(path))
        self.handler = handler
        self.statuses = tuple(statuses)
        self.media = media
        self._other_response_types = other_response_types
        self.accepts_key = accepts_key
        self.is_public = is_public
        self.request_headers = request_headers
        self.response_headers = response_headers
        self.errors = tuple(errors)
        self.is_deprecated = is_deprecated
        self.successor = successor
        self.request_example = request_example
        self._response_example = response_example
        self.other_response_examples = other_response_examples
        self._custom_body_decoder = body_decoder

    # Types from the handler's signature. They are resolved at their first use, which keeps the scheduler's start fast.

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handler, include_extras=True)

    @cached_property
    def query_type(self) -> Any:
        """Type of the query."""
        return get_args(next(iter(self._hints.values())))[0]

    @cached_property
    def body_type(self) -> Any:
        """Type of the body."""
        return get_args(next(iter(self._hints.values())))[1]

    @cached_property
    def response_type(self) -> Any:
        """Type of the responses; None if they are not JSON."""
        return _response_types(self._hints["return"])[0]

    @cached_property
    def other_response_types(self) -> dict[int, Any]:
        """Other types of responses, by status."""
        _, *others = _response_types(self._hints["return"])
        return {**{status: kind for kind in others for status in self.statuses}, **self._other_response_types}

    @cached_property
    def path_type(self) -> Any:
        """Type of the path parameters that describe themselves. `openapi.operation` describes all others by name."""
        return NoQuery

    @cached_property
    def response_example(self) -> Any:
        return self._response_example

    @cached_property
    def is_body_optional(self) -> bool:
        return get_origin(self.body_type) in (Union, UnionType) and NoneType in get_args(self.body_type)

    @cached_property
    def required_body_type(self) -> Any:
        """Type of a body that is present. A body that can be left out cannot be null."""
        return _without_none(self.body_type)

    @cached_property
    def body_decoder(self) -> Callable[[bytes], Any]:
        """Decoder of a body that is present."""
        return (
            msgspec.json.Decoder(self.required_body_type).decode
            if self._custom_body_decoder is None
            else self._custom_body_decoder
        )

    @cached_property
    def has_free_form_body(self) -> bool:
        """Whether the body is an arbitrary JSON object."""
        return get_origin(self.required_body_type) is dict

    @cached_property
    def _fields(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        return msgspec.structs.fields(self.query_type)

    @cached_property
    def repeatable_parameters(self) -> frozenset[str]:
        """Query parameters that can be repeated."""
        return frozenset(field.name for field in self._fields if get_origin(_unwrap_type(field.type)) in (list, tuple))

    @cached_property
    def text_parameters(self) -> frozenset[str]:
        """Query parameters that take any text, even `null`."""
        return frozenset(field.encode_name for field in self._fields if _unwrap_type(field.type) is str)

    @cached_property
    def query_parameters(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in self._fields)

    @cached_property
    def required_parameters(self) -> frozenset[str]:
        """Query parameters that have no default."""
        return frozenset(field.encode_name for field in self._fields if field.required)

    def path_values(self, values: Sequence[str]) -> dict[str, str]:
        """Return the path parameters by name."""
        return dict(zip(self.path_parameters, values, strict=True)) if self.path_parameters else {}

    @property
    def subject_parameter(self) -> str | None:
        """Path parameter that names the subject of the request; None if there is no single subject."""
        return self.path_parameters[0] if self.path_parameters else None

    @property
    def operation_id(self) -> str:
        """Operation id in the OpenAPI document."""
        return str(getattr(self.handler, "__name__", self.path))


def _response_types(annotation: Any) -> list[Any]:
    """Return the types of a JSON reply: `[F]` for `JsonReply[F]` and `JsonReply[F] | Response`, `[F, G]` for
    `JsonReply[F | G]`, `[None]` for a response that is not JSON."""
    for part in (annotation, *get_args(annotation)):
        if get_origin(part) is JsonReply:
            (kind,) = get_args(part)
            return list(get_args(kind)) if get_origin(kind) in (Union, UnionType) else [kind]
    return [None]


def _without_none(kind: Any) -> Any:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return Union[tuple(part for part in parts if part is not NoneType)] if NoneType in parts else kind  # noqa: UP007


def _unwrap_type(kind: Any) -> Any:
    """Return the type without annotations and without None."""
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        (kind, *_) = [_unwrap_type(part) for part in get_args(kind) if part is not NoneType]
    return kind


def parse_field(field: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    """Parse a field of a request; return None if it is absent. Errors get the name of the field as their path."""
    with error_path(f".{field}"):
        return None if text is None else parse(text)


def parse_cursor(cursor: str | None, parse: Callable[[str], T], default: F) -> T | F:
    """Parse a cursor, which is the `next` of the previous page. Return `default` if there is none. `parse` raises
    ValueError or InvalidInput for an invalid cursor."""
    if cursor is None:
        return default
    try:
        return parse(cursor)
    except (ValueError, InvalidInput):
        message = f"invalid cursor {cursor!r}; use the `next` of the previous page"
        raise InvalidInput(message).at_path(".cursor") from None
