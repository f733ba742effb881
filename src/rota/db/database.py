"""Port of a database driver: named statements, one transaction, savepoints, and a buffer for writes.

Every driver raises its errors as `StorageFull`, as `StoreUnavailable` if the failure is temporary, or as `StoreError`.

Most submits of a turn read nothing between their writes, so their rows are buffered and sent together (`WriteBuffer`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rota.errors import StoreError

Row = tuple[Any, ...]
TableColumns = Mapping[str, tuple[str, ...]]
"""Columns of each table."""
PAGE_ROWS = 2000
"""Rows of a table that a bulk copy holds in memory at once."""
SCAN_ROWS = 5_000
"""Rows that a search for old rows reads at once."""


class FatalStoreError(StoreError):
    """Failure after which a retry would be wrong: the scheduler stops, and its successor recovers."""


class SupersededError(FatalStoreError):
    """Another scheduler has taken over the store."""


class UnknownOutcomeError(FatalStoreError):
    """The connection was lost during a commit, and its outcome cannot be determined."""


class BulkTables(Protocol):
    """Access to whole tables, inside the open transaction."""

    def tables(self) -> TableColumns:
        """Return the columns of each table. A table comes after the tables that it refers to."""
        ...

    def count_rows(self, table: str) -> int: ...
    def scan_rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]: ...
    def delete_rows(self, table: str) -> None: ...
    def insert_rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None: ...

    def without_checks(self) -> AbstractContextManager[None]:
        """Accept rows that violate a CHECK: a damaged record, or one of a newer version, is copied as it is."""
        ...


class Database(Protocol):
    """Connection to a database, used by one thread at a time."""

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return the rows of a named statement."""
        ...

    def run(self, name: str, /, **values: Any) -> int:
        """Execute a named statement and return the number of affected rows."""
        ...

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        """Execute a named statement once for each set of values and return the total number of affected rows."""
        ...

    def buffer(self, name: str, values: Sequence[Mapping[str, Any]], /) -> None:
        """Queue a `run_many` until the next flush.

        A flush happens before any other statement. Buffered statements run in the order in which their names were first
        buffered, so a row must be buffered after the rows that it refers to.
        """
        ...

    def flush(self) -> None:
        """Execute the buffered statements."""
        ...

    def begin(self) -> bool:
        """Begin a write transaction. Return whether the connection was lost before, so that notifications may be
        missing."""
        ...

    def commit(self) -> None:
        """Commit. On return everything is stored; on an exception nothing is."""
        ...

    def rollback(self) -> None: ...

    def savepoint(self) -> AbstractContextManager[None]:
        """Return a context that undoes its own changes, and only these, if an exception leaves it."""
        ...

    def read_transaction(self) -> AbstractContextManager[None]:
        """Return a context in which all statements see the same snapshot of the database."""
        ...

    def set_fencing_epoch(self, epoch: int) -> None:
        """Set the epoch of all further transactions. They are refused once a later epoch is stored."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the database sends a notification, or -1 if it never sends
        one."""
        ...

    def poll_notifications(self) -> bool:
        """Consume the pending notifications. Return whether another client changed the store or the connection was
        lost."""
        ...

    def bulk_tables(self) -> BulkTables: ...
    def close(self) -> None: ...


class WriteBuffer(ABC):
    """Buffer of a database driver. The driver flushes it before each other statement and discards it on a rollback."""

    def __init__(self) -> None:
        self._buffered: dict[str, list[Mapping[str, Any]]] = {}

    @abstractmethod
    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int: ...

    def buffer(self, name: str, values: Sequence[Mapping[str, Any]], /) -> None:
        self._buffered.setdefault(name, []).extend(values)

    def flush(self) -> None:
        if not self._buffered:
            return
        buffered, self._buffered = self._buffered, {}
        for name, values in buffered.items():
            self.run_many(name, values)
