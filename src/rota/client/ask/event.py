"""What happens."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.ask import Ask, patience_for, query
from rota.client.ask.given import listed, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask.wanted import Seconds

STREAM = "text/event-stream"


def list_events(
    *, since: int | None = None, job: Sequence[str] = (), group: str | None = None, kind: Sequence[str] = (),
    type: str | None = None, flow: str | None = None, limit: int | None = None,  # noqa: A002
    wait: Seconds | None = None,
) -> Ask:  # fmt: skip
    """A page of history, the oldest first; `next` is the `since` of the page after it. With `wait`, when something has
    happened or the seconds are over."""
    wait = seconds("wait", wait)
    asked = query(
        ("since", since), ("job", listed("job", job)), ("group", group), ("kind", listed("kind", kind)), ("type", type),
        ("flow", flow), ("limit", limit), ("wait", wait), ("format", "json"),
    )  # fmt: skip
    return Ask("GET", f"/api/events{asked}", patience=patience_for(wait))


def follow_events(
    *, last: str | None = None, since: int | None = None, job: Sequence[str] = (), group: str | None = None,
    kind: Sequence[str] = (), type: str | None = None, flow: str | None = None,  # noqa: A002
) -> Ask:  # fmt: skip
    """What happens after the message with the id `last`, after the event `since`, or from now on: server-sent events.
    Something comes every 15 seconds, if only a heartbeat."""
    asked = query(
        ("since", since), ("job", listed("job", job)), ("group", group), ("kind", listed("kind", kind)), ("type", type),
        ("flow", flow),
    )  # fmt: skip
    headers = {"Accept": STREAM} if last is None else {"Accept": STREAM, "Last-Event-ID": last}
    return Ask("GET", f"/api/events{asked}", headers=headers)
