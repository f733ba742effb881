"""huey with SQLite: its default consumer with threads, and `synchronous=FULL` commits as in Rota.

It keeps no logs, no sessions, and no record of a successful command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peer import gate

IS_AVAILABLE = find_spec("huey") is not None


def _make_tasks(database: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from huey import SqliteHuey

    huey = SqliteHuey(filename=database, fsync=True)
    return huey, {task: huey.task()(task) for task in (gate.wait_at_gate, gate.run_command)}


class Huey:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def measure_commands(self, count: int, concurrency: int) -> float:
        with gate.scratch_directory(self._directory) as directory:
            database = str(directory / "huey.db")
            huey, tasks = _make_tasks(database)

            def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                for _ in range(times):
                    tasks[task](argument)

            try:
                return gate.measure_worker(directory, __name__, database, enqueue, count, concurrency)
            finally:
                huey.storage.close()


def _run_worker(database: str, concurrency: int) -> None:
    huey, _ = _make_tasks(database)
    huey.create_consumer(workers=concurrency, periodic=False).run()


if __name__ == "__main__":
    _run_worker(sys.argv[1], int(sys.argv[2]))
