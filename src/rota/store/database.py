"""What the store needs of a database driver: named statements, one transaction, savepoints.

A failure of the database reaches the callers as `StorageFull` or `StoreError`, whichever driver it is; one that
passes by itself, as `StoreAway`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rota.errors import StoreError

Row = tuple[Any, ...]
Tables = Mapping[str, tuple[str, ...]]
"""The columns of each table."""
PAGE = 2000
"""Rows of a table under way at once."""


class CannotGoOn(StoreError):
    """To try again would be wrong: the scheduler stops, and the one that comes after it recovers."""


class Superseded(CannotGoOn):
    """Another scheduler has the store now."""


class OutcomeUnknown(CannotGoOn):
    """The last turn was stored or not, and there is no way to tell."""


class Bulk(Protocol):
    """Whole tables, inside the transaction that is open."""

    def tables(self) -> Tables:
        """Each behind those it refers to."""
        ...

    def count(self, table: str) -> int: ...
    def scan(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]: ...
    def clear(self, table: str) -> None: ...
    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...


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

    def put_off(self, name: str, values: Sequence[Mapping[str, Any]], /) -> None:
        """The same, together with all else that is put off, before anything else is done here. Statements come in the
        order in which they were first put off, so what refers to rows of another comes behind it."""
        ...

    def catch_up(self) -> None:
        """Do now what was put off."""
        ...

    def begin(self) -> bool:
        """Whether the connection was lost meanwhile: then what happened may not have been heard of."""
        ...

    def commit(self) -> None:
        """When this returns all of it is stored; when it raises nothing is."""
        ...

    def rollback(self) -> None: ...

    def savepoint(self) -> AbstractContextManager[None]:
        """What happens inside is undone, and only that, when the block is left by an exception."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """Statements inside see one moment of the database."""
        ...

    def own_epoch(self, epoch: int) -> None:
        """Transactions are this epoch's from now on; where a later one has been raised they are refused."""
        ...

    def fileno(self) -> int:
        """Readable when the database has something to say unasked; -1 where it never has."""
        ...

    def hear(self) -> bool:
        """Take in what it said; whether that is news: somebody else changed the store, or the connection is lost."""
        ...

    def bulk(self) -> Bulk: ...
    def close(self) -> None: ...
