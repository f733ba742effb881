"""File that is read again only after a change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_MIN_STABLE_AGE = 2_000_000_000
"""Nanoseconds after which a replacement of the file always has other timestamps. No file system has coarser ones."""


class CachedFile(Generic[T]):
    """Parsed content of a file, or of an empty file if it does not exist.

    The file must be replaced by a rename and never written in place, as git does, so that a read is always complete.
    """

    def __init__(self, path: str, parse: Callable[[bytes], T]) -> None:
        self._path = Path(path)
        self._parse = parse
        self._stamp: tuple[int, ...] | None = None
        self._value = parse(b"")

    def read(self) -> T:
        try:
            if self._stamp is None or _stamp(self._path.stat()) != self._stamp:
                self._read()
        except (FileNotFoundError, NotADirectoryError):
            self._stamp = None
            self._value = self._parse(b"")
        return self._value

    def _read(self) -> None:
        self._stamp = None
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            self._value = self._parse(file.read())
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _MIN_STABLE_AGE:
            self._stamp = _stamp(status)


def _stamp(file_status: os.stat_result) -> tuple[int, ...]:
    return file_status.st_dev, file_status.st_ino, file_status.st_size, file_status.st_mtime_ns, file_status.st_ctime_ns
