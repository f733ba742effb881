"""What a job wrote, in pieces: no file is ever in memory whole, and whatever becomes of it is seen.

The files are the child's: it may replace one, cut it off, or put a fifo there. Only a plain file is read, and
opening it never waits.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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

    @property
    def offset(self) -> int:
        """Where the next piece begins, unless the file is cut off or replaced."""
        return self._offset

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


class Text(NamedTuple):
    """A piece that is whole characters, from one offset to another."""

    text: str
    begin: int
    end: int


class TextOutput:
    """The same as text. What a piece has of its last character is kept until the rest of it is there, and belongs to
    the next: who goes on from a piece's end begins with a character."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._end = output.offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def end(self) -> int:
        """Of what has been read."""
        return self._end

    def read(self) -> Text | None:
        """The next characters, or nothing when there are none yet."""
        while piece := self._output.read():
            begin = self._output.offset - len(piece)
            if begin != self._end + self._kept:
                self._decoder.reset()
                self._end = begin
            if text := self._decoder.decode(piece):
                return self._taken(text, self._output.offset - self._kept)
        return None

    def rest(self) -> Text | None:
        """What is left of a character that was never finished, when nothing more will come."""
        kept = self._kept
        return self._taken(self._decoder.decode(b"", final=True), self._end + kept) if kept else None

    def has_more(self) -> bool:
        return self._output.has_more()

    def close(self) -> None:
        self._output.close()

    @property
    def _kept(self) -> int:
        return len(self._decoder.getstate()[0])

    def _taken(self, text: str, end: int) -> Text:
        begin, self._end = self._end, end
        return Text(text, begin, end)


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
