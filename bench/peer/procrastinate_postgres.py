"""procrastinate with PostgreSQL: one worker at the requested concurrency, and a server of its own.

Tasks run in threads and remain as rows after their end. It keeps no logs and no sessions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import postgres
from bench.peer import gate

_IS_INSTALLED = all(find_spec(name) is not None for name in ("procrastinate", "psycopg"))


def is_available(directory: Path) -> bool:
    return _IS_INSTALLED and postgres.is_available(directory)


def _make_tasks(url: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))
    return app, {task: app.task(name=task.__name__)(task) for task in (gate.wait_at_gate, gate.run_command)}


class Procrastinate:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: postgres.Server | None = None

    def _initialized_server(self) -> postgres.Server:
        if self._server is None:
            server = postgres.Server(self._directory / "postgres")
            server.initialize()
            with server.running(), _make_tasks(server.url)[0].open() as app:
                app.schema_manager.apply_schema()
            self._server = server
        return self._server

    def measure_commands(self, count: int, concurrency: int) -> float:
        server = self._initialized_server()
        with gate.scratch_directory(self._directory) as directory, server.running():
            app, tasks = _make_tasks(server.url)

            def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                tasks[task].batch_defer(*[{"gate": argument}] * times)

            with app.open():
                return gate.measure_worker(directory, __name__, server.url, enqueue, count, concurrency)


def _run_worker(url: str, concurrency: int) -> None:
    app, _ = _make_tasks(url)
    app.run_worker(concurrency=concurrency)


if __name__ == "__main__":
    _run_worker(sys.argv[1], int(sys.argv[2]))
