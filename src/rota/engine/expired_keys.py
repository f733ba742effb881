"""Expired idempotency keys. A final response expires by its own age, a pending one by the state of its reservation.

    reservation waits or runs    kept: a repeated request must not create a second reservation
    reservation has ended        expires by the time of that end; the reservation, its result, is kept as long
    reservation is gone          expires by its own age

A pending response is removed before its reservation, so the two never keep each other forever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.engine.idempotency import PENDING_STATUS, decode_pending
from rota.engine.transaction import Transaction
from rota.ids import ReservationId
from rota.store.session import AnyReader, Reader


def find_expired(reader: Reader, until: datetime) -> list[str]:
    old = reader.responses.old_keys(until)
    kept = _find_active_keys(reader, dict(reader.responses.with_status(PENDING_STATUS)), until)
    return [key for key in old if key not in kept]


def remove_expired(tx: Transaction, keys: Sequence[str], until: datetime) -> int:
    """Remove the keys that are still expired: a request may have used one again since."""
    pending = dict(tx.responses.for_keys(keys, PENDING_STATUS))
    kept = _find_active_keys(tx, pending, until)
    return tx.responses.remove_old([key for key in keys if key not in kept], until)


def referenced_reservations(reader: Reader, except_keys: Collection[str] = ()) -> set[ReservationId]:
    """Return the reservations that pending responses refer to, except for those of some keys."""
    return {
        decode_pending(body.encode()).reservation
        for key, body in reader.responses.with_status(PENDING_STATUS)
        if key not in except_keys
    }


def _find_active_keys(reader: AnyReader, pending: dict[str, str], until: datetime) -> set[str]:
    """Return the keys whose reservation has not ended before `until`."""
    reservations = {key: decode_pending(body.encode()).reservation for key, body in pending.items()}
    recent = reader.reservations.recent(list(reservations.values()), until)
    return {key for key, reservation in reservations.items() if reservation in recent}
