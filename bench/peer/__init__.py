"""Other tools doing the same work on the same machine in the same run, if they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.peer import celery_redis, huey_sqlite, procrastinate_postgres, task_spooler

MeasureCommands = Callable[[int, int], float]
"""A function of a number of commands and a concurrency that returns commands per second."""


def available_peers(directory: Path) -> Mapping[str, MeasureCommands]:
    peers: dict[str, MeasureCommands] = {}
    if task_spooler.PROGRAM is not None:
        peers["task-spooler (in memory)"] = task_spooler.TaskSpooler(directory).measure_commands
    if huey_sqlite.IS_AVAILABLE:
        peers["huey (SQLite, FULL commits)"] = huey_sqlite.Huey(directory).measure_commands
    if celery_redis.IS_AVAILABLE:
        peers["Celery (Redis, appendfsync always)"] = celery_redis.CeleryRedis(directory).measure_commands
    if procrastinate_postgres.is_available(directory):
        peers["procrastinate (PostgreSQL)"] = procrastinate_postgres.Procrastinate(directory).measure_commands
    return peers
