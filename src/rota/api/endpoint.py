"""An endpoint: method, path, and a handler whose signature says what it takes and what it gives.

    async def get_job(call: Call[JobQuery, None]) -> Reply[JobForm]: ...
    async def submit_job(call: Call[Nothing, Submission]) -> Reply[SubmitForm]: ...

    ENDPOINTS = [
        Endpoint("GET", "/api/jobs/{job}", get_job),
        Endpoint("POST", "/api/jobs", submit_job, statuses=(201,), is_keyed=True),
    ]

The first type is the query, the second the body: None for no body, `T | None` for one that may be left out. Requests
are decoded by these types before the handler is called, and the OpenAPI document is made from them, so that the three
cannot differ. The handler's docstring is the endpoint's description; its first sentence is the summary.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rota.api.context import Context
from rota.engine.once import Told
from rota.errors import RotaError, within
from rota.wire import encode

Q = TypeVar("Q")
B = TypeVar("B")
F = TypeVar("F")
T = TypeVar("T")

_PLACE = re.compile(r"\{(\w+)(:path)?\}")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing can be asked for in the query."""


class Key(NamedTuple):
    """An `Idempotency-Key`, and the digest of the request that it stands for."""

    key: str
    digest: str


class Header(NamedTuple):
    """A header that a request may have."""

    description: str
    example: str
    pattern: str


class Call(Generic[Q, B]):
    """One request, decoded."""

    def __init__(
        self, request: Request, context: Context, *, path: Mapping[str, str], query: Q, body: B, key: Key | None
    ) -> None:
        self.request = request
        self.context = context
        self.path = path
        """What stands in the places of the endpoint's path."""
        self.query = query
        self.body = body
        self.key = key

    def place(self, name: str, parse: Callable[[str], T]) -> T:
        """What stands in a place of the path, as what it means."""
        with within(f".{name}"):
            return parse(self.path[name])


