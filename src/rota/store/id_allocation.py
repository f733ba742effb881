"""Allocation of ids. The ids of each entity ascend, and no id is reused.

The next id follows the last row. `retire_ids` records the ids of rows before they are removed from the end, so nothing
needs to be written while rows are only added. A transaction reads the next id once. A rollback makes its ids available
again.
"""

from __future__ import annotations

from rota.store.database import Database


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


class IdAllocator:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._next_ids: dict[str, int] = {}
        self._id_cache: dict[object, int] = {}
        """Ids of environments and lanes that this transaction has read or added. Its submits share most of them."""

    def _clear_id_caches(self) -> None:
        """Forget cached ids, after the end of the transaction or the rollback of a savepoint."""
        self._next_ids = {}
        self._id_cache = {}

    def allocate_ids(self, entity: str, count: int) -> int:
        """Return the first of `count` consecutive ids."""
        first = self._next_ids[entity] if entity in self._next_ids else self._read_next_id(entity)
        self._next_ids[entity] = first + count
        return first

    def _read_next_id(self, entity: str) -> int:
        return max(int(number) for (number,) in self._db.rows(f"next_{entity}") if number is not None)

    def retire_ids(self, entity: str, last: int) -> None:
        """Record that the ids up to `last` are in use, even if no row shows it."""
        self._db.run("advance_sequence", entity=entity, next=last + 1)
        self._next_ids[entity] = max(self.allocate_ids(entity, 0), last + 1)
