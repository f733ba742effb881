"""Locks as people and programs see them: who holds a key, and who stands in line for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.core.lock import LockMode
from rota.core.slot import show_owner
from rota.ids import JobId
from rota.store.session import Reader

_MOST_WAITERS = 20


class OwnerForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """`job-3`, or `slot-2`."""
    mode: str


class LockForm(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    mode: str | None
    """How it is held; none where nobody does."""
    holders: list[OwnerForm]
    waiters: list[OwnerForm]
    """The first of those in line, in the order in which they get it."""
    waiting: int
    """How many stand in line."""


def locks(reader: Reader, *, after: str, limit: int) -> tuple[list[LockForm], str | None]:
    """Keys that are held or wanted, in order, and the last of them where there are more."""
    keys = reader.lock_keys(after=after, limit=limit + 1)
    return _forms(reader, keys[:limit]), keys[limit - 1] if len(keys) > limit else None


def lock(reader: Reader, key: str) -> LockForm:
    """One key, also where nobody wants it."""
    return _forms(reader, [key])[0]


def _forms(reader: Reader, keys: Sequence[str]) -> list[LockForm]:
    owners = reader.lock_owners(keys)
    forms = []
    for key in keys:
        held = owners.get(key, [])
        line, waiting = reader.lock_line(key, _MOST_WAITERS)
        forms.append(
            LockForm(
                key=key, mode=_held(mode for _, mode in held), holders=_shown(held), waiters=_shown(line),
                waiting=waiting,
            )
        )  # fmt: skip
    return forms


def _held(modes: Iterable[LockMode]) -> str | None:
    first = next(iter(modes), None)
    return None if first is None else first.value


def _shown(owners: Sequence[tuple[JobId, LockMode]]) -> list[OwnerForm]:
    return [OwnerForm(id=show_owner(owner), mode=mode.value) for owner, mode in owners]
