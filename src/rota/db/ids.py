"""Allocation of ids, and single values by key (`meta`).

The ids of each entity ascend, and no id is reused. The next id follows the last row. `retire` records the ids of rows
before they are removed from the end, so nothing needs to be written while rows are only added. A transaction reads the
next id once. A rollback makes its ids available again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.db.database import Database
from rota.ids import JobId


class IdWatermarks:
    """Highest ids in use. After a restore, the scheduler does not reuse the ids that it knows of."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        """Highest id in use, by entity."""
        self.epoch = 0

    def raise_id(self, entity: str, last: int) -> None:
        self.ids[entity] = max(last, self.ids.get(entity, 0))

    def merge(self, other: IdWatermarks) -> None:
        """Raise each id to the higher of both."""
        for entity, last in other.ids.items():
            self.raise_id(entity, last)
        self.epoch = max(self.epoch, other.epoch)


class IdRecords:
    """Read access to the ids in use."""

    def __init__(self, database: Database, meta: MetaRecords) -> None:
        self._db = database
        self._meta = meta

    def watermarks(self) -> IdWatermarks:
        """Return the highest ids in use of the entities that have files or processes."""
        watermarks = IdWatermarks()
        for entity in ("job", "run", "reservation"):
            for (next_id,) in self._db.rows(f"next_{entity}"):
                watermarks.raise_id(entity, (next_id or 1) - 1)
        watermarks.epoch = int(self._meta.get("epoch") or 0)
        return watermarks


class Ids(IdRecords):
    """Allocation of ids in the open transaction."""

    def __init__(self, database: Database, meta: MetaRecords) -> None:
        super().__init__(database, meta)
        self._next_ids: dict[str, int] = {}
        self.cache: dict[object, int] = {}
        """Ids of environments, lanes and artifacts that this transaction has read or added. Its submits share most of
        them."""

    def clear(self) -> None:
        """Forget cached ids, after the end of the transaction or the rollback of a savepoint."""
        self._next_ids = {}
        self.cache = {}

    def allocate_jobs(self, count: int) -> list[JobId]:
        first = self.allocate("job", count)
        return [JobId(first + n) for n in range(count)]

    def peek_job(self) -> JobId:
        """Return the id that the next job gets."""
        return JobId(self.allocate("job", 0))

    def retire_all(self, entity: str, ids: Sequence[int]) -> None:
        if ids:
            self.retire(entity, max(ids))

    def allocate(self, entity: str, count: int) -> int:
        """Return the first of `count` consecutive ids."""
        first = self._next_ids[entity] if entity in self._next_ids else self._read_next(entity)
        self._next_ids[entity] = first + count
        return first

    def _read_next(self, entity: str) -> int:
        return max(int(number) for (number,) in self._db.rows(f"next_{entity}") if number is not None)

    def retire(self, entity: str, last: int) -> None:
        """Record that the ids up to `last` are in use, even if no row shows it."""
        self._db.run("advance_sequence", entity=entity, next=last + 1)
        self._next_ids[entity] = max(self.allocate(entity, 0), last + 1)


class MetaRecords:
    """Read access to the values in `meta`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, key: str) -> str | None:
        rows = self._db.rows("get_meta", key=key)
        return None if not rows else str(rows[0][0])


class Meta(MetaRecords):
    def set(self, key: str, value: str) -> None:
        self._db.run("set_meta", key=key, value=value)
