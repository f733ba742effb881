"""Delay between two reads of a file that is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rota.jobs import log_endpoints
from rota.jobs.log_endpoints import PollBackoff


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Delays that the code under test has requested. None of them takes any time."""
    recorded: list[float] = []

    async def wait_for(event: asyncio.Event, seconds: float) -> bool:
        recorded.append(seconds)
        return event.is_set()

    monkeypatch.setattr(log_endpoints, "wait_for", wait_for)
    return recorded


def test_delay_grows_while_quiet_and_resets_after_a_change(delays: list[float]) -> None:
    backoff, changed = PollBackoff(), asyncio.Event()

    def wait(has_more: Callable[[], bool]) -> bool:
        return asyncio.run(backoff.wait_for_change(changed, has_more))

    assert wait(lambda: len(delays) == 6)
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    delays.clear()
    changed.set()
    assert wait(lambda: False), "a change resets the delay"
    assert wait(lambda: False)
    assert delays == [0.1, 0.1]


def test_wait_ends_after_max_seconds() -> None:
    assert not asyncio.run(PollBackoff().wait_for_change(asyncio.Event(), lambda: False, max_seconds=0.01))
