"""Locks as people and programs see them: who holds a key, and who stands in line for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.lock import LockMode
from rota.core.slot import show_owner
from rota.ids import JobId
from rota.store.session import Reader
from rota.wire.lock import LockKeyForm, OwnerForm

_MOST_WAITERS = 20


def locks(reader: Reader, *, after: str, limit: int) -> tuple[list[LockKeyForm], str | None]:
    """Keys that are held or wanted, in order, and the last of them where there are more."""
    keys = reader.lock_keys(after=after, limit=limit + 1)
    return _forms(reader, keys[:limit]), keys[limit - 1] if len(keys) > limit else None


def lock(reader: Reader, key: str) -> LockKeyForm:
    """One key, also where nobody wants it."""
    return _forms(reader, [key])[0]


def _forms(reader: Reader, keys: Sequence[str]) -> list[LockKeyForm]:
    owners = reader.lock_owners(keys)
    forms = []
    for key in keys:
        held = owners.get(key, [])
        line, waiting = reader.lock_line(key, _MOST_WAITERS)
        forms.append(
            LockKeyForm(
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
