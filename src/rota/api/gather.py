"""Requests on their way to the engine. A turn costs as much as several of them, so those that are asked in one go go
over together: as soon as a round of the event loop brings no other.

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
"""They wait for no others."""


class Gathered(Generic[T]):
    """On the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[..., None]) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._waiting: list[T] = []

    def add(self, one: T) -> None:
        if not self._waiting:
            self._loop.call_soon(self._look, 0)
        self._waiting.append(one)

    def _look(self, before: int) -> None:
        """`before` have waited since the round before."""
        count = len(self._waiting)
        if before < count < _ENOUGH:
            self._loop.call_soon(self._look, count)
            return
        gathered, self._waiting = self._waiting, []
        self._hand_over(*gathered)
