"""How often a follower looks at a file."""

from __future__ import annotations

import asyncio

import pytest

from rota.api import log_follow
from rota.api.log_follow import Pace


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    kept: list[float] = []

    async def wait_for(event: asyncio.Event, seconds: float) -> bool:
        kept.append(seconds)
        return event.is_set()

    monkeypatch.setattr(log_follow, "wait_for", wait_for)
    return kept


def test_the_longer_it_is_quiet_the_more_seldom(pauses: list[float]) -> None:
    pace, changed = Pace(), asyncio.Event()

    def look() -> bool:
        return asyncio.run(pace.is_worth_a_look(changed, lambda: len(pauses) % 6 == 0))

    assert look()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    pauses.clear()
    changed.set()
    assert look(), "and what was written, or a change, makes it quick again"
    assert look()
    assert pauses == [0.1, 0.1]


def test_no_longer_than_it_is_let() -> None:
    assert not asyncio.run(Pace().is_worth_a_look(asyncio.Event(), lambda: False, within=0.01))
