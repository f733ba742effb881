"""Batches of requests to the engine. A turn costs as much as several requests, so requests that arrive together are
submitted together: when an iteration of the event loop adds none, when there are many, or after a maximum delay.

    iteration 1    arrived: a, b
    iteration 2    arrived: c          there are more: wait for another iteration
    iteration 3    arrived: nothing    submit a, b and c
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_MAX_BATCH_SIZE = 64
_MAX_BATCH_DELAY = 0.002
"""Seconds. An iteration with much other work can take longer."""


class RequestBatcher(Generic[T]):
    """Batcher of requests, on the event loop."""

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
