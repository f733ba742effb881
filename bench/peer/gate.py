"""How a queue in Python is measured: the same work for each, from a full queue to the last end.

The worker process is started first, with as many slots as asked for. Into each slot goes a task that stands at a
closed gate; only then is the queue filled, and the clock starts as the gate opens. So neither the start of the worker
nor the submits are in the figure. Everything a peer needs is started for one measurement and stopped after it: none
of them runs, or polls, while another is measured.

A task ends by writing one byte to a pipe: the clock stops when all have. As a peer's own record of the very last
tasks may be a moment behind that, the figure is, if anything, in its favour.
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
_PATIENCE = 60.0


def stand(gate: str) -> None:
    """A task: say that a slot is taken, and wait until the gate is open."""
    _tell(gate)
    with Path(gate, "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


def command(gate: str) -> None:
    """A task: the same command in the same environment as Rota's."""
    subprocess.run(["/bin/true"], cwd="/", env={"PATH": "/usr/bin:/bin"}, check=True)
    _tell(gate)


def _tell(gate: str) -> None:
    os.write(_pipe(gate), b".")


@cache
def _pipe(gate: str) -> int:
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

    def await_told(self, count: int, worker: subprocess.Popen[bytes]) -> None:
        heard = time.monotonic()
        while count:
            if select.select([self._pipe], [], [], 1)[0]:
                count -= len(os.read(self._pipe, count))
                heard = time.monotonic()
            elif worker.poll() is not None or time.monotonic() > heard + _PATIENCE:
                raise RuntimeError(f"the worker has ended, or is silent for {_PATIENCE:g} s, with {count} tasks to go")


@contextmanager
def running(words: Sequence[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, which ends with the block, and whatever it started with it."""
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
def room(directory: Path) -> Iterator[Path]:
    """A place for one measurement, on the file system that is measured."""
    with tempfile.TemporaryDirectory(prefix="peer-", dir=directory, ignore_cleanup_errors=True) as place:
        yield Path(place)


Enqueue = Callable[[Callable[[str], None], str, int], None]
"""Queue so many of this task, `stand` or `command`, with the gate as its argument."""


def measure(place: Path, module: str, address: str, enqueue: Enqueue, count: int, concurrency: int) -> float:
    """Commands a second. `python -m MODULE ADDRESS CONCURRENCY` is the peer's worker."""
    gate = _Gate(place)
    try:
        with running([sys.executable, "-m", module, address, str(concurrency)], place / "worker.log") as worker:
            enqueue(stand, str(place), concurrency)
            gate.await_told(concurrency, worker)
            enqueue(command, str(place), count)
            begun = time.perf_counter()
            gate.open()
            gate.await_told(count, worker)
            return count / (time.perf_counter() - begun)
    finally:
        gate.close()
