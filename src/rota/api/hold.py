"""Reads of the hold file. A file does not report that it was created or removed, and a file system that does not answer
must not block the scheduler, so each read runs in a thread, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota.probe.hold_file import read_hold_file

_PROBE_TIMEOUT = 2.0
"""Seconds after which a file in an unknown state counts as present."""


class HoldFile:
    def __init__(self, path: Callable[[], Path | None]) -> None:
        self._path = path
        self._probe: tuple[Path, asyncio.Future[str | None]] | None = None

    async def read(self) -> str | None:
        """Return the reason in the file; None if there is no file."""
        path = self._path()
        if path is None:
            return None
        if self._probe is None or self._probe[1].done() or self._probe[0] != path:
            self._probe = path, asyncio.ensure_future(asyncio.to_thread(read_hold_file, path))
        try:
            return await asyncio.wait_for(asyncio.shield(self._probe[1]), _PROBE_TIMEOUT)
        except TimeoutError:
            return f"the file system of {path} does not answer"
