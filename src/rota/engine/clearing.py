"""A clearing under way: what waits under a scope is cancelled in bounded turns, so that nobody is held up.

From the turn that begins it to the one that ends it nothing under its scope starts. It is stored, so an accepted one is
carried to its end by the next scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime

import msgspec

from rota.core.control import NOTHING_HELD, Holds, Pause
from rota.ids import JobId, SlotId
from rota.store.record import FIRST_RANK


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as it is stored."""

    scope: str
    """`global` or a pool's name. (What is of one work item will be found by another kind of scope.)"""
    upto: JobId
    """The last job there was when it began: what came later is not touched."""
    by: str
    at: datetime
    cleared: int = 0


class Clearing:
    """The engine's thread writes, after each commit."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.behind: tuple[int, ...] = FIRST_RANK
        """Up to here the queue has been gone through."""
        self.ended: Future[int] = Future()
        """How many jobs were cleared, once it is over."""


class Progress(msgspec.Struct, kw_only=True):
    """What one turn has done for a clearing."""

    cleared: int = 0
    behind: tuple[int, ...] | None = None
    is_over: bool = False


def holds_of(held: str | None, clearings: Iterable[Clearing], absent: frozenset[SlotId] = frozenset()) -> Holds:
    clearing = {each.order.scope: Pause(by=each.order.by, at=each.order.at) for each in clearings}
    if held is None and not clearing and not absent:
        return NOTHING_HELD
    return Holds(file=held, clearing=clearing, absent=absent)
