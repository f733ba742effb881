from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from harness import Scheduler, SqlRunner, sqlite_connection
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite.store import SqliteStore
from store.invariants import check_store

Damage = Callable[[str], None]


@pytest.fixture
def damage(store: Store, run_sql: SqlRunner, tmp_path: Path) -> Iterator[Damage]:
    """Function that runs SQL without the CHECK constraints of the schema, to damage a record."""
    if not isinstance(store, PostgresStore):

        def run_unchecked(sql: str) -> None:
            with closing(sqlite3.connect(tmp_path / "rota.db", timeout=10)) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                connection.execute(sql)
                connection.commit()

        yield run_unchecked
        return
    checks = run_sql(
        "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace"
    )
    for name, table, _ in checks:
        run_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    yield lambda sql: discard(run_sql(sql))
    for name, table, definition in checks:  # later tests use the same schema; damaged rows are removed before
        run_sql(f'ALTER TABLE {table} ADD CONSTRAINT "{name}" {definition.removesuffix(" NOT VALID")} NOT VALID')


def discard(_rows: object) -> None: ...


@pytest.fixture(autouse=True)
def _check_store_at_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the store invariants after each test."""
    if "store" not in request.fixturenames:
        yield
        return
    run_sql: SqlRunner = request.getfixturevalue("run_sql")
    is_sqlite = isinstance(request.getfixturevalue("store"), SqliteStore)
    directory: Path = request.getfixturevalue("tmp_path")
    yield
    # The check runs about 20 statements; on SQLite `run_sql` would open a connection for each.
    with sqlite_connection(directory / "rota.db") if is_sqlite else nullcontext(run_sql) as connected:
        check_store(connected)


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without pool limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})
