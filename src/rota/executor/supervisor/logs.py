"""The files of a job's directory that the supervisor opens, measures and reads the end of."""

# pathlib would cost a megabyte:
# ruff: noqa: PTH102, PTH103, PTH104, PTH116, PTH120
from __future__ import annotations

import contextlib
import os
import threading

STDOUT = "stdout.log"
STDERR = "stderr.log"
CHECK = "skip_if.log"
WORKSPACE = "workspace.log"
SPARE = ".spare"

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
    """Standard output and error of the main process. Appended to: emptying them is the scheduler's business."""
    stdout = os.open(f"{directory}/{STDOUT}", _FLAGS, 0o600)
    try:
        return stdout, os.open(f"{directory}/{STDERR}", _FLAGS, 0o600)
    except OSError:
        os.close(stdout)
        raise


class Spare:
    """The next job's directory with its two files, made while nothing waits for them: a start only renames it.

    It is there for several threads, and none waits for another: whoever cannot have it makes its own.
    """

    def __init__(self) -> None:
        self._parent = ""
        self._streams: tuple[int, int] | None = None
        self._in_use = threading.Lock()

    def become(self, directory: str) -> tuple[int, int] | None:
        """Its streams, now those of this directory; none where there is such a directory already, or elsewhere."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            if self._streams is None or os.path.dirname(directory) != self._parent:
                return None
            os.rename(f"{self._parent}/{SPARE}", directory)
        except OSError:
            return None
        else:
            streams, self._streams = self._streams, None
            return streams
        finally:
            self._in_use.release()

    def make(self, parent: str) -> None:
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._streams is None:
                make_directory(f"{parent}/{SPARE}")
                self._streams, self._parent = open_streams(f"{parent}/{SPARE}"), parent
        finally:
            self._in_use.release()


def open_check(directory: str) -> tuple[int, int]:
    """Both streams of `skip_if`. Emptied: its first line is this run's reason, not an older one's."""
    fd = os.open(f"{directory}/{CHECK}", _FLAGS | os.O_TRUNC, 0o600)
    return fd, fd


def open_workspace(directory: str) -> tuple[int, int]:
    """Both streams of what makes or finishes the workspace. Emptied: what it holds is why this one failed."""
    fd = os.open(f"{directory}/{WORKSPACE}", _FLAGS | os.O_TRUNC, 0o600)
    return fd, fd


def growth(directory: str) -> tuple[tuple[int, ...], float]:
    """The sizes of all of them, and the wall time of the last change."""
    sizes = []
    changed = 0.0
    for name in (STDOUT, STDERR, CHECK):
        with contextlib.suppress(OSError):
            found = os.stat(f"{directory}/{name}")
            sizes.append(found.st_size)
            changed = max(changed, found.st_mtime)
    return tuple(sizes), changed


def tail(directory: str, name: str = STDERR) -> str:
    """The last lines of standard error."""
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


def reason(directory: str) -> str:
    """The first line that `skip_if` wrote."""
    try:
        fd = os.open(f"{directory}/{CHECK}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        data = os.pread(fd, _REASON_BYTES, 0)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return data.partition(b"\n")[0].decode("utf-8", "replace").strip()
