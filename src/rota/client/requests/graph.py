"""Requests for the dependency graph."""

from __future__ import annotations

from rota.client.requests import Request, build_query, timeout_for
from rota.client.requests.arguments import as_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests.options import Seconds


def get_graph(
    *,
    format: str = "json",  # noqa: A002
    all: bool = False,  # noqa: A002
    job: str | None = None,
    max_depth: int | None = None,
    wait: Seconds | None = None,
    last_seen: str | None = None,
) -> Request:
    """Return the dependency graph as `dag` or `json`.

    With `wait`, return when its ETag differs from `last_seen`; when the time is over, the response is 304.
    """
    wait = as_seconds("wait", wait)
    query = build_query(
        ("format", format), ("all", all or None), ("job", job), ("max_depth", max_depth), ("wait", wait)
    )
    headers = None if last_seen is None else {"If-None-Match": last_seen}
    return Request("GET", f"/api/graph{query}", headers=headers, timeout=timeout_for(wait))
