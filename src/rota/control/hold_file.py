"""Hold file: while it exists, no new jobs start. Its first line is the reason.

The path can hold anything, so only a prefix is read, without blocking, and an unreadable file counts as existing. A
file does not report that it was created or removed, and a file system that does not answer must not block the
scheduler, so each read runs in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

_MAX_TEXT_LENGTH = 200
_MAX_READ_BYTES = 4 * _MAX_TEXT_LENGTH
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


def read_hold_file(path: Path) -> str | None:
    """Return the reason in the file, or None if the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return f"the file {path} is a broken symbolic link" if path.is_symlink() else None
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        prefix = os.read(descriptor, _MAX_READ_BYTES) if is_file else b""
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return _first_line(prefix) or f"the file {path} exists"


def _first_line(content: bytes) -> str:
    text = content.decode(errors="replace").lstrip("\N{BOM}").partition("\n")[0].replace("\t", " ")
    return "".join(char for char in text if char.isprintable()).strip()[:_MAX_TEXT_LENGTH]
