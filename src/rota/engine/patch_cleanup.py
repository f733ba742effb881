"""Removal of input patches that no job refers to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

MIN_AGE_SECONDS = 3600.0
"""Seconds that an unused patch is kept: it is written before the submit that refers to it is stored. A submit of the
same content writes it again."""


def remove_unused_patches(directory: Path, list_used: Callable[[], Collection[str]]) -> int:
    """Remove old unused patches, and return the number of bytes. Call `list_used` only if there are old patches."""
    try:
        old = [path for path in directory.glob("*.patch") if _is_old(path)]
    except OSError:
        return 0
    unused = set(old) - {directory / f"{digest}.patch" for digest in list_used()} if old else set()
    return sum(_remove(path) for path in sorted(unused))


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > MIN_AGE_SECONDS
    except OSError:
        return False


def _remove(path: Path) -> int:
    """Remove a patch: rename it, check its age again, and restore it if it was written again since."""
    renamed = path.with_suffix(".removed")
    with suppress(OSError):
        path.rename(renamed)
        if not _is_old(renamed):
            with suppress(FileExistsError):
                os.link(renamed, path)
            renamed.unlink()
            return 0
        size = renamed.stat().st_size
        renamed.unlink()
        return size
    return 0
