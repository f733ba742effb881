"""The patches that jobs were submitted with: each goes once no job names it any more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

GRACE = 3600.0
"""Seconds. A patch is written before the submit that names it is stored, and anew by a submit of the same content."""


def remove_unused(folder: Path, used: Callable[[], Collection[str]]) -> int:
    """How many bytes went. Who uses which is asked only where there is something to ask for."""
    try:
        old = [path for path in folder.glob("*.patch") if _is_old(path)]
    except OSError:
        return 0
    unused = set(old) - {folder / f"{digest}.patch" for digest in used()} if old else set()
    return sum(_remove(path) for path in sorted(unused))


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > GRACE
    except OSError:
        return False


def _remove(path: Path) -> int:
    """Taken away first and looked at again: if it was written anew meanwhile, it is put back."""
    away = path.with_suffix(".removed")
    with suppress(OSError):
        path.rename(away)
        if not _is_old(away):
            with suppress(FileExistsError):
                os.link(away, path)
            away.unlink()
            return 0
        size = away.stat().st_size
        away.unlink()
        return size
    return 0
