"""Celery with Redis: its worker with processes, as by default, and a `redis-server` of its own on a unix socket.

Redis keeps an append-only file and syncs it with every write (`appendonly yes`, `appendfsync always`), as Rota's
commits do. No logs, no sessions, no results; a task is acknowledged before it runs, as by default. The worker runs
before the queue is filled, each of its processes held at a gate.
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
AVAILABLE = _SERVER is not None and find_spec("celery") is not None and find_spec("redis") is not None


def _tasks(socket: str) -> tuple[Any, dict[Callable[[str], None], Any]]:
    from celery import Celery

    app = Celery("bench", broker=f"redis+socket://{socket}", set_as_current=False)
    app.conf.task_ignore_result = True
    return app, {task: app.task(name=task.__name__)(task) for task in (gate.stand, gate.command)}


def _await_server(socket: Path) -> None:
    from redis import Redis
    from redis.exceptions import ConnectionError as NotYet

    until = time.monotonic() + 10
    with Redis(unix_socket_path=str(socket)) as client:
        while True:
            try:
                client.ping()
            except NotYet as error:
                if time.monotonic() > until:
                    raise RuntimeError("redis-server does not answer") from error
                time.sleep(0.02)
            else:
                return


class CeleryRedis:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def commands(self, count: int, concurrency: int) -> float:
        with gate.room(self._directory) as place:
            socket = place / "redis.sock"
            server = [
                str(_SERVER), "--port", "0", "--unixsocket", str(socket), "--dir", str(place),
                "--appendonly", "yes", "--appendfsync", "always", "--save", "",
            ]  # fmt: skip
            with gate.running(server, place / "redis.log"):
                _await_server(socket)
                app, tasks = _tasks(str(socket))

                def enqueue(task: Callable[[str], None], argument: str, times: int) -> None:
                    for _ in range(times):
                        tasks[task].delay(argument)

                try:
                    return gate.measure(place, __name__, str(socket), enqueue, count, concurrency)
                finally:
                    app.close()


def _work(socket: str, concurrency: int) -> None:
    app, _ = _tasks(socket)
    app.worker_main(["worker", f"--concurrency={concurrency}", "--loglevel=warning"])


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]))
