"""The graph of jobs."""

from __future__ import annotations

from rota.client.ask import Ask, patience_for, query
from rota.client.ask.given import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask.wanted import Seconds


def get_graph(
    *, format: str = "json", all: bool = False, job: str | None = None, max_depth: int | None = None,  # noqa: A002
    wait: Seconds | None = None, seen: str | None = None,
) -> Ask:  # fmt: skip
    """As `dag` or `json`; with `wait`, when its tag is no longer `seen`, else, when the seconds are over, 304."""
    wait = seconds("wait", wait)
    asked = query(("format", format), ("all", all or None), ("job", job), ("max_depth", max_depth), ("wait", wait))
    headers = None if seen is None else {"If-None-Match": seen}
    return Ask("GET", f"/api/graph{asked}", headers=headers, patience=patience_for(wait))
