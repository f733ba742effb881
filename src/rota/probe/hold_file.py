"""Hold file: while it exists, no new jobs start. Its first line is the reason.

The path can hold anything, so only a prefix is read, without blocking, and an unreadable file counts as existing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MAX_TEXT_LENGTH = 200
_MAX_READ_BYTES = 4 * _MAX_TEXT_LENGTH


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
