"""Who is in the middle of a direct execution is not thrown out because the store cannot be read for a while."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api import attendance
from rota.errors import NotFound, StoreError
from rota.ids import SlotId


class Context:
    """Its store is away as often as it is told to be."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.hub = SimpleNamespace(is_closed=False)

    def sight(self) -> None: ...

    async def look(self, _view: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def look(context: Context) -> Any:
    return asyncio.run(attendance.look_patiently(context, SlotId(1)))  # type: ignore[arg-type]


def test_a_store_that_is_away_for_a_while_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "_LOOK_AGAIN", 0.0)
    away = StoreError("the database cannot be used")
    assert look(Context(away, away, "seen")) == "seen"


def test_but_not_by_a_scheduler_that_ends_and_not_for_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "_LOOK_AGAIN", 0.0)
    ending = Context(StoreError("the database cannot be used"), "seen")
    ending.hub.is_closed = True
    with pytest.raises(StoreError):
        look(ending)
    with pytest.raises(NotFound):
        look(Context(NotFound("no such slot"), "seen"))
