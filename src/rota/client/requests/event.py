"""Requests for events."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.requests import Request, build_query, timeout_for
from rota.client.requests.arguments import as_list, as_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests.options import Seconds

STREAM = "text/event-stream"


def list_events(
    *,
    since: int | None = None,
    job: Sequence[str] = (),
    group: str | None = None,
    kind: Sequence[str] = (),
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
    limit: int | None = None,
    wait: Seconds | None = None,
) -> Request:
    """List stored events, oldest first. `next` is the `since` of the next page.

    With `wait`, return when an event happens or when the time is over.
    """
    wait = as_seconds("wait", wait)
    query = build_query(
        ("since", since),
        ("job", as_list("job", job)),
        ("group", group),
        ("kind", as_list("kind", kind)),
        ("type", type),
        ("flow", flow),
        ("limit", limit),
        ("wait", wait),
        ("format", "json"),
    )
    return Request("GET", f"/api/events{query}", timeout=timeout_for(wait))


def follow_events(
    *,
    last: str | None = None,
    since: int | None = None,
    job: Sequence[str] = (),
    group: str | None = None,
    kind: Sequence[str] = (),
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
) -> Request:
    """Stream events after the message with the id `last`, after the event `since`, or from now on.

    The stream sends a keep-alive at least every 15 seconds.
    """
    query = build_query(
        ("since", since),
        ("job", as_list("job", job)),
        ("group", group),
        ("kind", as_list("kind", kind)),
        ("type", type),
        ("flow", flow),
    )
    headers = {"Accept": STREAM} if last is None else {"Accept": STREAM, "Last-Event-ID": last}
    return Request("GET", f"/api/events{query}", headers=headers)
