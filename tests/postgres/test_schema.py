"""Migrations, the values that come back, and what the schema is called."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness import Scheduler
from postgres_server import Schema, Server, fresh_schema
from rota.core.status import Status
from rota.errors import Conflict, StoreAway, StoreError
from rota.store import statement
from rota.store.copy import migrate
from rota.store.database import Row
from rota.store.postgres.dialect import translate
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite.store import SqliteStore
from rota.store.statement import migrations


def test_the_store_lives_in_a_schema_of_its_own(postgres_server: Server) -> None:
    name = fresh_schema()
    assert migrate(PostgresStore(postgres_server.url(name))) == len(migrations(str))
    with psycopg.connect(postgres_server.url().partition("&")[0]) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = %s", [name]).fetchone()
        assert tables is not None
        assert tables[0] > 10


def test_a_store_that_is_up_to_date_is_left_alone(postgres_store: PostgresStore, postgres_schema: Schema) -> None:
    query = "SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY oid"
    before = postgres_schema.raw(query)
    assert migrate(postgres_store) == len(migrations(str))
    assert postgres_schema.raw(query) == before


def test_a_newer_store_is_refused(postgres_server: Server) -> None:
    url = postgres_server.url()
    store = PostgresStore(url)
    with closing(store.session()) as session:
        session.begin()
        session.set_meta("schema_version", "999")
        session.commit()
    with pytest.raises(StoreError, match="written by a newer version of Rota"):
        store.session()
    with pytest.raises(StoreError, match="newer"):  # and the lock was given back
        store.session()


def test_of_many_that_open_a_new_store_at_once_each_has_it_or_is_refused(postgres_server: Server) -> None:
    store = PostgresStore(postgres_server.url(), lock_wait=0.2)

    def attempt(_n: int) -> Any:
        try:
            return store.session()
        except Conflict as refused:
            return refused

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(attempt, range(6)))
    won = [answer for answer in answers if not isinstance(answer, Conflict)]
    assert len(won) == 1
    assert won[0].meta("schema_version") == str(len(migrations(str)))
    won[0].close()


def test_a_reader_of_a_store_that_is_not_there_says_so(postgres_server: Server) -> None:
    with closing(PostgresStore(postgres_server.url()).reader()) as reader, pytest.raises(StoreError):
        reader.counts()


def test_a_server_that_is_not_there_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreAway, match="is away"):
        PostgresStore(f"postgresql://me@/x?host={tmp_path}").session()


ANY: dict[str, Any] = {
    "at": 0,
    "ids": [1, 2, 3], "id": 1, "job": 1, "run": 1, "lane": 1, "chain": 1, "noun": "job", "key": "Z", "keys": ["Z", "a"],
    "limit": 50, "seq": 0, "below": 99, "statuses": list(Status), "now": 2**60, "policies": ["success"],
    "precedence": -(2**62), "position": 0, "created_at": 0, "digest": "", "draws": "{}", "status": "QUEUED",
    "type": "", "target": "", "since": 0, "name": None, "flow": None, "phase": None, "until": 2**60,
    "chains": [1, 2, 3], "asks": 0, "artifact": 1, "artifacts": [1, 2], "names": ["file:/a", "file:/b"], "scope": "",
    "with_retried": 0, "jobs": [1, 2, 3], "but": 1, "skipped": 0, "lanes": [1, 2, 3], "upto": 99, "group": 1,
    "with_begun": 1, "receiver": "webhook-1", "webhook": 1, "state": None, "schedule": 1, "skipped_in": 1, "tried": 0,
    "slot": 1, "worker": None, "after": 0, "kinds": ["job.submitted"], "kind": "job.submitted", "first": 1, "count": 9,
    "most": 9, "upper": 99, "mark": "", "told": 102,
}  # fmt: skip
"""Values for a store of a few jobs."""


def looks() -> dict[str, dict[str, Any]]:
    """Every statement that only looks, with values."""
    found = {}
    for name, text in statement.load(str).items():
        names = translate(text).names
        if text.startswith("SELECT"):
            found[name] = {key: ANY[key] for key in names}
    assert len(found) > 20
    return found


def sorted_rows(rows: list[Row]) -> list[Row]:
    """Where a statement does not say in which order they come, they may come in any."""
    return sorted(rows, key=repr)


def test_values_are_of_the_types_of_sqlite(postgres_store: PostgresStore, tmp_path: Path) -> None:
    """Flags and counts are whole numbers, JSON is text, and texts sort by their bytes whatever the locale."""
    seen = []
    for store in (SqliteStore(tmp_path / "rota.db"), postgres_store):
        with closing(Scheduler(store, tmp_path, {"global": 2})) as scheduler:
            scheduler.submit("echo", "ä\x7f\"'\\{}%:x", locks=["Z", "a", "É"], params={"a": [1, None, "\x00"]})
            scheduler.submit("false", after=["job-1"], timeout="5s", name="%s :name", priority=-7)
            scheduler.submit("true", locks=["Z:shared"], flow="f")
            scheduler.start(scheduler.started()[0], pid=2**31)
            seen.append({name: scheduler.reader._db.rows(name, **values) for name, values in looks().items()})
    for name, rows in seen[0].items():
        assert sorted_rows(seen[1][name]) == sorted_rows(rows), name
        types = [[[type(cell) for cell in row] for row in sorted_rows(side[name])] for side in seen]
        assert types[0] == types[1], name


def test_the_tables_are_those_of_sqlite(postgres_schema: Schema, tmp_path: Path) -> None:
    SqliteStore(tmp_path / "rota.db").session().close()
    here = postgres_schema.raw(
        "SELECT table_name, column_name, is_nullable = 'NO', data_type FROM information_schema.columns "
        "WHERE table_schema = current_schema()"
    )
    with closing(sqlite3.connect(tmp_path / "rota.db")) as connection:
        there = connection.execute(
            'SELECT t.name, c.name, c."notnull" OR c.pk > 0, c.type '
            "FROM sqlite_master AS t, pragma_table_info(t.name) AS c "
            "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
        ).fetchall()
    kinds = {"INTEGER": "bigint", "TEXT": "text"}
    assert sorted(here) == sorted((table, column, bool(must), kinds[kind]) for table, column, must, kind in there)
