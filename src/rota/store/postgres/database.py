"""PostgreSQL behind the `Database` port, for those who look: a lost connection is opened again where nothing
can be lost by it, at the next look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import psycopg

from rota.errors import StoreAway, StoreError
from rota.store import statement
from rota.store.database import Bulk, Row
from rota.store.postgres.address import Address
from rota.store.postgres.bulk import PostgresBulk
from rota.store.postgres.connection import Connection
from rota.store.postgres.dialect import Statement, translate
from rota.store.postgres.trouble import meaning
from rota.store.put_off import PuttingOff

T = TypeVar("T")


@lru_cache(maxsize=1)
def _statements() -> Mapping[str, Statement]:
    return statement.load(translate)


class PostgresDatabase(PuttingOff):
    def __init__(self, address: Address) -> None:
        super().__init__()
        self._address = address
        self._statements = _statements()
        self._depth = 0
        self._waiting: list[str] = []
        """Savepoints begun and released, not yet sent: they go with the next statement, if there is one."""
        self._flushes = 0
        self._has_changed = False
        """Something was written in this transaction."""
        self._connection: Connection | None = None
        self._connect()

    def _connect(self) -> None:
        self._drop()
        self._connection = self._tried(lambda: Connection(self._address))

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _is_lost(self) -> bool:
        return self._connection is None or self._connection.is_lost

    def _live(self) -> Connection:
        """The connection, with what was waiting sent ahead."""
        if self._connection is None:
            raise StoreAway(f"the connection to {self._address.shown} was lost")
        if self._waiting:
            self._flushes += 1
            control, self._waiting = ";".join(self._waiting), []
            self._connection.do(control)
        return self._connection

    def _tried(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except psycopg.Error as error:
            raise meaning(error, self._address.shown) from error

    def _tried_again(self, act: Callable[[], T]) -> T:
        """Where nothing has been done yet, a lost connection is no reason to fail."""
        if self._is_lost:
            self._connect()
        try:
            return self._tried(act)
        except StoreError:
            if not self._is_lost:
                raise
        self._connect()
        return self._tried(act)

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        self.catch_up()

        def act() -> list[Row]:
            connection = self._live()
            result = connection.execute(name, self._statements[name], values)
            self._has_changed = self._has_changed or not (result.command_status or b"").startswith(b"SELECT")
            return connection.rows(name, result)

        return self._tried(act) if self._is_inside else self._tried_again(act)

    def run(self, name: str, /, **values: Any) -> int:
        self.catch_up()
        touched = self._tried(lambda: self._live().execute(name, self._statements[name], values).command_tuples or 0)
        self._has_changed = self._has_changed or touched > 0
        return touched

    def run_many(self, name: str, values: Sequence[Mapping[str, Any]], /) -> int:
        self.catch_up()
        if len(values) == 1:
            return self.run(name, **values[0])
        if not values:
            return 0
        touched = self._tried(lambda: self._live().execute_many(name, self._statements[name], values))
        self._has_changed = self._has_changed or touched > 0
        return touched

    _is_inside = False
    """A transaction has begun: what fails now fails all of it."""

    def begin(self) -> bool:
        self._tried_again(lambda: self._open("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"))
        return False

    def _open(self, sql: str) -> None:
        self._waiting.clear()
        self._has_changed = False
        self._live().do(sql)
        self._is_inside = True

    def commit(self) -> None:
        self.catch_up()
        self._waiting.clear()  # what is still to be released is released with the rest
        self._is_inside = False
        self._confirm(self._tried(lambda: self._live().do("COMMIT").command_status))

    def _confirm(self, answer: bytes | None) -> None:
        """A transaction in which a statement failed is answered ROLLBACK, and that is no error to the server."""
        if answer != b"COMMIT":
            raise StoreError(f"{self._address.shown} undid a transaction in which a statement had failed")

    def rollback(self) -> None:
        self._put_off = {}
        self._waiting.clear()
        self._is_inside = False
        if self._connection is None:
            return
        try:
            if self._connection.is_in_transaction:
                self._connection.do("ROLLBACK")
        except psycopg.Error:
            self._drop()  # the server undoes what it does not hear the end of
        if self._is_lost:
            self._drop()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self.catch_up()
        self._depth += 1
        name = f"s{self._depth}"
        place, flushes = len(self._waiting), self._flushes
        self._waiting.append(f"SAVEPOINT {name}")
        try:
            yield
            self.catch_up()
        except BaseException:
            self._put_off = {}
            if self._flushes == flushes:
                del self._waiting[place:]
            else:
                self._undo_to(name)
            raise
        else:
            if self._flushes == flushes:
                del self._waiting[place:]
            else:
                self._waiting.append(f"RELEASE {name}")
        finally:
            self._depth -= 1

    def _undo_to(self, name: str) -> None:
        """A lost connection has undone it already, with all the rest."""
        self._waiting.clear()
        connection = self._connection
        if connection is not None and connection.is_in_transaction:
            self._tried(lambda: connection.do(f"ROLLBACK TO {name};RELEASE {name}"))

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._tried_again(lambda: self._open("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
        try:
            yield
        finally:
            self.rollback()

    def own_epoch(self, epoch: int) -> None:
        """Those who only look have none."""

    def fileno(self) -> int:
        return -1

    def hear(self) -> bool:
        return False

    def bulk(self) -> Bulk:
        self.catch_up()
        return PostgresBulk(self._tried(self._live), self._address.shown)

    def close(self) -> None:
        self._drop()
