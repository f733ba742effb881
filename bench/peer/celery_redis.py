"""Celery with Redis: its default worker with processes, and a `redis-server` of its own on a Unix socket.

Redis keeps an append-only file and syncs it with each write (`appendonly yes`, `appendfsync always`), like Rota's
commits. There are no logs, sessions or results. As by default, a task is acknowledged before it runs.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peer import gate

_SERVER = shutil.which("redis-server")
_SERVER_TIMEOUT = 10.0
IS_AVAILABLE = _SERVER is not None and find_spec("celery") is not None and find_spec("redis") is not None


def _make_tasks(socket: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from celery import Celery

    app = Celery("bench", broker=f"redis+socket://{socket}", set_as_current=False)
    app.conf.task_ignore_result = True
    return app, {task: app.task(name=task.__name__)(task) for task in (gate.wait_at_gate, gate.run_command)}


def _await_server(socket: Path) -> None:
    from redis import Redis
    from redis.exceptions import ConnectionError as NotConnected

    deadline = time.monotonic() + _SERVER_TIMEOUT
    with Redis(unix_socket_path=str(socket)) as client:
        while True:
            try:
                client.ping()
            except NotConnected as error:
                if time.monotonic() > deadline:
                    raise RuntimeError("redis-server does not respond") from error
                time.sleep(0.02)
            else:
                return


class CeleryRedis:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def measure_commands(self, count: int, concurrency: int) -> float:
        with gate.scratch_directory(self._directory) as directory:
            socket = directory / "redis.sock"
            server = [
                str(_SERVER),
                "--port",
                "0",
                "--unixsocket",
                str(socket),
                "--dir",
                str(directory),
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--save",
                "",
            ]
            with gate.run_process(server, directory / "redis.log"):
                _await_server(socket)
                app, tasks = _make_tasks(str(socket))

                def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                    for _ in range(times):
                        tasks[task].delay(argument)

                try:
                    return gate.measure_worker(directory, __name__, str(socket), enqueue, count, concurrency)
                finally:
                    app.close()


def _run_worker(socket: str, concurrency: int) -> None:
    app, _ = _make_tasks(socket)
    app.worker_main(["worker", f"--concurrency={concurrency}", "--loglevel=warning"])


if __name__ == "__main__":
    _run_worker(sys.argv[1], int(sys.argv[2]))
