"""Reads who holds which key and who stands in line for it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.lock import LockMode
from rota.ids import JobId
from rota.store.database import Database


class LockRecords:
    _db: Database

    def lock_keys(self, *, after: str, limit: int) -> list[str]:
        """Keys that somebody holds or stands in line for, in order, behind this one."""
        return [key for (key,) in self._db.rows("lock_keys", after=after, limit=limit)]

    def lock_owners(self, keys: Sequence[str]) -> dict[str, list[tuple[JobId, LockMode]]]:
        owners: dict[str, list[tuple[JobId, LockMode]]] = {}
        for key, owner, mode in sorted(self._db.rows("lock_owners", keys=list(keys))) if keys else ():
            owners.setdefault(key, []).append((JobId(owner), LockMode(mode)))
        return owners

    def lock_line(self, key: str, limit: int) -> tuple[list[tuple[JobId, LockMode]], int]:
        """The first of those that stand in line, and how many do."""
        line = [(JobId(owner), LockMode(mode)) for owner, mode in self._db.rows("lock_line", key=key, limit=limit)]
        return line, len(line) if len(line) < limit else int(self._db.rows("count_lock_line", key=key)[0][0])
