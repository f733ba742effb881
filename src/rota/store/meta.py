"""Storage of single values by key."""

from __future__ import annotations

from rota.store.database import Database


class MetaRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, key: str) -> str | None:
        rows = self._db.rows("get_meta", key=key)
        return None if not rows else str(rows[0][0])


class Meta(MetaRecords):
    def set(self, key: str, value: str) -> None:
        self._db.run("set_meta", key=key, value=value)
