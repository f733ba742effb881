"""What was committed is copied from the log into the database file by a thread of its own, off the writer's path.

Left to itself SQLite does this inside every sixtieth commit or so, and whoever waits for that commit waits for two
more writes to reach the disk. A writer that never rests leaves this thread always a little behind, and the log is begun
anew only when nothing is left in it: so at some size the writer still does the rest itself, which is little by then.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path

EVERY = 25
"""Commits, of a dozen pages each."""
LARGE = 1000
"""Pages of log at which the writer sees to it."""
_FRAME = 4096 + 24
_ROOM = (LARGE + 200) * _FRAME
_PIECE = 1 << 20
_SPARE = 10
"""The room is made where the disk has so many times as much."""


def make_room(log: Path) -> None:
    """Inside a transaction. Let the log be as long from the start as it gets: a commit that makes it longer waits for
    the new length to reach the disk as well, which takes as long again. What follows the last commit is never read.
    A disk that is nearly full has no room to make; then it is left as it is."""
    try:
        length = log.stat().st_size
        disk = os.statvfs(log)
    except OSError:
        return
    if disk.f_bavail * disk.f_frsize < _SPARE * _ROOM:
        return
    try:
        with log.open("r+b") as file:
            file.seek(length)
            for start in range(length, _ROOM, _PIECE):
                file.write(bytes(min(_PIECE, _ROOM - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            os.truncate(log, length)


class Checkpointer:
    def __init__(self, address: str) -> None:
        self._address = address
        self._commits = 0
        self._is_wanted = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """From the writer's thread, after a commit."""
        self._commits += 1
        if self._commits % EVERY:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-checkpoint", daemon=True)
            self._thread.start()
        self._is_wanted.set()

    def close(self) -> None:
        self._is_over = True
        self._is_wanted.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        connection = sqlite3.connect(self._address, uri=True, isolation_level=None)
        try:
            while self._is_wanted.wait() and not self._is_over:
                self._is_wanted.clear()
                # Busy is fine: the writer is at it. Any other trouble the writer finds too, and says.
                try:
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                except sqlite3.Error:
                    continue
        finally:
            connection.close()
