"""Reads of the holders and the queue of each lock key."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.lock import LockMode
from rota.ids import JobId
from rota.store.database import Database
from rota.store.decoding import parse_lock_mode


class LockRecords:
    _db: Database

    def lock_keys(self, *, after: str, limit: int) -> list[str]:
        """Return the keys after `after`, in order, that are held or have a queue."""
        return [key for (key,) in self._db.rows("lock_keys", after=after, limit=limit)]

    def lock_owners(self, keys: Sequence[str]) -> dict[str, list[tuple[JobId, LockMode]]]:
        owners: dict[str, list[tuple[JobId, LockMode]]] = {}
        for key, owner, mode in sorted(self._db.rows("lock_owners", keys=list(keys))) if keys else ():
            owners.setdefault(key, []).append((JobId(owner), parse_lock_mode(mode)))
        return owners

    def lock_queue(self, key: str, limit: int) -> tuple[list[tuple[JobId, LockMode]], int]:
        """Return the first jobs in the queue of a key, and the length of the queue."""
        queue = [
            (JobId(owner), parse_lock_mode(mode)) for owner, mode in self._db.rows("lock_queue", key=key, limit=limit)
        ]
        return queue, len(queue) if len(queue) < limit else int(self._db.rows("count_lock_queue", key=key)[0][0])
