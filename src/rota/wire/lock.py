"""Locks as JSON: who holds a key, and who stands in line for it."""

from __future__ import annotations

import msgspec


class OwnerForm(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock, or waits for it."""

    id: str
    """`job-3`, or `slot-2`."""
    mode: str
    """`shared` or `exclusive`."""


class LockKeyForm(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that is held or wanted."""

    key: str
    """What is locked."""
    mode: str | None
    """How it is held; null where nobody does."""
    holders: list[OwnerForm]
    """Who has it: one, or several that share it."""
    waiters: list[OwnerForm]
    """The first of those in line, in the order in which they get it."""
    waiting: int
    """How many stand in line."""


class LocksForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of locks, by key."""

    locks: list[LockKeyForm]
    """By key."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
