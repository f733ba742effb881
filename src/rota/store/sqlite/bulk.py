"""Whole tables in and out of SQLite, inside the transaction that is open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from rota.store.database import PAGE, Row, Tables


class SqliteBulk:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tables(self) -> Tables:
        """In the order of their making, in which each stands behind those it refers to."""
        names = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY rowid"
        ).fetchall()
        return {
            table: tuple(row[0] for row in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,)))
            for (table,) in names
        }

    def count(self, table: str) -> int:
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])

    def scan(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        cursor = self._connection.execute(f'SELECT {_names(columns)} FROM "{table}"')
        while page := cursor.fetchmany(PAGE):
            yield page

    def clear(self, table: str) -> None:
        self._connection.execute(f'DELETE FROM "{table}"')

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        places = ", ".join("?" * len(columns))
        self._connection.executemany(f'INSERT INTO "{table}" ({_names(columns)}) VALUES ({places})', rows)


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
