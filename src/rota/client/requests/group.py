"""Requests for groups."""

from __future__ import annotations

from rota.client.requests import Request, build_query, quote, timeout_for
from rota.client.requests.arguments import as_idempotency_key, as_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.requests.options import GroupOptions, Seconds

FINISHED_STATUSES = ("COMPLETED", "CANCELLED", "PARTIAL")


def list_groups(*, open: bool = False, limit: int | None = None, cursor: str | None = None) -> Request:  # noqa: A002
    """List groups, newest first. With `open`, list only unfinished groups."""
    return Request("GET", f"/api/job-groups{build_query(('open', open or None), ('limit', limit), ('cursor', cursor))}")


def add_group(*, key: str | None = None, **group: Unpack[GroupOptions]) -> Request:
    """Add a group that jobs can join."""
    return Request("POST", "/api/job-groups", body=dict(group), key=as_idempotency_key(key))


def get_group(group: str, *, wait: Seconds | None = None, last_seen: str | None = None) -> Request:
    """Return a group.

    With `wait`, return when it is finished, when its ETag differs from `last_seen`, or when the time is over.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}{build_query(('wait', wait), ('last_seen', last_seen))}"
    return Request("GET", target, timeout=timeout_for(wait))


def get_progress(group: str, *, wait: Seconds | None = None, cursor: str | None = None) -> Request:
    """Return the progress of a group.

    With `wait`, return when a member has started or ended since `cursor`, or when the time is over.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/job-groups/{quote(group)}/progress{build_query(('wait', wait), ('cursor', cursor))}"
    return Request("GET", target, timeout=timeout_for(wait))


def close_group(group: str) -> Request:
    """Close a group to new members."""
    return Request("POST", f"/api/job-groups/{quote(group)}/close")


def cancel_group(group: str, *, wait: Seconds | None = None) -> Request:
    """Cancel a group. Return when its members have ended, or after `wait`."""
    target = f"/api/job-groups/{quote(group)}/cancel{build_query(('wait', as_seconds('wait', wait)))}"
    return Request("POST", target, timeout=None)


def preview_cancel_group(group: str) -> Request:
    """Return the jobs that a cancel of the group would cancel, without a change."""
    return Request("POST", f"/api/job-groups/{quote(group)}/cancel{build_query(('dry_run', True))}")


def rewind_group(group: str, *, dry_run: bool = False, key: str | None = None) -> Request:
    """Rewind the members that have not succeeded. With `dry_run`, change nothing."""
    target = f"/api/job-groups/{quote(group)}/rewind{build_query(('dry_run', dry_run or None))}"
    return Request("POST", target, key=as_idempotency_key(key), timeout=None)
