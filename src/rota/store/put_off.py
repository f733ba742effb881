"""Writes that can wait for others of their kind: of several submits in a turn, most ask nothing of the database between
them, and what they store goes to it together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class PuttingOff(ABC):
    """A database catches up before each statement of its own, and forgets with what it undoes."""

    def __init__(self) -> None:
        self._put_off: dict[str, list[Mapping[str, Any]]] = {}

    @abstractmethod
    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int: ...

    def put_off(self, name: str, values: Sequence[Mapping[str, Any]], /) -> None:
        self._put_off.setdefault(name, []).extend(values)

    def catch_up(self) -> None:
        if not self._put_off:
            return
        waiting, self._put_off = self._put_off, {}
        for name, values in waiting.items():
            self.run_many(name, values)
