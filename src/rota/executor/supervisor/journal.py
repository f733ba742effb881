"""Journal of the facts that a successor must know. Each line is appended to `supervisor.journal` before it takes
effect.

    generation  {generation}               newest scheduler seen
    starting    {run, boot, …}             before the child is created
    started     {run, pid, start_time}
    step        {run, step, state, …}      before each further process; most runs have one process
    ending      {run, ended_by, kill_at}   a stop or timeout has begun
    exited | failed_to_start               as on the wire; before the child is reaped and the exit is reported
    finished    {run}                      its workspace is finished
    acknowledged {run}                     forget the run; written with the next line, since a repeated exit is harmless

There is no fsync: after the death of the machine no process can be adopted anyway. A failed write leaves no partial
line (it is truncated); a predecessor killed inside a write leaves one, which is truncated at the next start. When the
disk is full, a start is refused, since its child could not be found again; other lines stay in memory, in order, and
are written as soon as there is space.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH104, PTH108
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from rota.executor.supervisor.log import write_log

MAX_JOURNAL_BYTES = 1 << 20


class Journal:
    def __init__(self, path: str, *, limit: int = MAX_JOURNAL_BYTES) -> None:
        self._path = path
        self._min_limit = limit
        self._limit = limit
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._backlog: list[bytes] = []
        self.error: OSError | None = None
        """Why lines are buffered in memory; None if none are."""

    def read(self) -> bytes:
        """Return all complete lines. A partial line of a killed writer is truncated."""
        chunks = []
        offset = 0
        while chunk := os.pread(self._fd, 1 << 20, offset):
            chunks.append(chunk)
            offset += len(chunk)
        data = b"".join(chunks)
        lines = data[: data.rfind(b"\n") + 1]
        self._size = len(lines)
        if len(lines) < len(data):
            os.ftruncate(self._fd, self._size)
        return lines

    def record_or_raise(self, line: bytes) -> None:
        """Write a line to disk. Raises OSError, and leaves no trace of the line, if that fails."""
        self._write(b"".join((*self._backlog, line)))
        self._backlog.clear()

    def record_lazily(self, line: bytes) -> None:
        """Write a line together with the next one. For facts that a successor can also find out without it."""
        self._backlog.append(line)

    def record(self, line: bytes) -> bool:
        """Write a line and return whether it is on disk. If not, it is buffered, and `flush_backlog` writes it in
        order."""
        self._backlog.append(line)
        return self.flush_backlog()

    def flush_backlog(self) -> bool:
        """Write the buffered lines. Return True if none are left."""
        if not self._backlog:
            return True
        try:
            self._write(b"".join(self._backlog))
        except OSError as error:
            if self.error is None:
                write_log(f"cannot write {self._path}: {error.strerror}; retrying every second")
            self.error = error
            return False
        self._backlog.clear()
        return True

    @property
    def has_backlog(self) -> bool:
        return bool(self._backlog)

    @property
    def needs_rewrite(self) -> bool:
        return self._size > self._limit and not self._backlog

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by these lines, or keep it if there is no space for that."""
        temporary = f"{self._path}.new"
        try:
            size = self._replace(temporary, b"".join(lines))
        except OSError as error:
            write_log(f"cannot rewrite {self._path}: {error.strerror}; continuing with the old one")
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._limit = self._size + self._min_limit
            return
        self._size = size
        # Many unacknowledged exits may exceed the limit: without this the journal would be rewritten at every line.
        self._limit = max(self._min_limit, 2 * size)

    def _replace(self, temporary: str, data: bytes) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600)
        try:
            written = 0
            while written < len(data):
                written += os.write(fd, data[written:])
            os.rename(temporary, self._path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd = fd
        return len(data)

    def _write(self, lines: bytes) -> None:
        try:
            written = os.write(self._fd, lines)
            if written < len(lines):
                written += os.write(self._fd, lines[written:])  # raises the cause: no space, file too large
            if written < len(lines):
                raise OSError("short write")
        except OSError:
            # A partial line in the middle would also corrupt the next one.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)
        self.error = None
