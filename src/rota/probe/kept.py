"""A file that is read again only when it has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_SETTLED = 2_000_000_000
"""Nanoseconds. A file this old cannot be replaced by one with the same times: no file system's clock is so coarse."""


class KeptFile(Generic[T]):
    """What `parse` makes of the file's content; of nothing, when there is no file.

    The file has to be one that is replaced and never written in place, as git does it: then one reading is whole.
    """

    def __init__(self, path: str, parse: Callable[[bytes], T]) -> None:
        self._path = Path(path)
        self._parse = parse
        self._stamp: tuple[int, ...] | None = None
        self._value = parse(b"")

    def value(self) -> T:
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
            found = os.fstat(file.fileno())
            self._value = self._parse(file.read())
        if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > _SETTLED:
            self._stamp = _stamp(found)


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
