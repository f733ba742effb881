"""What happens."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.ask import Ask, patience_for, query


def list_events(
    *, since: int | None = None, job: Sequence[str] = (), group: str | None = None, kind: Sequence[str] = (),
    type: str | None = None, flow: str | None = None, limit: int | None = None,  # noqa: A002
    wait: float | None = None,
) -> Ask:  # fmt: skip
    """A page of events, the oldest first; with `wait`, when there is one or the seconds are over."""
    asked = query(
        ("since", since), ("job", list(job)), ("group", group), ("kind", list(kind)), ("type", type), ("flow", flow),
        ("format", "json"), ("limit", limit), ("wait", wait),
    )  # fmt: skip
    return Ask("GET", f"/api/events{asked}", patience=patience_for(wait))


def stream_events(
    *, last: str | None = None, job: Sequence[str] = (), group: str | None = None, kind: Sequence[str] = (),
    type: str | None = None, flow: str | None = None,  # noqa: A002
) -> Ask:  # fmt: skip
    """Events as they happen, after the one of the number `last`. The scheduler says now and then that it is there."""
    asked = query(
        ("job", list(job)), ("group", group), ("kind", list(kind)), ("type", type), ("flow", flow), ("format", "sse")
    )
    return Ask("GET", f"/api/events{asked}", headers=None if last is None else {"Last-Event-ID": last})
