"""Whole tables in and out of SQLite, inside the open transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rota.db.database import PAGE_ROWS, Row, TableColumns
from rota.errors import StoreError


class SqliteBulkTables:
    def __init__(self, connection: sqlite3.Connection, translate_error: Callable[[sqlite3.Error], Exception]) -> None:
        """`translate_error` turns an error of SQLite into an error of the store."""
        self._connection = connection
        self._translate_error = translate_error

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translate_error(error) from error

    def tables(self) -> TableColumns:
        """Return the tables in the order of their creation, so that a table comes after those it refers to."""
        with self._translating_errors():
            names = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY rowid"
            ).fetchall()
            columns = "SELECT name FROM pragma_table_info(?)"
            return {table: tuple(row[0] for row in self._connection.execute(columns, (table,))) for (table,) in names}

    def count_rows(self, table: str) -> int:
        with self._translating_errors():
            return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def scan_rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        with self._translating_errors():
            cursor = self._connection.execute(f'SELECT {_quote_names(columns)} FROM "{table}"')
            while page := cursor.fetchmany(PAGE_ROWS):
                yield page

    def delete_rows(self, table: str) -> None:
        with self._translating_errors():
            self._connection.execute(f'DELETE FROM "{table}"')

    @contextmanager
    def without_checks(self) -> Iterator[None]:
        with self._translating_errors():
            self._connection.execute("PRAGMA ignore_check_constraints = ON")
            try:
                yield
            finally:
                self._connection.execute("PRAGMA ignore_check_constraints = OFF")

    def insert_rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        placeholders = ", ".join("?" * len(columns))
        try:
            self._connection.executemany(
                f'INSERT INTO "{table}" ({_quote_names(columns)}) VALUES ({placeholders})', rows
            )
        except sqlite3.IntegrityError as error:
            raise StoreError(f"the rows of {table} cannot be copied: {error}") from error
        except sqlite3.Error as error:
            raise self._translate_error(error) from error


def _quote_names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
