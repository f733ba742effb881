"""The queue, its order, and the keys that jobs stand in line for."""

from __future__ import annotations

from collections.abc import Iterable

from rota.client.ask import Ask, query
from rota.client.ask.given import listed


def list_queue(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """What waits, in order."""
    return Ask("GET", f"/api/queue{query(('limit', limit), ('cursor', cursor))}")


def reorder_queue(order: Iterable[str]) -> Ask:
    """These jobs in this order, in the places that they have together."""
    return Ask("POST", "/api/queue/reorder", body={"order": listed("order", order)})


def list_locks(*, key: str | None = None, limit: int | None = None, cursor: str | None = None) -> Ask:
    """Keys that are held or wanted, or one."""
    return Ask("GET", f"/api/locks{query(('key', key), ('limit', limit), ('cursor', cursor))}")
