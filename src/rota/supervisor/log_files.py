"""Files of a job's directory that the supervisor opens, measures and reads the end of."""

# pathlib would cost a megabyte:
# ruff: noqa: PTH102, PTH103, PTH104, PTH116, PTH120
from __future__ import annotations

import contextlib
import os
import threading

STDOUT = "stdout.log"
STDERR = "stderr.log"
SKIP_IF = "skip_if.log"
WORKSPACE = "workspace.log"
SPARE_DIRECTORY = ".spare"

TAIL_BYTES = 4096
TAIL_LINES = 20
_REASON_BYTES = 4096

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def make_directory(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        os.makedirs(path, 0o700, exist_ok=True)


def open_streams(directory: str) -> tuple[int, int]:
    """Open standard output and error of the main process for appending. The scheduler truncates them."""
    stdout = os.open(f"{directory}/{STDOUT}", _FLAGS, 0o600)
    try:
        return stdout, os.open(f"{directory}/{STDERR}", _FLAGS, 0o600)
    except OSError:
        os.close(stdout)
        raise


class SpareDirectory:
    """Prepared directory with the two log files of the next job: a start only renames it.

    Several threads share it, and none waits for another: a thread that cannot get it creates its own directory.
    """

    def __init__(self) -> None:
        self._parent = ""
        self._streams: tuple[int, int] | None = None
        self._in_use = threading.Lock()

    def rename_to(self, directory: str) -> tuple[int, int] | None:
        """Rename the spare directory and return its streams. None if the target exists or has another parent."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            if self._streams is None or os.path.dirname(directory) != self._parent:
                return None
            os.rename(f"{self._parent}/{SPARE_DIRECTORY}", directory)
        except OSError:
            return None
        else:
            streams, self._streams = self._streams, None
            return streams
        finally:
            self._in_use.release()

    def prepare(self, parent: str) -> None:
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._streams is None:
                make_directory(f"{parent}/{SPARE_DIRECTORY}")
                self._streams, self._parent = open_streams(f"{parent}/{SPARE_DIRECTORY}"), parent
        finally:
            self._in_use.release()


def open_skip_if(directory: str) -> tuple[int, int]:
    """Open both streams of `skip_if`, truncated: the first line must be the reason of this run."""
    fd = os.open(f"{directory}/{SKIP_IF}", _FLAGS | os.O_TRUNC, 0o600)
    return fd, fd


def open_workspace(directory: str) -> tuple[int, int]:
    """Open both streams of a workspace step, truncated: the file holds the reason of this failure."""
    fd = os.open(f"{directory}/{WORKSPACE}", _FLAGS | os.O_TRUNC, 0o600)
    return fd, fd


def measure_growth(directory: str) -> tuple[tuple[int, ...], float]:
    """Return the sizes of the log files, and the wall-clock time of the last change."""
    sizes = []
    changed_at = 0.0
    for name in (STDOUT, STDERR, SKIP_IF):
        with contextlib.suppress(OSError):
            status = os.stat(f"{directory}/{name}")
            sizes.append(status.st_size)
            changed_at = max(changed_at, status.st_mtime)
    return tuple(sizes), changed_at


def read_tail(directory: str, name: str = STDERR) -> str:
    """Return the last lines of a log file, by default of standard error."""
    try:
        fd = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        data = os.pread(fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
    except OSError:
        return ""
    finally:
        os.close(fd)
    return b"".join(data.splitlines(keepends=True)[-TAIL_LINES:]).decode("utf-8", "replace")


def read_skip_reason(directory: str) -> str:
    """Return the first line of output of `skip_if`."""
    try:
        fd = os.open(f"{directory}/{SKIP_IF}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = os.pread(fd, _REASON_BYTES, 0)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return data.partition(b"\n")[0].decode("utf-8", "replace").strip()
