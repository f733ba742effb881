"""JSON representations of locks: the holders of each key and the queue for it."""

from __future__ import annotations

import msgspec


class LockOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A job or direct execution that holds a lock or waits for it."""

    id: str
    """Id, such as `job-3` or `reservation-2`."""
    mode: str
    """Mode of the lock: `shared` or `exclusive`."""


class LockStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is held or requested."""

    key: str
    """Key of the lock."""
    mode: str | None
    """Mode in which the lock is held; `null` if it is free."""
    holders: list[LockOwner]
    """Holders of the lock; several if they share it."""
    waiters: list[LockOwner]
    """First waiters, in the order in which they get the lock."""
    waiting: int
    """Number of all waiters."""


class LockPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of locks, sorted by key."""

    locks: list[LockStatus]
    """Locks, sorted by key."""
    next: str | None
