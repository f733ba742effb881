"""The limits: what the machine itself takes for a command, with nothing around it and with the least there can be.

The floor is a spawn in its own session, a fresh directory, two log files and one FULL commit, on the same file
system as everything else, one command after the other at each place. Who commits several commands together, or makes
one while another runs, can be quicker.
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
    """Sequential `posix_spawn`s a second."""
    begun = time.perf_counter()
    for _ in range(count):
        os.waitpid(os.posix_spawn(_TRUE, [_TRUE], _ENVIRONMENT), 0)
    return count / (time.perf_counter() - begun)


class Floor:
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

    def _end(self) -> None:
        _, status = os.waitpid(-1, 0)
        self._database.execute("INSERT INTO ended (status) VALUES (?)", (status,))

    def commands(self, count: int, concurrency: int) -> float:
        """Commands a second with so many in flight."""
        begun = time.perf_counter()
        in_flight = 0
        for _ in range(count):
            if in_flight == concurrency:
                self._end()
                in_flight -= 1
            self._start()
            in_flight += 1
        for _ in range(in_flight):
            self._end()
        return count / (time.perf_counter() - begun)
