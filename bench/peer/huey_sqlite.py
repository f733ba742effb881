"""huey with SQLite: its consumer with threads, as by default, and `synchronous=FULL` commits, as Rota's.

No logs, no sessions, and no record of a command that went well. The consumer runs before the queue is filled, each
of its threads held at a gate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peer import gate

AVAILABLE = find_spec("huey") is not None


def _tasks(database: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from huey import SqliteHuey

    huey = SqliteHuey(filename=database, fsync=True)
    return huey, {task: huey.task()(task) for task in (gate.stand, gate.command)}


class Huey:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def commands(self, count: int, concurrency: int) -> float:
        with gate.room(self._directory) as place:
            database = str(place / "huey.db")
            huey, tasks = _tasks(database)

            def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                for _ in range(times):
                    tasks[task](argument)

            try:
                return gate.measure(place, __name__, database, enqueue, count, concurrency)
            finally:
                huey.storage.close()


def _work(database: str, concurrency: int) -> None:
    huey, _ = _tasks(database)
    huey.create_consumer(workers=concurrency, periodic=False).run()


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
