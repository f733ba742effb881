"""Logs of a job, read in pieces. No file is ever in memory as a whole, and every change to a file is detected.

The job's process owns the files: it can replace one, truncate it, or put a FIFO in its place. Only regular files are
read, and opening one never blocks.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rota.ids import JobId, format_job_id

STREAMS = ("stdout", "stderr")
CHUNK_BYTES = 64 * 1024


def log_path(jobs: Path, job: JobId, stream: str) -> Path:
    return log_path_in(jobs / str(job), stream)


def log_path_in(directory: Path, stream: str) -> Path:
    return directory / f"{stream}.log"


def log_size(path: Path) -> int:
    status = _stat_regular_file(path)
    return 0 if status is None else status.st_size


def oversize_warnings(jobs: Path, job_ids: Sequence[JobId], max_bytes: int) -> list[str]:
    """Return a warning for each stream that exceeds the maximum. The sizes are read on request only."""
    sizes = ((job, stream, log_size(log_path(jobs, job, stream))) for job in job_ids for stream in STREAMS)
    return [
        f"{format_job_id(job)} has written {size:,} bytes to {stream}, more than log.max_bytes ({max_bytes:,});"
        " the log is kept in full"
        for job, stream, size in sizes
        if size > max_bytes
    ]


class LogReader:
    """A reader of one stream from an offset. After the file was replaced or truncated, it reads from the beginning."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._descriptor = -1

    @property
    def offset(self) -> int:
        """Offset of the next piece, unless the file is truncated or replaced."""
        return self._offset

    def read(self) -> bytes:
        """Return the next piece, or empty bytes if there is none yet. A file that was replaced is first read to its
        end."""
        piece = self._read_next()
        if not piece and self._is_replaced():
            self.close()
            self._offset = 0
            piece = self._read_next()
        return piece

    def has_more(self) -> bool:
        """Return whether a read would return data. Costs at most two system calls."""
        status = _stat_regular_file(self._path)
        return status is not None and (status.st_size != self._offset or self._is_replaced())

    def _read_next(self) -> bytes:
        if self._descriptor < 0:
            self._descriptor = _open_regular_file(self._path)
        if self._descriptor < 0:
            return b""
        if os.fstat(self._descriptor).st_size < self._offset:
            self._offset = 0
        piece = os.pread(self._descriptor, CHUNK_BYTES, self._offset)
        self._offset += len(piece)
        return piece

    def _is_replaced(self) -> bool:
        status = _stat_regular_file(self._path)
        return status is not None and self._descriptor >= 0 and not os.path.samestat(status, os.fstat(self._descriptor))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class TextChunk(NamedTuple):
    """A piece of whole characters, with its offsets."""

    text: str
    begin: int
    end: int


class TextLogReader:
    """A reader of a stream as text. The bytes of an incomplete character are kept for the next chunk, so that a reader
    that continues at the end of a chunk starts with a whole character."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._end = reader.offset
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def end(self) -> int:
        """Offset of the end of the returned text."""
        return self._end

    def read(self) -> TextChunk | None:
        """Return the next characters, or `None` if there are none yet."""
        while piece := self._reader.read():
            begin = self._reader.offset - len(piece)
            if begin != self._end + self._pending_bytes:
                self._decoder.reset()
                self._end = begin
            if text := self._decoder.decode(piece):
                return self._make_chunk(text, self._reader.offset - self._pending_bytes)
        return None

    def flush(self) -> TextChunk | None:
        """Return the rest of an incomplete character, when the stream has ended."""
        pending = self._pending_bytes
        return self._make_chunk(self._decoder.decode(b"", final=True), self._end + pending) if pending else None

    def has_more(self) -> bool:
        return self._reader.has_more()

    def close(self) -> None:
        self._reader.close()

    @property
    def _pending_bytes(self) -> int:
        return len(self._decoder.getstate()[0])

    def _make_chunk(self, text: str, end: int) -> TextChunk:
        begin, self._end = self._end, end
        return TextChunk(text, begin, end)


def read_chunks(path: Path, offset: int, limit: int) -> Iterator[bytes]:
    """Read a part of the current file in chunks."""
    descriptor = _open_regular_file(path)
    if descriptor < 0:
        return
    try:
        while limit > 0 and (piece := os.pread(descriptor, min(limit, CHUNK_BYTES), offset)):
            yield piece
            offset += len(piece)
            limit -= len(piece)
    finally:
        os.close(descriptor)


def _stat_regular_file(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        status = path.stat()
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def _open_regular_file(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return -1
