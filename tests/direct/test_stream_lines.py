"""A temporary store failure does not end the stream of a direct execution."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.direct import stream
from rota.errors import NotFound, StoreError
from rota.ids import ReservationId


class FakeContext:
    """Context with a store that returns or raises the given values in turn."""

    def __init__(self, *results: Exception | str) -> None:
        self.results = list(results)
        self.hub = SimpleNamespace(is_closed=False)

    def view_context(self) -> None: ...

    async def read(self, _view: Any) -> Any:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def read(context: FakeContext) -> Any:
    return asyncio.run(stream.read_reservation_with_retry(context, ReservationId(1)))  # type: ignore[arg-type]


def test_store_failure_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_STORE_RETRY_DELAY", 0.0)
    failure = StoreError("the database cannot be used")
    assert read(FakeContext(failure, failure, "result")) == "result"


def test_no_retry_while_stopping_or_for_missing_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_STORE_RETRY_DELAY", 0.0)
    stopping = FakeContext(StoreError("the database cannot be used"), "result")
    stopping.hub.is_closed = True
    with pytest.raises(StoreError):
        read(stopping)
    with pytest.raises(NotFound):
        read(FakeContext(NotFound("no such reservation"), "result"))
