"""The measurement of a Python task queue: the same work for each, from a full queue to the last end.

The worker process starts first, with the requested concurrency. Each of its slots gets a task that waits at a closed
gate. Then the queue is filled, and the clock starts when the gate opens. So neither the start of the worker nor the
submits are measured. Everything that a peer needs starts and stops with its own measurement: no peer runs, or polls,
while another is measured.

A task ends by writing one byte to a pipe; the clock stops when all have. A peer may record its last tasks a moment
later, so the figure is, if anything, in its favor.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_SILENCE_TIMEOUT = 60.0


def wait_at_gate(gate: str) -> None:
    """Occupy a slot until the gate is open; a task."""
    _signal(gate)
    with Path(gate, "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def run_command(gate: str) -> None:
    """Run the same command in the same environment as Rota; a task."""
    subprocess.run(["/bin/true"], cwd="/", env={"PATH": "/usr/bin:/bin"}, check=True)
    _signal(gate)


def _signal(gate: str) -> None:
    os.write(_open_pipe(gate), b".")


@cache
def _open_pipe(gate: str) -> int:
    return os.open(Path(gate, "pipe"), os.O_WRONLY)


class _Gate:
    def __init__(self, directory: Path) -> None:
        os.mkfifo(directory / "pipe")
        self._pipe = os.open(directory / "pipe", os.O_RDWR | os.O_NONBLOCK)
        self._lock = (directory / "lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def open(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        self._lock.close()
        os.close(self._pipe)

    def await_signals(self, count: int, worker: subprocess.Popen[bytes]) -> None:
        received_at = time.monotonic()
        while count:
            if select.select([self._pipe], [], [], 1)[0]:
                count -= len(os.read(self._pipe, count))
                received_at = time.monotonic()
            elif worker.poll() is not None or time.monotonic() > received_at + _SILENCE_TIMEOUT:
                raise RuntimeError(f"the worker ended or was silent for {_SILENCE_TIMEOUT:g} s; {count} tasks are left")


@contextmanager
def run_process(words: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in its own session, and end it with all its children at the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=_REPOSITORY, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    except RuntimeError as error:
        error.add_note(log.read_text(errors="replace")[-2000:])
        raise
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def scratch_directory(parent: Path) -> Iterator[Path]:
    """Create a directory for one measurement, on the file system under test."""
    with tempfile.TemporaryDirectory(prefix="peer-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


Enqueue = Callable[[Callable[[str], None], str, int], None]
"""Queue a task, `wait_at_gate` or `run_command`, this many times, with the gate as its argument."""


def measure_worker(directory: Path, module: str, address: str, enqueue: Enqueue, count: int, concurrency: int) -> float:
    """Return commands per second. `python -m MODULE ADDRESS CONCURRENCY` is the worker of the peer."""
    gate = _Gate(directory)
    try:
        words = [sys.executable, "-m", module, address, str(concurrency)]
        with run_process(words, directory / "worker.log") as worker:
            enqueue(wait_at_gate, str(directory), concurrency)
            gate.await_signals(concurrency, worker)
            enqueue(run_command, str(directory), count)
            started = time.perf_counter()
            gate.open()
            gate.await_signals(count, worker)
            return count / (time.perf_counter() - started)
    finally:
        gate.close()
