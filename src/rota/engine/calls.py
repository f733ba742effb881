"""Calls of the engine from the event loop: an operation runs in the engine's next turn, and its result is awaited.

A turn costs as much as several requests, so requests that arrive together are submitted together: when an iteration of
the event loop adds none, when there are many, or after a maximum delay.

    iteration 1    arrived: a, b
    iteration 2    arrived: c          there are more: wait for another iteration
    iteration 3    arrived: nothing    submit a, b and c
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from rota.db.session import Reader
from rota.engine.idempotency import IdempotentRequest, StoredResponse
from rota.engine.requests import run_once
from rota.engine.transaction import Transaction, TurnRequest

T = TypeVar("T")
U = TypeVar("U")

_MAX_BATCH_SIZE = 64
_MAX_BATCH_DELAY = 0.002
"""Seconds. An iteration with much other work can take longer."""


class ReadStore(Protocol):
    def __call__(self, query: Callable[[Reader], T], /) -> Awaitable[T]: ...


class RunInTurnAsync(Protocol):
    def __call__(self, operation: Callable[[Transaction], T], /) -> Awaitable[T]: ...


class EngineCalls:
    """Calls of the engine, on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Callable[..., None]) -> None:
        """`submit` queues requests for the engine's next turn."""
        self._results: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._is_wakeup_scheduled = False
        self._batcher: RequestBatcher[TurnRequest[Any]] = RequestBatcher(loop, submit)

    async def run_in_turn(self, operation: Callable[[Transaction], T]) -> T:
        """Run `operation` in the engine's next transaction, and return its result after the commit."""
        result: T = await self._submit_request(operation, None)
        return result

    async def run_and_render(
        self, operation: Callable[[Transaction], T], render: Callable[[Transaction, Sequence[T]], Sequence[U]]
    ) -> U:
        """Run `operation` like `run_in_turn`, and return its result as `render` shows it at the end of the turn."""
        rendered: U = await self._submit_request(operation, render)
        return rendered

    async def dry_run(
        self, operation: Callable[[Transaction], T], render: Callable[[Transaction, Sequence[T]], Sequence[U]]
    ) -> U:
        """Run and render `operation`, then roll it back."""
        rendered: U = await self._submit_request(operation, render, is_dry_run=True)
        return rendered

    async def run_once(
        self,
        idempotency: IdempotentRequest,
        operation: Callable[[Transaction], T],
        render: Callable[[Transaction, Sequence[T]], Sequence[U]],
    ) -> U | StoredResponse:
        """Run and render `operation` at most once for an idempotency key. A repeated request gets the stored
        response."""
        return await self._submit_request(  # type: ignore[no-any-return]
            partial(run_once, idempotency=idempotency, operation=operation), render, idempotency=idempotency
        )

    async def _submit_request(
        self,
        operation: Callable[[Transaction], T],
        render: Callable[[Transaction, Sequence[T]], Sequence[Any]] | None,
        *,
        is_dry_run: bool = False,
        idempotency: IdempotentRequest | None = None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()

        def on_done(result: Any) -> None:
            self._results.append((response, result))
            if not self._is_wakeup_scheduled:  # one wake-up for all results of a turn
                self._is_wakeup_scheduled = True
                loop.call_soon_threadsafe(self._deliver_results)

        self._batcher.add(TurnRequest(operation, on_done, render, is_dry_run=is_dry_run, idempotency=idempotency))
        return await response

    def _deliver_results(self) -> None:
        self._is_wakeup_scheduled = False
        while self._results:
            response, result = self._results.popleft()
            if response.done():
                continue
            if isinstance(result, Exception):
                response.set_exception(result)
            else:
                response.set_result(result)


class RequestBatcher(Generic[T]):
    """Batcher of requests, on the event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submit: Callable[..., None]) -> None:
        self._loop = loop
        self._submit = submit
        self._pending: list[T] = []

    def add(self, request: T) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush_when_idle, 0, self._loop.time() + _MAX_BATCH_DELAY)
        self._pending.append(request)

    def _flush_when_idle(self, previous_count: int, deadline: float) -> None:
        """Submit the pending requests, unless more have arrived than `previous_count`."""
        count = len(self._pending)
        if previous_count < count < _MAX_BATCH_SIZE and self._loop.time() < deadline:
            self._loop.call_soon(self._flush_when_idle, count, deadline)
            return
        batch, self._pending = self._pending, []
        self._submit(*batch)
