"""Locks over HTTP."""

from __future__ import annotations

from functools import partial

import msgspec

from rota.api.endpoint import Call, Endpoint, Reply
from rota.api.page import PageSize
from rota.view import lock as view
from rota.wire.lock import LockKeyForm, LocksForm, OwnerForm


class LocksQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str | None = None
    """Only this one, also where nobody wants it."""
    limit: PageSize = 100
    cursor: str | None = None
    """The `next` of the page before."""


async def list_locks(call: Call[LocksQuery, None]) -> Reply[LocksForm]:
    """List the locks that are held or wanted. By key: who holds each, and who stands in line for it."""
    context, query = call.context, call.query
    if query.key is not None:
        return Reply(LocksForm(locks=[await context.look(partial(view.lock, key=query.key))], next=None))
    locks, following = await context.look(partial(view.locks, after=query.cursor or "", limit=query.limit))
    return Reply(LocksForm(locks=locks, next=following))


_SHOWN = LockKeyForm(
    key="branch/main", mode="exclusive", holders=[OwnerForm(id="job-24", mode="exclusive")],
    waiters=[OwnerForm(id="job-25", mode="exclusive")], waiting=1,
)  # fmt: skip

ENDPOINTS = [Endpoint("GET", "/api/locks", list_locks, shows=LocksForm(locks=[_SHOWN], next=None))]
