"""Copying a store into another, in both directions, completely or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rota.db.copy import copy_store
from rota.db.postgres.store import PostgresStore
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from rota.errors import Conflict, StoreError, StoreUnavailable
from rota.ids import JobId
from rota.kernel.status import Status
from tests.db.postgres.proxy import Proxy, proxied
from tests.harness import Scheduler
from tests.postgres_server import Schema, Server


@pytest.fixture
def proxy(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxied(postgres_server.root, tmp_path_factory.mktemp("p")) as proxy:
        yield proxy


def read_content(store: Store) -> dict[str, Any]:
    with closing(store.reader()) as reader, reader.read_transaction():
        bulk = reader.bulk_tables()
        tables = {
            table: sorted((row for page in bulk.scan_rows(table, sorted(columns)) for row in page), key=repr)
            for table, columns in bulk.tables().items()
        }
        tables["meta"] = [row for row in tables["meta"] if row[0] not in ("turn", "schema_version", "schema_digest")]
        return tables


def fill_store(store: Store, home: Path) -> None:
    """Fill a store with a job in each kind of state, one of them running."""
    with closing(Scheduler(store, home, {"global": 2})) as scheduler:
        scheduler.session.begin()
        scheduler.session.raise_epoch()
        scheduler.session.commit()
        failed = scheduler.submit("echo", "ä", params={"a": "\x00"}, locks=["k"])
        scheduler.confirm_start(failed)
        scheduler.end_run(failed, code=3, tail="oops")
        running = scheduler.submit(locks=["k"], delay=None)
        scheduler.run_once("once", "it", lambda _: "done")
        scheduler.confirm_start(running)
        scheduler.submit(after=[running], locks=["k:shared"])
        scheduler.submit(delay="1h", flow="f")
        scheduler.submit(after=[failed])


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite"])
def stores(request: pytest.FixtureRequest, postgres_store: PostgresStore, tmp_path: Path) -> tuple[Store, Store]:
    source, target = SqliteStore(tmp_path / "source.db"), SqliteStore(tmp_path / "target.db")
    return {
        "sqlite to postgres": (source, postgres_store),
        "postgres to sqlite": (postgres_store, target),
        "sqlite to sqlite": (source, target),
    }[request.param]  # type: ignore[return-value]


def test_copy_is_complete_and_the_queue_continues(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = stores
    fill_store(source, tmp_path)
    reports: list[tuple[str, int, int]] = []
    copied = copy_store(source, target, lambda *progress: reports.append(progress))
    before, after = read_content(source), read_content(target)
    assert after == before or {**before, "meta": after["meta"]} == after
    assert dict(after["meta"]).items() >= {"epoch": "1"}.items()
    assert copied["job"] == 5
    assert reports[-1][1] == reports[-1][2]
    assert {table for table, done, total in reports if done == total} == set(copied)
    last = max(row[-1] for row in read_content(target)["event"] if isinstance(row[-1], int))
    with closing(Scheduler(target, tmp_path, {"global": 4})) as scheduler:
        scheduler.session.begin()
        assert scheduler.session.raise_epoch() == 2
        scheduler.session.commit()
        assert scheduler.submit() == 6  # ids continue
        assert scheduler.reader.events.since(last, 1)[0][0] == last + 1
        scheduler.drain()


def test_copied_store_reuses_no_ids(stores: tuple[Store, Store], tmp_path: Path) -> None:
    """Ids of deleted rows are not reused either."""
    source, target = stores
    with closing(source.session()) as session:
        session.begin()
        session.ids.retire("event", 500)
        session.commit()
    copy_store(source, target)
    with closing(Scheduler(target, tmp_path)) as scheduler:
        scheduler.submit()
        assert scheduler.reader.events.since(0, 1)[0][0] == 501


def test_non_empty_target_is_refused_and_unchanged(stores: tuple[Store, Store], tmp_path: Path) -> None:
    for store in stores:
        fill_store(store, tmp_path)
    before = read_content(stores[1])
    with pytest.raises(Conflict, match="not empty"):
        copy_store(*stores)
    assert read_content(stores[1]) == before


def test_failed_copy_leaves_nothing(stores: tuple[Store, Store], tmp_path: Path) -> None:
    source, target = stores
    fill_store(source, tmp_path)

    def fail_at_runs(table: str, done: int, total: int) -> None:
        if table == "run":
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        copy_store(source, target, fail_at_runs)
    assert copy_store(source, target)["job"] == 5


@pytest.fixture
def own_schema(postgres_server: Server) -> Iterator[Schema]:
    """Schema of this test alone: its constraints change."""
    schema = Schema(postgres_server)
    yield schema
    schema.close()


def damage_records(store: Store, schema: Schema) -> None:
    """Store a job with an unknown status and a group with an unknown mode, as a newer version may."""
    updates = ("UPDATE job SET status = 'SUSPENDED' WHERE id = 4", "UPDATE job_group SET mode = 'zz'")
    if isinstance(store, SqliteStore):
        with closing(sqlite3.connect(store.path)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for update in updates:
                connection.execute(update)
            connection.commit()
        return
    checks = schema.run_sql(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace"
    )
    for table, name in checks:
        schema.run_sql(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    for update in updates:
        schema.run_sql(update)


@pytest.mark.parametrize("direction", ["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite"])
def test_unreadable_record_is_copied_as_it_is(own_schema: Schema, tmp_path: Path, direction: str) -> None:
    file, server = SqliteStore(tmp_path / "source.db"), PostgresStore(own_schema.url)
    source: Store = server if direction.startswith("postgres") else file
    target: Store = server if direction.endswith("postgres") else SqliteStore(tmp_path / "target.db")
    fill_store(source, tmp_path)
    with closing(Scheduler(source, tmp_path)) as scheduler:
        scheduler.submit_group({}, {})
    damage_records(source, own_schema)
    before = read_content(source)
    copy_store(source, target)
    after = read_content(target)
    assert {**after, "meta": []} == {**before, "meta": []}
    with closing(Scheduler(target, tmp_path, {"global": -1})) as scheduler:
        assert scheduler.status(JobId(4)) is Status.UNREADABLE
        scheduler.cancel(JobId(4))
        assert scheduler.status(JobId(4)) is Status.CANCELLED
        assert scheduler.status(scheduler.submit()) is not Status.UNREADABLE
        assert scheduler.engine.errors == []


def test_copy_restores_the_constraints_that_hold(own_schema: Schema, tmp_path: Path) -> None:
    """PostgreSQL would refuse each later update of a row that violates a constraint, so only those are left out."""
    sql = (
        "SELECT conname, convalidated FROM pg_constraint"
        " WHERE contype = 'c' AND connamespace = current_schema()::regnamespace"
    )
    source = SqliteStore(tmp_path / "source.db")
    fill_store(source, tmp_path)
    damage_records(source, own_schema)
    before = set(own_schema.run_sql(sql))
    copy_store(source, PostgresStore(own_schema.url))
    assert {name for name, _ in before - set(own_schema.run_sql(sql))} == {"job_status_check", "job_check"}


def test_failed_copy_leaves_no_file(tmp_path: Path) -> None:
    source, target = SqliteStore(tmp_path / "source.db"), SqliteStore(tmp_path / "target.db")
    fill_store(source, tmp_path)
    with closing(sqlite3.connect(source.path)) as connection:
        connection.execute("DELETE FROM job WHERE id = 5")
        connection.commit()
    with pytest.raises(StoreError, match=r"rows of edge cannot be copied.*FOREIGN KEY"):
        copy_store(source, target)
    assert list(tmp_path.glob("target.db*")) == []


@pytest.mark.parametrize("direction", ["to", "from"])
@pytest.mark.parametrize(("table", "has_begun"), [("job", False), ("event", False), ("run", True)])
def test_server_lost_during_copy_is_reported_and_leaves_nothing(
    proxy: Proxy, postgres_url: str, tmp_path: Path, direction: str, table: str, *, has_begun: bool
) -> None:
    """The connection is lost before the first rows of a table, or after them."""
    file, server = SqliteStore(tmp_path / "a.db"), PostgresStore(postgres_url)
    source, target = (file, server) if direction == "to" else (server, file)
    fill_store(source, tmp_path)

    def lose_connection(current: str, done: int, _total: int) -> None:
        if current == table and bool(done) == has_begun:
            proxy.cut()

    proxied_server = PostgresStore(proxy.url(postgres_url))
    with pytest.raises(StoreUnavailable, match="is unavailable"):
        copy_store(
            file if direction == "to" else proxied_server,
            proxied_server if direction == "to" else file,
            lose_connection,
        )
    assert copy_store(source, target)["job"] == 5


def test_session_terminated_during_copy_is_reported(postgres_url: str, postgres_schema: Schema, tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "source.db")
    fill_store(source, tmp_path)
    terminate = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = current_schema()"

    def terminate_sessions(table: str, _done: int, _total: int) -> None:
        if table == "run":
            postgres_schema.run_sql(terminate)

    with pytest.raises(StoreUnavailable, match="terminating connection"):
        copy_store(source, PostgresStore(postgres_url), terminate_sessions)
    assert copy_store(source, PostgresStore(postgres_url))["job"] == 5


def test_store_in_use_is_not_copied(postgres_url: str, tmp_path: Path) -> None:
    store = PostgresStore(postgres_url, lock_timeout=0.1)
    with closing(store.session()), pytest.raises(Conflict, match="another scheduler"):
        copy_store(store, SqliteStore(tmp_path / "target.db"))


def test_copy_replaces_nul_characters(postgres_store: PostgresStore, tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "source.db")
    with closing(source.session()) as session:
        session.begin()
        session._db.run("add_response", key="a\x00b", digest="d", status=201, response="{}", at=0)
        session.commit()
    copy_store(source, postgres_store)
    with closing(postgres_store.session()) as session:
        assert session.responses.find("a\ufffdb") == ("d", 201, "{}")
