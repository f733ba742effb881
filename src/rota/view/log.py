"""What a job wrote, in pieces: no file is ever in memory whole, and whatever becomes of it is seen.

The files are the child's: it may replace one, cut it off, or put a fifo there. Only a plain file is read, and
opening it never waits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rota.ids import JobId, show_job

STREAMS = ("stdout", "stderr")
PIECE = 64 * 1024


def path_of(jobs: Path, job: JobId, stream: str) -> Path:
    return path_in(jobs / str(job), stream)


def path_in(directory: Path, stream: str) -> Path:
    return directory / f"{stream}.log"


def size_of(path: Path) -> int:
    found = _look(path)
    return 0 if found is None else found.st_size


def oversize(jobs: Path, numbers: Sequence[JobId], most: int) -> list[str]:
    """A word on each stream that holds more than it should. Looked at when somebody asks, and free until then."""
    sizes = ((job, stream, size_of(path_of(jobs, job, stream))) for job in numbers for stream in STREAMS)
    return [
        f"{show_job(job)} has written {size:,} bytes to {stream}, more than log.max_bytes ({most:,}); it is kept whole"
        for job, stream, size in sizes
        if size > most
    ]


class Output:
    """One stream from an offset on. What was replaced or cut off is read on from its beginning."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._descriptor = -1

    def read(self) -> bytes:
        """The next piece, or nothing when there is none yet. A file that was replaced is read to its end first."""
        piece = self._read_on()
        if not piece and self._is_replaced():
            self.close()
            self._offset = 0
            piece = self._read_on()
        return piece

    def has_more(self) -> bool:
        """Whether it is worth a read: two system calls at most."""
        found = _look(self._path)
        return found is not None and (found.st_size != self._offset or self._is_replaced())

    def _read_on(self) -> bytes:
        if self._descriptor < 0:
            self._descriptor = _open(self._path)
        if self._descriptor < 0:
            return b""
        if os.fstat(self._descriptor).st_size < self._offset:
            self._offset = 0
        piece = os.pread(self._descriptor, PIECE, self._offset)
        self._offset += len(piece)
        return piece

    def _is_replaced(self) -> bool:
        found = _look(self._path)
        return found is not None and self._descriptor >= 0 and not os.path.samestat(found, os.fstat(self._descriptor))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def pieces(path: Path, offset: int, limit: int) -> Iterator[bytes]:
    """A part of what is there now, all of it of one file."""
    descriptor = _open(path)
    if descriptor < 0:
        return
    try:
        while limit > 0 and (piece := os.pread(descriptor, min(limit, PIECE), offset)):
            yield piece
            offset += len(piece)
            limit -= len(piece)
    finally:
        os.close(descriptor)


def _look(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        found = path.stat()
        return found if stat.S_ISREG(found.st_mode) else None
    return None


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return -1
