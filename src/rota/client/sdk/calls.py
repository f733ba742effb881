"""Descriptors that define the methods of both clients.

The clients differ only in how they wait. So each method is written once: as a request builder with a response type, as
a coroutine function, or as an asynchronous generator function, each over a `Channel`. `Client` returns the results,
`AsyncClient` returns awaitables and asynchronous iterators. Type checkers see the signature and the result type of each
method as if it were written in both classes.

Jobs run in the working directory and with the environment of the calling program, and relative paths refer to them, as
with the CLI.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from inspect import Signature, signature
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import msgspec

from rota.client.problem import InvalidResponse
from rota.client.requests import MAX_PAGE_SIZE, Request
from rota.client.requests.arguments import as_mapping
from rota.client.retrying import RetryingTransport, iterate_blocking, run_blocking
from rota.errors import InvalidInput

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound="Page")


class Channel:
    """Connection of a method to the scheduler."""

    def __init__(self, transport: RetryingTransport, *, is_local: bool) -> None:
        self.transport = transport
        self.is_local = is_local
        """Whether the scheduler is on this machine, with the same directories."""

    def with_environment(self, request: Request) -> Request:
        """Add the directory and environment of the program, unless the scheduler may be on another machine."""
        return with_environment(request) if self.is_local else request

    async def request(self, request: Request, response_type: type[T]) -> T:
        """Return the decoded response. Unknown fields from a newer scheduler are ignored."""
        response = await self.transport.request(request)
        if response_type is NoneType:
            return None  # type: ignore[return-value]
        try:
            return msgspec.json.decode(response.body, type=response_type)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise InvalidResponse(
                f"the response to {request.method} {request.target} cannot be decoded: {error}"
            ) from None


class BlockingClient:
    """A client with methods that block until they are done."""

    _channel: Channel


class AwaitableClient:
    """A client with methods that are awaited."""

    _channel: Channel


class _Method:
    """Base of the descriptors: presents the name, documentation and signature of its source to `help`."""

    def __init__(self, source: Callable[..., Any]) -> None:
        self.__doc__ = source.__doc__
        self._source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"{owner.__name__}.{name}"

    @property
    def __signature__(self) -> Signature:
        full = signature(self._source)
        return full.replace(parameters=[param for param in full.parameters.values() if param.name != "channel"])

    def _bind(self, call: Callable[..., Any]) -> Callable[..., Any]:
        call.__name__, call.__qualname__, call.__doc__ = self.__name__, self.__qualname__, self.__doc__
        call.__wrapped__ = self  # type: ignore[attr-defined]
        return call


class ClientCall(_Method, Generic[P, T]):
    """A method with a single result."""

    def __init__(self, function: Callable[Concatenate[Channel, P], Coroutine[Any, Any, T]]) -> None:
        super().__init__(function)
        self._function = function

    @overload
    def __get__(self, client: None, owner: type) -> ClientCall[P, T]: ...
    @overload
    def __get__(self, client: BlockingClient, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AwaitableClient, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            coroutine = self._function(client._channel, *args, **kwargs)
            return run_blocking(coroutine) if isinstance(client, BlockingClient) else coroutine

        return self._bind(call)


class RequestCall(ClientCall[P, T]):
    """A method that makes a single request, from a request builder and a response type."""

    def __init__(
        self,
        build: Callable[P, Request],
        response_type: type[T],
        *,
        uses_environment: bool = False,
        uses_cwd: bool = False,
    ) -> None:
        """Initialize the method. `uses_environment`: the request runs a command. `uses_cwd`: the request contains
        relative paths."""

        async def send(channel: Channel, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if uses_cwd and channel.is_local and kwargs.get("cwd") is None:
                kwargs["cwd"] = current_directory()
            request = build(*args, **kwargs)
            return await channel.request(
                channel.with_environment(request) if uses_environment else request, response_type
            )

        super().__init__(send)
        self.build, self.response_type = build, response_type
        self.__doc__, self._source = build.__doc__, build


class ClientStream(_Method, Generic[P, T]):
    """A method that yields its results."""

    def __init__(self, generate: Callable[Concatenate[Channel, P], AsyncGenerator[T, None]]) -> None:
        super().__init__(generate)
        self._generate = generate

    @overload
    def __get__(self, client: None, owner: type) -> ClientStream[P, T]: ...
    @overload
    def __get__(self, client: BlockingClient, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AwaitableClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            items = self._generate(client._channel, *args, **kwargs)
            return iterate_blocking(items) if isinstance(client, BlockingClient) else items

        return self._bind(call)


class Page(Protocol):
    """A page of a list."""

    @property
    def next(self) -> str | None:
        """Cursor of the next page."""


class PagedStream(ClientStream[P, T]):
    """A method that yields all items of a list, page by page. `limit` is the maximum number of items, and `cursor` the
    position of the first."""

    def __init__(self, build: Callable[P, Request], page_type: type[F], items_of: Callable[[F], Sequence[T]]) -> None:
        async def generate(channel: Channel, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
            parameters: Any = dict(kwargs)
            remaining = _check_limit(parameters.pop("limit", None))
            yielded: set[object] = set()
            while remaining is None or remaining > 0:
                parameters["limit"] = MAX_PAGE_SIZE if remaining is None else min(remaining, MAX_PAGE_SIZE)
                page = await channel.request(build(*args, **parameters), page_type)
                items = [item for item in items_of(page) if _is_new(item, yielded)]
                for item in items:
                    yield item
                if page.next is None:
                    return
                remaining = None if remaining is None else remaining - len(items)
                parameters["cursor"] = page.next

        super().__init__(generate)
        self.build, self.page_type = build, page_type
        self.__doc__, self._source = build.__doc__, build


def _is_new(item: object, yielded: set[object]) -> bool:
    """Return whether the item was not on an earlier page. An item that moved between two reads, such as a job that
    ended, can be on two pages."""
    item_id = getattr(item, "id", None)
    if item_id is None:
        return True
    key = (getattr(item, "source", None), item_id)  # two sources can have a work item with the same id
    is_new = key not in yielded
    yielded.add(key)
    return is_new


def _check_limit(limit: object) -> int | None:
    if limit is None or (isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0):
        return limit
    raise InvalidInput(f"limit must be a number such as 100, at least 0, not {limit!r}")


def with_environment(request: Request) -> Request:
    """Add the program's directory and environment to a request that does not specify them. `env` is added to the
    program's own environment; an explicit `inherit_env` replaces it."""
    body = dict(request.body)
    if body.get("cwd") is None:
        body["cwd"] = current_directory()
    if "inherit_env" not in body:
        explicit = as_mapping("env", body.get("env") or {})
        body |= {"env": {**_text_environment(), **explicit}, "inherit_env": False}
        if explicit and "jobs" not in body:
            body["explicit_env"] = list(explicit)
    return request.with_body(body)


def current_directory() -> str:
    return os.getcwd()  # noqa: PTH109 - a path as the shell shows it


def _text_environment() -> dict[str, str]:
    """Return the environment without variables that are not UTF-8: JSON cannot represent them."""
    return {name: value for name, value in os.environ.items() if _is_text(name + value)}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # Python represents bytes that are not UTF-8 as lone surrogates.
        return False
    return True
