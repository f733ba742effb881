"""Reads who holds which key and who stands in line for it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.lock import LockMode
from rota.store.database import Database

Owner = int
"""A job by its number, or a slot by its number negated."""


class LockRecords:
    _db: Database

    def lock_keys(self, *, after: str, limit: int) -> list[str]:
        """Keys that somebody holds or stands in line for, in order, behind this one."""
        return [key for (key,) in self._db.rows("lock_keys", after=after, limit=limit)]

    def lock_owners(self, keys: Sequence[str]) -> dict[str, list[tuple[Owner, LockMode]]]:
        owners: dict[str, list[tuple[Owner, LockMode]]] = {}
        for key, owner, mode in sorted(self._db.rows("lock_owners", keys=list(keys))) if keys else ():
            owners.setdefault(key, []).append((owner, LockMode(mode)))
        return owners

    def lock_line(self, key: str, limit: int) -> tuple[list[tuple[Owner, LockMode]], int]:
        """The first of those that stand in line, and how many do."""
        line = [(owner, LockMode(mode)) for owner, mode in self._db.rows("lock_line", key=key, limit=limit)]
        return line, len(line) if len(line) < limit else int(self._db.rows("count_lock_line", key=key)[0][0])
