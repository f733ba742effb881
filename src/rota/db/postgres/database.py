"""PostgreSQL driver for readers. It reconnects at the next read after a lost connection, if that loses no changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import psycopg

from rota.db import statements
from rota.db.database import BulkTables, Row, WriteBuffer
from rota.db.postgres.address import PostgresAddress
from rota.db.postgres.bulk import PostgresBulkTables
from rota.db.postgres.connection import PostgresConnection, translate_error
from rota.db.postgres.dialect import PostgresStatement, translate_statement
from rota.errors import StoreError, StoreUnavailable

T = TypeVar("T")


@lru_cache(maxsize=1)
def _load_statements() -> Mapping[str, PostgresStatement]:
    return statements.load_statements(translate_statement)


class PostgresDatabase(WriteBuffer):
    def __init__(self, address: PostgresAddress) -> None:
        super().__init__()
        self._address = address
        self._statements = _load_statements()
        self._depth = 0
        self._pending_control: list[str] = []
        """Savepoint commands that are not sent yet. They go out with the next statement, or never if none follows."""
        self._flushes = 0
        self._has_writes = False
        """Whether this transaction has changed anything."""
        self._connection: PostgresConnection | None = None
        self._connect()

    def _connect(self) -> None:
        self._disconnect()
        self._connection = self._run_translated(lambda: PostgresConnection(self._address))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _is_lost(self) -> bool:
        return self._connection is None or self._connection.is_lost

    def _live_connection(self) -> PostgresConnection:
        """Return the connection, after sending pending savepoint commands."""
        if self._connection is None:
            raise StoreUnavailable(f"the connection to {self._address.redacted_url} was lost")
        if self._pending_control:
            self._flushes += 1
            control, self._pending_control = ";".join(self._pending_control), []
            self._connection.execute_script(control)
        return self._connection

    def _run_translated(self, operation: Callable[[], T]) -> T:
        try:
            return operation()
        except psycopg.Error as error:
            raise translate_error(error, self._address.redacted_url) from error

    def _run_with_reconnect(self, operation: Callable[[], T]) -> T:
        """Run an operation that starts from scratch, so that it can be repeated after a reconnect."""
        if self._is_lost:
            self._connect()
        try:
            return self._run_translated(operation)
        except StoreError:
            if not self._is_lost:
                raise
        self._connect()
        return self._run_translated(operation)

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        self.flush()

        def read() -> list[Row]:
            connection = self._live_connection()
            result = connection.execute(name, self._statements[name], values)
            self._has_writes = self._has_writes or not (result.command_status or b"").startswith(b"SELECT")
            return connection.read_rows(name, result)

        return self._run_translated(read) if self._is_in_transaction else self._run_with_reconnect(read)

    def run(self, name: str, /, **values: Any) -> int:
        self.flush()
        affected = self._run_translated(
            lambda: self._live_connection().execute(name, self._statements[name], values).command_tuples or 0
        )
        self._has_writes = self._has_writes or affected > 0
        return affected

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        self.flush()
        if len(values) == 1:
            return self.run(name, **values[0])
        if not values:
            return 0
        affected = self._run_translated(
            lambda: self._live_connection().execute_many(name, self._statements[name], values)
        )
        self._has_writes = self._has_writes or affected > 0
        return affected

    _is_in_transaction = False
    """Whether a transaction is open, so that an error fails all of it."""

    def begin(self) -> bool:
        self._run_with_reconnect(lambda: self._begin_transaction("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"))
        return False

    def _begin_transaction(self, sql: str) -> None:
        self._pending_control.clear()
        self._has_writes = False
        self._live_connection().execute_script(sql)
        self._is_in_transaction = True

    def commit(self) -> None:
        self.flush()
        self._pending_control.clear()  # the commit releases the remaining savepoints
        self._is_in_transaction = False
        self._check_commit(
            self._run_translated(lambda: self._live_connection().execute_script("COMMIT").command_status)
        )

    def _check_commit(self, command_status: bytes | None) -> None:
        """Raise if the server rolled back. It answers the COMMIT of a failed transaction with ROLLBACK and reports no
        error."""
        if command_status != b"COMMIT":
            raise StoreError(f"{self._address.redacted_url} rolled back a transaction in which a statement had failed")

    def rollback(self) -> None:
        self._buffered = {}
        self._pending_control.clear()
        self._is_in_transaction = False
        if self._connection is None:
            return
        try:
            if self._connection.is_in_transaction:
                self._connection.execute_script("ROLLBACK")
        except psycopg.Error:
            self._disconnect()  # the server rolls back when the connection ends
        if self._is_lost:
            self._disconnect()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.flush()
        self._depth += 1
        name = f"s{self._depth}"
        start, flushes = len(self._pending_control), self._flushes
        self._pending_control.append(f"SAVEPOINT {name}")
        try:
            yield
            self.flush()
        except BaseException:
            self._buffered = {}
            if self._flushes == flushes:
                del self._pending_control[start:]
            else:
                self._rollback_to(name)
            raise
        else:
            if self._flushes == flushes:
                del self._pending_control[start:]
            else:
                self._pending_control.append(f"RELEASE {name}")
        finally:
            self._depth -= 1

    def _rollback_to(self, name: str) -> None:
        """Roll back to a savepoint. After a lost connection everything is undone already."""
        self._pending_control.clear()
        connection = self._connection
        if connection is not None and connection.is_in_transaction:
            self._run_translated(lambda: connection.execute_script(f"ROLLBACK TO {name};RELEASE {name}"))

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        self._run_with_reconnect(lambda: self._begin_transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
        try:
            yield
        finally:
            self.rollback()

    def set_fencing_epoch(self, epoch: int) -> None:
        """Do nothing, because readers have no epoch."""

    def fileno(self) -> int:
        return -1

    def poll_notifications(self) -> bool:
        return False

    def bulk_tables(self) -> BulkTables:
        self.flush()
        return PostgresBulkTables(self._run_translated(self._live_connection), self._address.redacted_url)

    def close(self) -> None:
        self._disconnect()