class Reply(Generic[F]):
    """An answer in JSON."""

    def __init__(self, form: F, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.form = form
        self.status = status
        self.headers = headers

    def told(self) -> Told:
        return Told(status=self.status, body=encode(self.form))

    @classmethod
    def repeated(cls, told: Told) -> Reply[Any]:
        """What was told before, to the byte."""
        return Reply(msgspec.Raw(told.body), told.status, {"Idempotent-Replayed": "true"})


Handle = Callable[[Call[Any, Any]], Awaitable[Reply[Any] | Response]]


class Endpoint:
    def __init__(
        self,
        method: str,
        path: str,
        handle: Handle,
        *,
        statuses: Sequence[int] = (200,),
        media: str | Sequence[str] | None = None,
        or_gives: Mapping[int, Any] = {},
        is_keyed: bool = False,
        is_public: bool = False,
        refuses: Sequence[int | type[RotaError]] = (),
        hears: Mapping[str, Header] = {},
        tells: Mapping[str, str] = {},
        is_deprecated: bool = False,
        successor: str | None = None,
        sends: Any = msgspec.UNSET,
        shows: Any = msgspec.UNSET,
        also_shows: Mapping[int, Any] = {},
        reads: Callable[[bytes], Any] | None = None,
    ) -> None:
        """`statuses` are those of its answers, of the type that its handler says or as `or_gives` says, which is None
        for one without a body; `media` is what they are in, where that is not JSON; `refuses` are refusals beside those
        that any endpoint may have, or their statuses; `hears` are headers that it goes by, `tells` says what is in
        headers of its answers. `sends` and `shows` are an example of body and answer, of all statuses but those that
        `also_shows` has one for. `reads` decodes the body where its type alone would say too little of what is wrong
        with it. A public one needs no token.
        `successor` is the path to ask instead of a deprecated one, with the same places."""
        self.method = method
        self.path = _PLACE.sub(r"{\1}", path)
        self.segments = tuple(path.strip("/").split("/"))
        self.places = tuple(name for name, _ in _PLACE.findall(path))
        self.handle = handle
        self.statuses = tuple(statuses)
        self.media = media
        self._or_gives = or_gives
        self.is_keyed = is_keyed
        self.is_public = is_public
        self.hears = hears
        self.tells = tells
        self.refuses = tuple(refuses)
        self.is_deprecated = is_deprecated
        self.successor = successor
        self.sends = sends
        self.shows = shows
        self.also_shows = also_shows
        self._reads = reads

    # What its handler's signature says: read when it is first asked, since at a start nobody has asked for anything.

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.handle, include_extras=True)

    @cached_property
    def asks(self) -> Any:
        """The type of its query."""
        return get_args(next(iter(self._hints.values())))[0]

    @cached_property
    def takes(self) -> Any:
        """The type of its body."""
        return get_args(next(iter(self._hints.values())))[1]

    @cached_property
    def gives(self) -> Any:
        """The type of its answers; none where they are not JSON."""
        return _forms_of(self._hints["return"])[0]

    @cached_property
    def or_gives(self) -> dict[int, Any]:
        """Other types of its answers, by status."""
        _, *others = _forms_of(self._hints["return"])
        return {**{status: form for form in others for status in self.statuses}, **self._or_gives}

    @cached_property
    def may_be_empty(self) -> bool:
        return get_origin(self.takes) in (Union, UnionType) and NoneType in get_args(self.takes)

    @cached_property
    def form(self) -> Any:
        """Of a body that is there: what may be left out is not said to be null instead."""
        return _without_none(self.takes)

    @cached_property
    def read(self) -> Callable[[bytes], Any]:
        """Of a body that is there, what it says."""
        return msgspec.json.Decoder(self.form).decode if self._reads is None else self._reads

    @cached_property
    def is_free(self) -> bool:
        """Whether its body is anybody's JSON."""
        return get_origin(self.form) is dict

    @cached_property
    def _fields(self) -> tuple[msgspec.structs.FieldInfo, ...]:
        return msgspec.structs.fields(self.asks)

    @cached_property
    def listed(self) -> frozenset[str]:
        """What may stand in the query more than once."""
        return frozenset(field.name for field in self._fields if get_origin(_bare(field.type)) in (list, tuple))

    @cached_property
    def texts(self) -> frozenset[str]:
        """What may be any text in the query, also one that looks like something else."""
        return frozenset(field.encode_name for field in self._fields if _bare(field.type) is str)

    @cached_property
    def known(self) -> tuple[str, ...]:
        return tuple(field.encode_name for field in self._fields)

    def path_of(self, values: Sequence[str]) -> dict[str, str]:
        """What stands in which place."""
        return dict(zip(self.places, values, strict=True)) if self.places else {}

    @property
    def names(self) -> str | None:
        """The place of its path that names what it is about; none where that is no single thing."""
        return self.places[0] if self.places else None

    @property
    def name(self) -> str:
        """Of the operation, in the OpenAPI document."""
        return str(getattr(self.handle, "__name__", self.path))

    @property
    def module(self) -> str:
        return self.handle.__module__.rpartition(".")[2]


def _forms_of(answer: Any) -> list[Any]:
    """`F` of `Reply[F]`, or of `Reply[F] | Response`, or both of `Reply[F | G]`; none of them where it is not JSON."""
    for each in (answer, *get_args(answer)):
        if get_origin(each) is Reply:
            (form,) = get_args(each)
            return list(get_args(form)) if get_origin(form) in (Union, UnionType) else [form]
    return [None]


def _without_none(kind: Any) -> Any:
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return Union[tuple(each for each in parts if each is not NoneType)] if NoneType in parts else kind  # noqa: UP007


def _bare(kind: Any) -> Any:
    """Without its annotations, and without None."""
    while hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        (kind, *_) = [_bare(each) for each in get_args(kind) if each is not NoneType]
    return kind
