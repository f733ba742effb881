"""Requests on their way to the engine. A turn costs as much as several of them, so those that are asked in one go go
over together: as soon as a round of the event loop brings no other, they are many, or the first has waited long enough.

    round 1    asked: a, b
    round 2    asked: c           more have come: wait for another round
    round 3    asked: nothing     a, b and c go over
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_ENOUGH = 64
_LONG_ENOUGH = 0.002
"""Seconds; a round in which much is to be done for others takes longer by itself."""


class Gathered(Generic[T]):
    """On the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[..., None]) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._waiting: list[T] = []

    def add(self, one: T) -> None:
        if not self._waiting:
            self._loop.call_soon(self._look, 0, self._loop.time() + _LONG_ENOUGH)
        self._waiting.append(one)

    def _look(self, before: int, until: float) -> None:
        """`before` have waited since the round before."""
        count = len(self._waiting)
        if before < count < _ENOUGH and self._loop.time() < until:
            self._loop.call_soon(self._look, count, until)
            return
        gathered, self._waiting = self._waiting, []
        self._hand_over(*gathered)
