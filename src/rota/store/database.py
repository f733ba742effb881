"""What the store needs of a database driver: named statements, one transaction, savepoints.

A failure of the database reaches the callers as `StorageFull` or `StoreError`, whichever driver it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Database(Protocol):
    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """All rows of the statement called `name`."""
        ...

    def run(self, name: str, /, **values: Any) -> int:
        """Run it; how many rows it touched."""
        ...

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        """Run it once for each; how many rows they touched in all."""
        ...

    def begin(self) -> None: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What happens inside is undone, and only that, when the block is left by an exception."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Statements inside see one moment of the database."""
        ...

    def close(self) -> None: ...
