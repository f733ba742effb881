"""Methods of both clients that operation contracts define. Their types are those of the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar, get_args

import msgspec

from rota.client.operations import build_request
from rota.client.requests import Request
from rota.client.sdk.calls import Channel, ClientStream, Page, PagedStream, RequestCall
from rota.client.sse import SseDecoder
from rota.operation import Operation

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Page)
T = TypeVar("T")


def operation_call(operation: Operation[P, R]) -> RequestCall[P, R]:
    """Return a method that makes a single request."""
    return RequestCall(_builder(operation), operation.types["return"])


def operation_pages(operation: Operation[P, F], items_of: Callable[[F], Sequence[T]]) -> PagedStream[P, T]:
    """Return a method that yields the items of all pages."""
    return PagedStream(_builder(operation), operation.types["return"], items_of)


def operation_stream(operation: Operation[P, AsyncIterator[T]]) -> ClientStream[P, T]:
    """Return a method that yields the messages of a stream until it ends."""
    build = _builder(operation)
    (message_type,) = get_args(operation.types["return"])

    async def generate(channel: Channel, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
        incoming, messages = await channel.transport.open_stream(build(*args, **kwargs)), SseDecoder()
        try:
            while not incoming.is_finished:
                for message in messages.feed(await incoming.receive()):
                    yield msgspec.json.decode(message.data, type=message_type)
        finally:
            incoming.close()

    generate.__doc__ = operation.contract.__doc__
    return ClientStream(wraps(operation.contract)(generate))


def _builder(operation: Operation[P, R]) -> Callable[P, Request]:
    contract_signature = signature(operation.contract)

    @wraps(operation.contract)
    def build(*args: P.args, **kwargs: P.kwargs) -> Request:
        return build_request(operation, contract_signature.bind(*args, **kwargs).arguments)

    return build
