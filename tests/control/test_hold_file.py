"""Reads of the hold file: a hanging file system holds jobs and blocks no caller."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rota.control import hold_file
from rota.control.hold_file import HoldFile

PATH = Path("/somewhere/hold")


def test_no_path_means_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_file, "read_hold_file", lambda _: 1 / 0)
    assert asyncio.run(HoldFile(lambda: None).read()) is None


def test_hanging_file_system_holds_and_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LESSONS Dispatch: unknown is not ready."""
    may_return, paths = threading.Event(), []

    def hang(path: Path) -> str | None:
        paths.append(path)
        assert may_return.wait(30)
        return None

    monkeypatch.setattr(hold_file, "read_hold_file", hang)
    monkeypatch.setattr(hold_file, "_PROBE_TIMEOUT", 0.05)
    file = HoldFile(lambda: PATH)

    async def read_repeatedly() -> list[str | None]:
        reasons = [await file.read(), *await asyncio.gather(file.read(), file.read())]
        may_return.set()
        monkeypatch.setattr(hold_file, "_PROBE_TIMEOUT", 30)
        return [*reasons, await file.read()]

    timed_out = f"the file system of {PATH} does not answer"
    assert asyncio.run(read_repeatedly()) == [timed_out, timed_out, timed_out, None]
    assert paths == [PATH]
