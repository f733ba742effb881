"""Patches that no job names any more."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rota.engine import patch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("used", "unused", "fresh"):
        path = tmp_path / f"{name}.patch"
        path.write_text("12345")
        if name != "fresh":
            os.utime(path, (0, 0))
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_what_is_old_and_named_by_nobody_goes(folder: Path) -> None:
    assert patch.remove_unused(folder, lambda: {"used"}) == 5
    assert names(folder) == ["fresh.patch", "used.patch"]


def test_nobody_is_asked_where_there_is_nothing(tmp_path: Path) -> None:
    def used() -> set[str]:
        raise AssertionError

    assert patch.remove_unused(tmp_path, used) == 0
    assert patch.remove_unused(tmp_path / "missing", used) == 0


def test_one_that_is_written_anew_meanwhile_stays(folder: Path) -> None:
    """A submit of the same content comes between the question and the removal."""

    def used() -> set[str]:
        now = time.time()
        os.utime(folder / "unused.patch", (now, now))
        return {"used"}

    assert patch.remove_unused(folder, used) == 0
    assert names(folder) == ["fresh.patch", "unused.patch", "used.patch"]
