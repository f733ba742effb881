"""Groups of jobs."""

from __future__ import annotations

from rota.client.ask import Ask, patience_for, query, quote
from rota.client.ask.given import key_of, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.ask.wanted import Group, Seconds

OVER = ("COMPLETED", "CANCELLED", "PARTIAL")


def is_group(name: str) -> bool:
    return name.startswith("group-")


def list_groups(*, open: bool = False, limit: int | None = None, cursor: str | None = None) -> Ask:  # noqa: A002
    """The newest first; with `open`, only those that are not over."""
    return Ask("GET", f"/api/job-groups{query(('open', open or None), ('limit', limit), ('cursor', cursor))}")


def add_group(*, key: str | None = None, **group: Unpack[Group]) -> Ask:
    """One that jobs can join."""
    return Ask("POST", "/api/job-groups", body=dict(group), key=key_of(key))


def get_group(group: str, *, wait: Seconds | None = None, seen: str | None = None) -> Ask:
    """A group; with `wait`, when it is over (or its tag is no longer `seen`) or the seconds are over."""
    wait = seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}{query(('wait', wait), ('seen', seen))}"
    return Ask("GET", target, patience=patience_for(wait))


def get_progress(group: str, *, wait: Seconds | None = None, seen: str | None = None) -> Ask:
    """How it gets on: at once when something has ended or begun since `seen`, else when the seconds are over."""
    wait = seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}/progress{query(('wait', wait), ('seen', seen))}"
    return Ask("GET", target, patience=patience_for(wait))


def close_group(group: str) -> Ask:
    """Nothing joins it any more."""
    return Ask("POST", f"/api/job-groups/{quote(group)}/close")


def cancel_group(group: str) -> Ask:
    """Answered when its members are gone, or after a while."""
    return Ask("POST", f"/api/job-groups/{quote(group)}/cancel", patience=None)


def rewind_group(group: str, *, key: str | None = None) -> Ask:
    """What of it has not succeeded goes back into the queue."""
    return Ask("POST", f"/api/job-groups/{quote(group)}/rewind", key=key_of(key), patience=None)
