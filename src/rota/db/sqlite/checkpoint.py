"""Checkpoints: a thread copies committed pages from the log into the database file, off the writer's path.

By default SQLite does this inside about every sixtieth commit, and the clients of that commit wait for two more disk
writes. The log restarts only when it is fully copied, and under constant load this thread is always slightly behind. So
above a certain size the writer copies the rest itself, which is little by then.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

COMMITS_PER_CHECKPOINT = 25
"""Commits between two checkpoints. A commit writes about a dozen pages."""
AUTOCHECKPOINT_PAGES = 1000
"""Size of the log in pages at which the writer does the checkpoint."""
_FRAME_BYTES = 4096 + 24
_WAL_BYTES = (AUTOCHECKPOINT_PAGES + 200) * _FRAME_BYTES
_CHUNK_BYTES = 1 << 20
_MIN_FREE_FACTOR = 10
"""Free disk space that a preallocation requires, as a multiple of the size of the log."""


def preallocate_wal(log: Path) -> None:
    """Extend the log to its maximum size, inside a transaction.

    A commit that extends the log must also wait for its new length to reach the disk, which doubles its time. SQLite
    never reads what follows the last commit. On a nearly full disk the log stays as it is.
    """
    try:
        length = log.stat().st_size
        disk = os.statvfs(log)
    except OSError:
        return
    if disk.f_bavail * disk.f_frsize < _MIN_FREE_FACTOR * _WAL_BYTES:
        return
    try:
        with log.open("r+b") as file:
            file.seek(length)
            for start in range(length, _WAL_BYTES, _CHUNK_BYTES):
                file.write(bytes(min(_CHUNK_BYTES, _WAL_BYTES - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            os.truncate(log, length)


class Checkpointer:
    def __init__(self, address: str) -> None:
        self._address = address
        self._commits = 0
        self._checkpoint_requested = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def on_commit(self) -> None:
        """Count a commit, on the writer's thread, and request a checkpoint when one is due."""
        self._commits += 1
        if self._commits % COMMITS_PER_CHECKPOINT:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-checkpoint", daemon=True)
            self._thread.start()
        self._checkpoint_requested.set()

    def close(self) -> None:
        self._is_closed = True
        self._checkpoint_requested.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._address, uri=True, isolation_level=None)
        try:
            while self._checkpoint_requested.wait() and not self._is_closed:
                self._checkpoint_requested.clear()
                # Busy is expected: the writer is committing. The writer reports any other error itself.
                try:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                except sqlite3.Error:
                    continue
        finally:
            connection.close()
