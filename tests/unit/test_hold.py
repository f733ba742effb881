"""Looks at the hold file: a file system that does not answer holds jobs, and holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rota.api import hold
from rota.api.hold import HoldFile

PATH = Path("/somewhere/hold")


def test_no_path_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "look_for_hold", lambda _: 1 / 0)
    assert asyncio.run(HoldFile(lambda: None).look()) is None


def test_what_does_not_answer_counts_as_being_there_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LESSONS Dispatch: unknown is not ready."""
    answers, asked = threading.Event(), []

    def look_for_hold(path: Path) -> str | None:
        asked.append(path)
        assert answers.wait(30)
        return None

    monkeypatch.setattr(hold, "look_for_hold", look_for_hold)
    monkeypatch.setattr(hold, "_PATIENCE", 0.05)
    file = HoldFile(lambda: PATH)

    async def looks() -> list[str | None]:
        said = [await file.look(), *await asyncio.gather(file.look(), file.look())]
        answers.set()
        monkeypatch.setattr(hold, "_PATIENCE", 30)
        return [*said, await file.look()]

    silent = f"the file system of {PATH} does not answer"
    assert asyncio.run(looks()) == [silent, silent, silent, None]
    assert asked == [PATH]
