"""Locks over HTTP."""

from __future__ import annotations

from functools import partial

import msgspec

from rota.api.endpoint import Endpoint, Invocation, JsonReply
from rota.api.page import PageSize
from rota.view import lock as view
from rota.wire.lock import LockOwner, LockPage, LockStatus


class LocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str | None = None
    """Only the lock with this key, even if no job holds or requests it."""
    limit: PageSize = 100
    cursor: str | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_locks(call: Invocation[LocksQuery, None]) -> JsonReply[LockPage]:
    """List the locks that are held or requested, by key. Each has its holders, and its waiters in order."""
    context, query = call.context, call.query
    if query.key is not None:
        return JsonReply(LockPage(locks=[await context.read(partial(view.show_lock, key=query.key))], next=None))
    locks, next_cursor = await context.read(partial(view.list_locks, after=query.cursor or "", limit=query.limit))
    return JsonReply(LockPage(locks=locks, next=next_cursor))


_EXAMPLE = LockStatus(
    key="branch/main",
    mode="exclusive",
    holders=[LockOwner(id="job-24", mode="exclusive")],
    waiters=[LockOwner(id="job-25", mode="exclusive")],
    waiting=1,
)

ENDPOINTS = [Endpoint("GET", "/api/locks", list_locks, response_example=LockPage(locks=[_EXAMPLE], next=None))]
