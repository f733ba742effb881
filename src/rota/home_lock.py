"""Lock of a home: held by its scheduler, or by a command that changes the store while no scheduler runs.

The kernel releases the lock when the holder exits, so that a dead holder never blocks the next one. A user can remove
the lock file of a living scheduler. The scheduler then puts the file back and locks it again (`restore`). A process
that finds no lock file in a used home waits for that before it takes the lock (`await_removed_lock`). A scheduler that
is stopped for longer than that is fenced off by the epoch of the store.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rota.errors import Conflict
from rota.home import Home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TextIO

RESTORE_TIMEOUT = 2.0
"""Seconds in which a living scheduler has certainly put its removed lock file back."""
_POLL_INTERVAL = 0.02


class HomeLock:
    """Lock of a home, held by this process."""

    def __init__(self, home: Home, file: TextIO) -> None:
        self._home = home
        self._file = file
        # An open descriptor keeps the inode from being used again: a home that was created again is another one.
        self._directory = os.open(home.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    @property
    def is_current(self) -> bool:
        """Whether the lock file of the home is the one that this process holds."""
        return not self.is_home_gone and _is_same_file(self._home.lock, self._file.fileno())

    @property
    def is_home_gone(self) -> bool:
        """Whether the directory of the home was removed or replaced."""
        return not _is_same_file(self._home.root, self._directory)

    def restore(self) -> None:
        """Create the lock file again and lock it. Raises Conflict if another process holds it, and OSError if it cannot
        be created."""
        previous, self._file = self._file, _lock_file(self._home)
        previous.close()

    def close(self) -> None:
        self._file.close()
        os.close(self._directory)


@contextmanager
def acquire_home_lock(home: Home) -> Iterator[HomeLock]:
    await_removed_lock(home)
    lock = HomeLock(home, _lock_file(home))
    try:
        yield lock
    finally:
        lock.close()


def await_removed_lock(home: Home) -> None:
    """Wait until the lock file of a used home exists: a living scheduler puts it back."""
    deadline = time.monotonic() + RESTORE_TIMEOUT
    while not home.lock.exists() and home.jobs.exists() and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _lock_file(home: Home) -> TextIO:
    """Return the lock file, created if missing, locked and with the pid of this process."""
    file = _open_locked(home)
    while not _is_same_file(home.lock, file.fileno()):  # removed before it was locked
        file.close()
        file = _open_locked(home)
    with suppress(OSError):  # on a full disk the pid cannot be stored; the lock is held anyway
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
    return file


def _open_locked(home: Home) -> TextIO:
    home.lock.touch(mode=0o600)
    file = home.lock.open("r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            holder = file.read().strip() or "?"
        raise Conflict(f"another scheduler (pid {holder}) uses {home.root}; use it, or run `rota down` first") from None
    return file


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
