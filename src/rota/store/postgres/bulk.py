"""Whole tables in and out of PostgreSQL, inside the transaction that is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from rota.store.database import PAGE, Row, Tables
from rota.store.postgres.connection import Connection
from rota.store.postgres.trouble import meaning


class PostgresBulk:
    def __init__(self, connection: Connection, where: str) -> None:
        """`where` is the server as people know it, for when it is in trouble."""
        self._connection = connection
        self._where = where

    @contextmanager
    def _tried(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise meaning(error, self._where) from error

    def _texts(self, statement: str) -> list[tuple[str | None, ...]]:
        with self._tried():
            return self._connection.texts(statement)

    def tables(self) -> Tables:
        """In the order of their making, in which each stands behind those it refers to."""
        found: dict[str, tuple[str, ...]] = {}
        rows = self._texts(
            "SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid "
            "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace "
            "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.oid, a.attnum"
        )
        for table, column in rows:
            found[str(table)] = (*found.get(str(table), ()), str(column))
        return found

    def count(self, table: str) -> int:
        return int(self._texts(f'SELECT count(*) FROM "{table}"')[0][0] or 0)

    def scan(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        with self._tried(), self._connection.cursor() as cursor:
            cursor.execute(sql.SQL("DECLARE scan NO SCROLL CURSOR FOR SELECT {} FROM {}").format(
                _names(columns), sql.Identifier(table)))  # fmt: skip
            while page := cursor.execute(f"FETCH {PAGE} FROM scan").fetchall():
                yield page
            cursor.execute("CLOSE scan")

    def clear(self, table: str) -> None:
        with self._tried():
            self._connection.do(f'DELETE FROM "{table}"')

    def fill(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """PostgreSQL has no place for a NUL in a text: what had one gets the sign for what cannot be shown."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _names(columns))
        with self._tried(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row([cell.replace("\x00", "\ufffd") if isinstance(cell, str) else cell for cell in row])


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
