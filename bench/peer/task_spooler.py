"""task-spooler: a C program that keeps its queue in memory (Debian's package `task-spooler`, program `tsp`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

PROGRAM = shutil.which("tsp")


class TaskSpooler:
    def __init__(self, directory: Path) -> None:
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "TS_SOCKET": str(directory / "tsp.sock"),
            "TMPDIR": str(directory),
            "TS_MAXFINISHED": "10",
        }

    def _tsp(self, *words: str) -> None:
        subprocess.run([str(PROGRAM), *words], env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def commands(self, count: int, concurrency: int) -> float:
        """From a full queue to the last end; a blocker in front keeps it from starting early."""
        try:
            return self._commands(count, concurrency)
        finally:
            self._tsp("-K")  # its server would outlive the bench

    def _commands(self, count: int, concurrency: int) -> float:
        self._tsp("-S", "1")
        fifo = f"{self._environment['TS_SOCKET']}.gate"
        if not Path(fifo).exists():
            os.mkfifo(fifo)
        self._tsp("sh", "-c", f": > '{fifo}'")
        for _ in range(count):
            self._tsp("/bin/true")
        self._tsp("-S", str(concurrency))
        begun = time.perf_counter()
        with Path(fifo).open("rb") as gate:
            gate.read()
        self._tsp("-w")
        return count / (time.perf_counter() - begun)
