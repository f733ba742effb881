"""The readiness check does not wait for a disk that does not answer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.blocking import BlockingCalls
from rota.control import health
from rota.control.health import check_disk
from rota.home import Home


def test_dead_mount_holds_one_thread(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_back, paths = threading.Event(), list[str]()

    def hang(path: str) -> Any:
        paths.append(path)
        is_back.wait()
        return SimpleNamespace(f_bavail=1 << 30, f_frsize=1)

    monkeypatch.setattr("os.statvfs", hang)
    monkeypatch.setattr(health, "_PROBE_TIMEOUT", 0.05)

    async def act() -> None:
        context: Any = SimpleNamespace(home=Home(home), blocking_calls=BlockingCalls())
        reasons = [f"the file system of {home} does not answer"]
        assert await check_disk(context) == reasons
        assert await asyncio.gather(*[check_disk(context) for _ in range(20)]) == [reasons] * 20
        assert len(paths) == 1, "repeated checks hold one thread"
        is_back.set()
        async with asyncio.timeout(20):
            while await check_disk(context):  # noqa: ASYNC110 - a file system does not announce that it is back
                await asyncio.sleep(0)

    asyncio.run(act())
