"""State of a `flock`: whether it is held, and by which process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

UNKNOWN_PID = "unknown"
"""Pid of a holder that could not write its pid, for example on a full disk."""


def is_held(path: Path) -> bool:
    """Return whether the lock is held. The check takes a shared lock for a moment; a starter that collides with it
    tries again."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_pid(path: Path) -> str:
    """Return the pid that the holder wrote into the lock file, or `UNKNOWN_PID`."""
    try:
        return path.read_text().strip() or UNKNOWN_PID
    except OSError:
        return UNKNOWN_PID
