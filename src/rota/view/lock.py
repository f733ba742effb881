"""Locks as the API shows them: the holders of each key and the queue for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.lock import LockMode
from rota.core.reservation import format_owner
from rota.ids import JobId
from rota.store.session import Reader
from rota.wire.lock import LockOwner, LockStatus

_MAX_WAITERS = 20


def list_locks(reader: Reader, *, after: str, limit: int) -> tuple[list[LockStatus], str | None]:
    """Return the locks that are held or requested, sorted by key, and the last key if there are more."""
    keys = reader.locks.keys(after=after, limit=limit + 1)
    return _render_locks(reader, keys[:limit]), keys[limit - 1] if len(keys) > limit else None


def show_lock(reader: Reader, key: str) -> LockStatus:
    """Return the lock with this key, even if it is free."""
    return _render_locks(reader, [key])[0]


def _render_locks(reader: Reader, keys: Sequence[str]) -> list[LockStatus]:
    owners = reader.locks.owners(keys)
    locks = []
    for key in keys:
        holders = owners.get(key, [])
        waiters, waiting = reader.locks.queue(key, _MAX_WAITERS)
        locks.append(
            LockStatus(
                key=key,
                mode=_held_mode(mode for _, mode in holders),
                holders=_render_owners(holders),
                waiters=_render_owners(waiters),
                waiting=waiting,
            )
        )
    return locks


def _held_mode(modes: Iterable[LockMode]) -> str | None:
    first = next(iter(modes), None)
    return None if first is None else first.value


def _render_owners(owners: Sequence[tuple[JobId, LockMode]]) -> list[LockOwner]:
    return [LockOwner(id=format_owner(owner), mode=mode.value) for owner, mode in owners]
