"""task-spooler: a C program with a queue in memory (Debian package `task-spooler`, program `tsp`)."""

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

    def measure_commands(self, count: int, concurrency: int) -> float:
        """Return commands per second, from a full queue to the last end. The first job blocks the queue until then."""
        try:
            return self._drain(count, concurrency)
        finally:
            self._tsp("-K")  # its server would outlive the bench

    def _drain(self, count: int, concurrency: int) -> float:
        self._tsp("-S", "1")
        fifo = f"{self._environment['TS_SOCKET']}.gate"
        if not Path(fifo).exists():
            os.mkfifo(fifo)
        self._tsp("sh", "-c", f": > '{fifo}'")
        for _ in range(count):
            self._tsp("/bin/true")
        self._tsp("-S", str(concurrency))
        started = time.perf_counter()
        with Path(fifo).open("rb") as gate:
            gate.read()
        self._tsp("-w")
        return count / (time.perf_counter() - started)
