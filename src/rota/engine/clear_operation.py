"""Clear operations: the waiting jobs of a scope are cancelled in bounded turns, so that other requests are not delayed.

While an operation is in progress, no job of its scope starts. Operations are stored: after a restart, the scheduler
completes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from datetime import datetime

import msgspec

from rota.ids import JobId, ReservationId
from rota.kernel.holds import NO_HOLDS, Holds, Pause
from rota.kernel.queue import FIRST_RANK


class ClearRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a clear operation."""

    scope: str
    """`global` or the name of a pool."""
    max_job: JobId
    """Newest job at the beginning of the operation; later jobs are not cleared."""
    by: str
    at: datetime
    cleared: int = 0


class ClearOperation:
    """A clear operation in progress. Written by the engine's thread, after each commit."""

    def __init__(self, record: ClearRecord) -> None:
        self.record = record
        self.cursor: tuple[int, ...] = FIRST_RANK
        """Rank up to which the queue has been scanned."""
        self.completion: Future[int] = Future()
        """Number of cleared jobs, available when the operation has finished."""


class ClearProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a clear operation in one turn."""

    cleared: int = 0
    cursor: tuple[int, ...] | None = None
    is_finished: bool = False


def make_holds(
    hold_text: str | None,
    clear_operations: Iterable[ClearOperation],
    reservations_without_client: frozenset[ReservationId] = frozenset(),
) -> Holds:
    records = [operation.record for operation in clear_operations]
    clearing = {record.scope: Pause(actor=record.by, at=record.at) for record in records}
    if hold_text is None and not clearing and not reservations_without_client:
        return NO_HOLDS
    return Holds(hold_text=hold_text, clearing=clearing, reservations_without_client=reservations_without_client)
