"""Other tools, doing the same work on the same machine in the same minute, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.peer import celery_redis, huey_sqlite, procrastinate_postgres, task_spooler

Commands = Callable[[int, int], float]
"""So many commands, so many at a time: how many a second."""


def available(directory: Path) -> Mapping[str, Commands]:
    found: dict[str, Commands] = {}
    if task_spooler.PROGRAM is not None:
        found["task-spooler (in memory)"] = task_spooler.TaskSpooler(directory).commands
    if huey_sqlite.AVAILABLE:
        found["huey (SQLite, FULL commits)"] = huey_sqlite.Huey(directory).commands
    if celery_redis.AVAILABLE:
        found["Celery (Redis, appendfsync always)"] = celery_redis.CeleryRedis(directory).commands
    if procrastinate_postgres.available(directory):
        found["procrastinate (PostgreSQL)"] = procrastinate_postgres.Procrastinate(directory).commands
    return found
