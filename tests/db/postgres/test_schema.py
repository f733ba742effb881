"""Migrations, types of returned values, and the names of schema and tables."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota.db import statements as db_statements
from rota.db.copy import migrate_store
from rota.db.database import Row
from rota.db.postgres.dialect import translate_statement
from rota.db.postgres.store import PostgresStore
from rota.db.sqlite.store import SqliteStore
from rota.db.statements import load_migrations
from rota.errors import Conflict, StoreError, StoreUnavailable
from rota.kernel.status import Status
from tests.harness import Scheduler
from tests.postgres_server import Schema, Server, fresh_schema


def test_store_has_its_own_schema(postgres_server: Server) -> None:
    name = fresh_schema()
    assert migrate_store(PostgresStore(postgres_server.url(name))) == len(load_migrations(str))
    with psycopg.connect(postgres_server.url().partition("&")[0]) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", [name]).fetchone()
        assert tables is not None
        assert tables[0] > 10


def test_current_schema_is_not_migrated_again(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    query = "SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY oid"
    before = postgres_schema.run_sql(query)
    assert migrate_store(postgres_store) == len(load_migrations(str))
    assert postgres_schema.run_sql(query) == before


def test_newer_store_is_refused(postgres_server: Server) -> None:
    url = postgres_server.url()
    store = PostgresStore(url)
    with closing(store.session()) as session:
        session.begin()
        session.meta.set("schema_version", "999")
        session.commit()
    with pytest.raises(StoreError, match="written by a newer version of Rota"):
        store.session()
    with pytest.raises(StoreError, match="newer"):  # the lock was released
        store.session()


def test_store_with_different_schema_of_same_version_is_refused(
    postgres_store: PostgresStore, postgres_schema: Schema
) -> None:
    postgres_schema.run_sql("UPDATE meta SET value = 'other' WHERE key = 'schema_digest'")
    with pytest.raises(StoreError, match="written by another version of Rota"):
        postgres_store.session()


def test_concurrent_opening_of_a_new_store_admits_one_scheduler(postgres_server: Server) -> None:
    store = PostgresStore(postgres_server.url(), lock_timeout=0.2)

    def open_session(_n: int) -> Any:
        try:
            return store.session()
        except Conflict as refused:
            return refused

    with ThreadPoolExecutor(6) as pool:
        responses = list(pool.map(open_session, range(6)))
    opened = [response for response in responses if not isinstance(response, Conflict)]
    assert len(opened) == 1
    assert opened[0].meta.get("schema_version") == str(len(load_migrations(str)))
    opened[0].close()


def test_reader_of_missing_store_fails(postgres_server: Server) -> None:
    with closing(PostgresStore(postgres_server.url()).reader()) as reader, pytest.raises(StoreError):
        reader.jobs.count_by_status()


def test_missing_server_makes_the_store_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="is unavailable"):
        PostgresStore(f"postgresql://me@/x?host={tmp_path}").session()


PARAMETERS: dict[str, Any] = {
    "at": 0,
    "ids": [1, 2, 3],
    "id": 1,
    "job": 1,
    "run": 1,
    "lane": 1,
    "chain": 1,
    "entity": "job",
    "key": "Z",
    "keys": ["Z", "a"],
    "limit": 50,
    "seq": 0,
    "before_id": 99,
    "statuses": list(Status),
    "now": 2**60,
    "policies": ["success"],
    "precedence": -(2**62),
    "position": 0,
    "created_at": 0,
    "digest": "",
    "demand": "{}",
    "status": "QUEUED",
    "type": "",
    "target": "",
    "since": 0,
    "name": None,
    "flow": None,
    "phase": None,
    "until": 2**60,
    "chains": [1, 2, 3],
    "needs_facts": 0,
    "artifact": 1,
    "artifacts": [1, 2],
    "names": ["file:/a", "file:/b"],
    "scope": "",
    "with_retried": 0,
    "jobs": [1, 2, 3],
    "except_job": 1,
    "offset": 0,
    "lanes": [1, 2, 3],
    "max_id": 99,
    "max_seq": 99,
    "group": 1,
    "hidden": ["FAILED"],
    "with_retries": 1,
    "receiver": "webhook-1",
    "webhook": 1,
    "state": None,
    "schedule": 1,
    "skipped_in": 1,
    "attempts": 0,
    "worker": None,
    "after": 0,
    "kinds": ["job.submitted"],
    "kind": "job.submitted",
    "first_key": 1,
    "count": 9,
    "max_kept": 9,
    "upper": 99,
    "group_prefix": "",
}
"""Parameter values for a store with a few jobs."""
HTTP_STATUS_STATEMENTS = ("responses_with_status", "responses_for_keys")
"""Statements whose `status` is an HTTP status."""


def select_statements() -> dict[str, dict[str, Any]]:
    """Return every SELECT statement with parameter values."""
    statements = {}
    for name, text in db_statements.load_statements(str).items():
        parameters = translate_statement(text).parameter_names
        if text.startswith("SELECT"):
            statements[name] = {parameter: PARAMETERS[parameter] for parameter in parameters} | (
                {"status": 102} if name in HTTP_STATUS_STATEMENTS else {}
            )
    assert len(statements) > 20
    return statements


def sorted_rows(rows: list[Row]) -> list[Row]:
    """Sort rows, because a statement without ORDER BY may return them in any order."""
    return sorted(rows, key=repr)


def test_values_have_the_types_of_sqlite(postgres_store: PostgresStore, tmp_path: Path) -> None:
    """Flags and counts are integers, JSON is text, and text sorts by bytes in any locale."""
    results = []
    for store in (SqliteStore(tmp_path / "rota.db"), postgres_store):
        with closing(Scheduler(store, tmp_path, {"global": 2})) as scheduler:
            scheduler.submit("echo", "ä\x7f\"'\\{}%:x", locks=["Z", "a", "É"], params={"a": [1, None, "\x00"]})
            scheduler.submit("false", after=["job-1"], timeout="5s", name="%s :name", priority=-7)
            scheduler.submit("true", locks=["Z:shared"], flow="f")
            scheduler.confirm_start(scheduler.started_jobs()[0], pid=2**31)
            results.append(
                {name: scheduler.reader._db.rows(name, **values) for name, values in select_statements().items()}
            )
    for name, rows in results[0].items():
        assert sorted_rows(results[1][name]) == sorted_rows(rows), name
        types = [[[type(cell) for cell in row] for row in sorted_rows(side[name])] for side in results]
        assert types[0] == types[1], name


def test_tables_equal_those_of_sqlite(postgres_schema: Schema, tmp_path: Path) -> None:
    SqliteStore(tmp_path / "rota.db").session().close()
    postgres_columns = postgres_schema.run_sql(
        "SELECT table_name, column_name, is_nullable = 'NO', data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    )
    with closing(sqlite3.connect(tmp_path / "rota.db")) as connection:
        sqlite_columns = connection.execute(
            'SELECT t.name, c.name, c."notnull" OR c.pk > 0, c.type '
            "FROM sqlite_master AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
        ).fetchall()
    kinds = {"INTEGER": "bigint", "TEXT": "text"}
    assert sorted(postgres_columns) == sorted(
        (table, column, bool(is_required), kinds[kind]) for table, column, is_required, kind in sqlite_columns
    )
