"""procrastinate with PostgreSQL: one worker with so many tasks at a time, and a server of its own.

Tasks run in threads and are kept as rows after their end. No logs, no sessions. The worker
runs before the queue is filled, each of its slots held at a gate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import postgres
from bench.peer import gate

_INSTALLED = all(find_spec(name) is not None for name in ("procrastinate", "psycopg"))


def available(directory: Path) -> bool:
    return _INSTALLED and postgres.available(directory)


def _tasks(url: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))
    return app, {task: app.task(name=task.__name__)(task) for task in (gate.stand, gate.command)}


class Procrastinate:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: postgres.Server | None = None

    def _founded(self) -> postgres.Server:
        if self._server is None:
            server = postgres.Server(self._directory / "postgres")
            server.found()
            with server.running(), _tasks(server.url)[0].open() as app:
                app.schema_manager.apply_schema()
            self._server = server
        return self._server

    def commands(self, count: int, concurrency: int) -> float:
        server = self._founded()
        with gate.room(self._directory) as place, server.running():
            app, tasks = _tasks(server.url)

            def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                tasks[task].batch_defer(*[{"gate": argument}] * times)

            with app.open():
                return gate.measure(place, __name__, server.url, enqueue, count, concurrency)


def _work(url: str, concurrency: int) -> None:
    app, _ = _tasks(url)
    app.run_worker(concurrency=concurrency)


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
