"""The graph of jobs."""

from __future__ import annotations

from rota.client.ask import Ask, patience_for, query


def get_graph(
    *, format: str = "json", all: bool = False, job: str | None = None, max_depth: int | None = None,  # noqa: A002
    wait: float | None = None, seen: str | None = None,
) -> Ask:  # fmt: skip
    """As `dag` or `json`; with `wait`, when its tag is no longer `seen`, else, when the seconds are over, 304."""
    asked = query(("format", format), ("all", all or None), ("job", job), ("max_depth", max_depth), ("wait", wait))
    headers = None if seen is None else {"If-None-Match": seen}
    return Ask("GET", f"/api/graph{asked}", headers=headers, patience=patience_for(wait))
