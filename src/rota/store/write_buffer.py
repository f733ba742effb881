"""Buffer for writes. Most submits of a turn read nothing between their writes, so their rows can be sent together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class WriteBuffer(ABC):
    """Buffer of a database driver. The driver flushes it before each other statement and discards it on a rollback."""

    def __init__(self) -> None:
        self._buffered: dict[str, list[Mapping[str, Any]]] = {}

    @abstractmethod
    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int: ...

    def buffer(self, name: str, values: Sequence[Mapping[str, Any]], /) -> None:
        self._buffered.setdefault(name, []).extend(values)

    def flush(self) -> None:
        if not self._buffered:
            return
        buffered, self._buffered = self._buffered, {}
        for name, values in buffered.items():
            self.run_many(name, values)
