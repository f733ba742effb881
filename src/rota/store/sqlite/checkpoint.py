"""What was committed is copied from the log into the database file by a thread of its own, off the writer's path.

Left to itself SQLite does this inside every sixtieth commit or so, and whoever waits for that commit waits for two
more writes to reach the disk. A writer that never rests leaves this thread always a little behind, and the log is begun
anew only when nothing is left in it: so at a much larger size the writer still does the rest itself.
"""

from __future__ import annotations

import sqlite3
import threading

EVERY = 50
"""Commits, of a dozen pages each."""
LARGE = 4000
"""Pages of log at which the writer sees to it."""


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
