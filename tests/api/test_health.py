"""A disk that does not answer holds up nobody who asks whether the scheduler is ready."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api import health
from rota.api.health import disk
from rota.aside import Asides
from rota.home import Home


def test_a_dead_mount(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_back, looks = threading.Event(), list[str]()

    def hang(path: str) -> Any:
        looks.append(path)
        is_back.wait()
        return SimpleNamespace(f_bavail=1 << 30, f_frsize=1)

    monkeypatch.setattr("os.statvfs", hang)
    monkeypatch.setattr(health, "_PATIENCE", 0.05)

    async def act() -> None:
        context: Any = SimpleNamespace(home=Home(home), asides=Asides())
        said = [f"the file system of {home} does not answer"]
        assert await disk(context) == said
        assert await asyncio.gather(*[disk(context) for _ in range(20)]) == [said] * 20
        assert len(looks) == 1, "however often it is asked, it holds one thread"
        is_back.set()
        async with asyncio.timeout(20):
            while await disk(context):  # noqa: ASYNC110 - nobody is told when a file system is back
                await asyncio.sleep(0)

    asyncio.run(act())
