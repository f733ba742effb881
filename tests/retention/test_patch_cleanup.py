"""Clean-up of patches that no job uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rota.retention import cleanup


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


def test_only_old_unused_patches_are_removed(folder: Path) -> None:
    assert cleanup.remove_unused_patches(folder, lambda: {"used"}) == 5
    assert names(folder) == ["fresh.patch", "used.patch"]


def test_used_patches_are_not_read_without_candidates(tmp_path: Path) -> None:
    def used() -> set[str]:
        raise AssertionError

    assert cleanup.remove_unused_patches(tmp_path, used) == 0
    assert cleanup.remove_unused_patches(tmp_path / "missing", used) == 0


def test_patch_written_again_meanwhile_is_kept(folder: Path) -> None:
    """A submit of the same content comes between the query and the removal."""

    def used() -> set[str]:
        now = time.time()
        os.utime(folder / "unused.patch", (now, now))
        return {"used"}

    assert cleanup.remove_unused_patches(folder, used) == 0
    assert names(folder) == ["fresh.patch", "unused.patch", "used.patch"]
