"""The floor for commands: what the machine itself needs for a command, bare and with the minimum of bookkeeping.

The floor is a spawn in a session of its own, a new directory, two log files and one FULL commit, on the file system
under test, one command after another in each slot. A program that commits several commands together, or prepares one
while another runs, can be faster.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from pathlib import Path

_TRUE = "/bin/true"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def bare_spawns(count: int) -> float:
    """Return sequential `posix_spawn` calls per second."""
    started = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn(_TRUE, [_TRUE], _ENVIRONMENT), 0)
    return count / (time.perf_counter() - started)


class CommandFloor:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count()
        self._database = sqlite3.connect(directory / "floor.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE ended (id INTEGER PRIMARY KEY, status INTEGER)")

    def _start(self) -> int:
        number = next(self._numbers)
        directory = self._directory / str(number)
        directory.mkdir()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 1, str(directory / "stdout.log"), flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, str(directory / "stderr.log"), flags, 0o600),
        ]
        return os.posix_spawn(_TRUE, [_TRUE], _ENVIRONMENT, file_actions=actions, setsid=True)

    def _reap(self) -> None:
        _, status = os.waitpid(-1, 0)
        self._database.execute("INSERT INTO ended (status) VALUES (?)", (status,))

    def measure_commands(self, count: int, concurrency: int) -> float:
        """Return commands per second at this concurrency."""
        started = time.perf_counter()
        in_flight = 0
        for _ in range(count):
            if in_flight == concurrency:
                self._reap()
                in_flight -= 1
            self._start()
            in_flight += 1
        for _ in range(in_flight):
            self._reap()
        return count / (time.perf_counter() - started)
