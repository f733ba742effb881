"""Other tools, doing the same work on the same machine in the same minute, where they are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from bench.peer import task_spooler

Commands = Callable[[int, int], float]
"""So many commands, so many at a time: how many a second."""


def available(directory: Path) -> Mapping[str, Commands]:
    found = {}
    if task_spooler.PROGRAM is not None:
        found["task-spooler (in memory)"] = task_spooler.TaskSpooler(directory).commands
    return found
