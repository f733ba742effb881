"""Whole tables in and out of PostgreSQL, inside the open transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from rota.db.database import PAGE_ROWS, Row, TableColumns
from rota.db.postgres.connection import PostgresConnection, translate_error
from rota.errors import StoreError


class PostgresBulkTables:
    def __init__(self, connection: PostgresConnection, server_name: str) -> None:
        """`server_name` identifies the server in error messages."""
        self._connection = connection
        self._server_name = server_name

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise translate_error(error, self._server_name) from error

    def _query_text(self, statement: str) -> list[tuple[str | None, ...]]:
        with self._translating_errors():
            return self._connection.query_text(statement)

    def tables(self) -> TableColumns:
        """Return the tables in the order of their creation, so that a table comes after those it refers to."""
        tables: dict[str, tuple[str, ...]] = {}
        rows = self._query_text(
            "SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid "
            "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace "
            "AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.oid, a.attnum"
        )
        for table, column in rows:
            tables[str(table)] = (*tables.get(str(table), ()), str(column))
        return tables

    def count_rows(self, table: str) -> int:
        return int(self._query_text(f'SELECT count(*) FROM "{table}"')[0][0] or 0)

    def scan_rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Row]]:
        with self._translating_errors(), self._connection.cursor() as cursor:
            cursor.execute(
                sql.SQL("DECLARE scan NO SCROLL CURSOR FOR SELECT {} FROM {}").format(
                    _quote_names(columns), sql.Identifier(table)
                )
            )
            while page := cursor.execute(f"FETCH {PAGE_ROWS} FROM scan").fetchall():
                yield page
            cursor.execute("CLOSE scan")

    def delete_rows(self, table: str) -> None:
        with self._translating_errors():
            self._connection.execute_script(f'DELETE FROM "{table}"')

    @contextmanager
    def without_checks(self) -> Iterator[None]:
        """Drop the constraints, and add those again that all rows satisfy.

        PostgreSQL checks every constraint of a row at each update. A constraint that a record violates would therefore
        fail each turn that updates this record, even if it was added as NOT VALID."""
        constraints = self._query_text(
            "SELECT conrelid::regclass, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE contype = 'c' AND connamespace = current_schema()::regnamespace ORDER BY conrelid, conname"
        )
        with self._translating_errors():
            for table, name, _ in constraints:
                self._connection.execute_script(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        yield
        with self._translating_errors():
            for table, name, definition in constraints:
                self._connection.execute_script(
                    f"DO $$ BEGIN ALTER TABLE {table} ADD CONSTRAINT {name} {definition};"
                    " EXCEPTION WHEN check_violation THEN NULL; END $$"
                )

    def insert_rows(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Insert rows. PostgreSQL cannot store a NUL character in text; U+FFFD replaces it."""
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _quote_names(columns))
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row([cell.replace("\x00", "\ufffd") if isinstance(cell, str) else cell for cell in row])
        except (psycopg.IntegrityError, psycopg.DataError) as error:
            text = " ".join(str(error).split())
            raise StoreError(f"the rows of {table} cannot be copied: {text}") from error
        except psycopg.Error as error:
            raise translate_error(error, self._server_name) from error


def _quote_names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
