"""Looks at the hold file for the scheduler. A file cannot tell that it was made or removed, and a file system that
does not answer must hold up nobody: each look has its thread, and there is one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota.probe.hold import look_for_hold

_PATIENCE = 2.0
"""Seconds after which a file of which nothing can be known counts as being there."""


class HoldFile:
    def __init__(self, path: Callable[[], Path | None]) -> None:
        self._path = path
        self._looking: tuple[Path, asyncio.Future[str | None]] | None = None

    async def look(self) -> str | None:
        """What it says now; none while there is no such file."""
        path = self._path()
        if path is None:
            return None
        if self._looking is None or self._looking[1].done() or self._looking[0] != path:
            self._looking = path, asyncio.ensure_future(asyncio.to_thread(look_for_hold, path))
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking[1]), _PATIENCE)
        except TimeoutError:
            return f"the file system of {path} does not answer"
