"""What a successor must know, appended line by line to `supervisor.journal` before it is acted on.

    generation  {generation}           the newest scheduler seen
    starting    {run, boot, …}         before the child is made
    started     {run, pid, start_time}
    step        {run, step, place, …}  before each further process: most runs have one
    ending      {run, by, kill_at}     a stop or timeout has begun
    exited | failed_to_start           as on the wire; before the child is reaped and anyone is told
    finished    {run}                  its workspace is seen to
    acknowledged {run}                 forget it; written with the next line, for an end may be told twice

There is no fsync: after the death of the machine nothing can be adopted anyway. A write that fails leaves no
half line (it is cut off again); a predecessor killed inside a write leaves one, which is cut off at start.
When the disk is full a start is refused, since nobody could find its child again; anything else is kept
in order in memory and written as soon as there is room.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH104, PTH108
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from rota.executor.supervisor.log import say

LIMIT = 1 << 20


class Journal:
    def __init__(self, path: str, *, limit: int = LIMIT) -> None:
        self._path = path
        self._floor = limit
        self._limit = limit
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._backlog: list[bytes] = []
        self.trouble: OSError | None = None
        """Why lines are kept in memory, while they are."""

    def read(self) -> bytes:
        """Every whole line; what a killed writer left of its last one is cut off."""
        chunks = []
        offset = 0
        while chunk := os.pread(self._fd, 1 << 20, offset):
            chunks.append(chunk)
            offset += len(chunk)
        data = b"".join(chunks)
        whole = data[: data.rfind(b"\n") + 1]
        self._size = len(whole)
        if len(whole) < len(data):
            os.ftruncate(self._fd, self._size)
        return whole

    def must_record(self, line: bytes) -> None:
        """On disk when this returns; OSError, and not a trace of it, when that cannot be."""
        self._write(b"".join((*self._backlog, line)))
        self._backlog.clear()

    def record_later(self, line: bytes) -> None:
        """With the next line, in one write: for what a successor finds out as well without it."""
        self._backlog.append(line)

    def record(self, line: bytes) -> bool:
        """Whether it is on disk. If not it is kept, and `retry` writes it in its turn."""
        self._backlog.append(line)
        return self.retry()

    def retry(self) -> bool:
        """Write what could not be written before. True when nothing is left over."""
        if not self._backlog:
            return True
        try:
            self._write(b"".join(self._backlog))
        except OSError as error:
            if self.trouble is None:
                say(f"cannot write {self._path}: {error.strerror}; trying again each second")
            self.trouble = error
            return False
        self._backlog.clear()
        return True

    @property
    def is_behind(self) -> bool:
        return bool(self._backlog)

    @property
    def is_overgrown(self) -> bool:
        return self._size > self._limit and not self._backlog

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the whole by these lines, or leave it as it is when there is no room for that."""
        temporary = f"{self._path}.new"
        try:
            size = self._replace(temporary, b"".join(lines))
        except OSError as error:
            say(f"cannot rewrite {self._path}: {error.strerror}; going on with the old one")
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            self._limit = self._size + self._floor
            return
        self._size = size
        # Many ends nobody acknowledges may be longer than the limit: then it is not rewritten at every line.
        self._limit = max(self._floor, 2 * size)

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
                written += os.write(self._fd, lines[written:])  # says why: no room, file too large
            if written < len(lines):
                raise OSError("short write")
        except OSError:
            # Half a line in the middle would spoil the next one too.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(lines)
        self.trouble = None
