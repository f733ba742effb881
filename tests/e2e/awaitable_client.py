"""One asynchronous interface to `Client` and `AsyncClient`: a test is written once and runs with both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from rota import AsyncClient, Client

T = TypeVar("T")
ClientTest = Callable[[Any], Coroutine[Any, Any, None]]
"""Steps of a test, called with an `AwaitableClient`."""


class AwaitableClient:
    """A client of either class whose methods can be awaited. Blocking methods run in a thread."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if isinstance(self._client, AsyncClient):
            return method

        def call(*args: Any, **options: Any) -> Any:
            return _BlockingCall(lambda: method(*args, **options))

        return call


class _BlockingCall:
    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __await__(self) -> Iterator[Any]:
        return asyncio.to_thread(self._call).__await__()

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = self._call()
        try:
            while (item := await asyncio.to_thread(next, items, None)) is not None:
                yield item
        finally:
            items.close()


async def collect(items: AsyncIterator[T]) -> list[T]:
    return [item async for item in items]
