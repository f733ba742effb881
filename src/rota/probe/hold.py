"""The hold file: while it is there nothing new starts, and its first line says why.

Anybody may write it, and it may be anything: only a beginning of it is read, nothing is waited for, and what cannot be
read is taken for a file that is there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_MOST_SHOWN = 200
_MOST_READ = 4 * _MOST_SHOWN


def look_for_hold(path: Path) -> str | None:
    """What it says; none when there is no such file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return f"the file {path} is a link to nothing" if path.is_symlink() else None
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        beginning = os.read(descriptor, _MOST_READ) if is_file else b""
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return _first_line(beginning) or f"the file {path} exists"


def _first_line(beginning: bytes) -> str:
    text = beginning.decode(errors="replace").lstrip("\N{BOM}").partition("\n")[0].replace("\t", " ")
    return "".join(letter for letter in text if letter.isprintable()).strip()[:_MOST_SHOWN]
