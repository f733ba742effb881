"""Requests for the queue, its order, and locks."""

from __future__ import annotations

from collections.abc import Iterable

from rota.client.requests import Request, build_query
from rota.client.requests.arguments import as_list


def list_queue(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List waiting jobs in queue order."""
    return Request("GET", f"/api/queue{build_query(('limit', limit), ('cursor', cursor))}")


def reorder_queue(order: Iterable[str]) -> Request:
    """Put these jobs in this order, in the places that they occupy together."""
    return Request("POST", "/api/queue/reorder", body={"order": as_list("order", order)})


def list_locks(*, key: str | None = None, limit: int | None = None, cursor: str | None = None) -> Request:
    """List locks that are held or requested, or one lock by its key."""
    return Request("GET", f"/api/locks{build_query(('key', key), ('limit', limit), ('cursor', cursor))}")
