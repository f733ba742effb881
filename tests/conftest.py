"""Fixtures that several test packages use."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from rota.db.postgres.store import PostgresStore
from rota.db.sqlite import checkpoint, database
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from tests.db.harness import StoreHarness
from tests.db.invariants import check_store
from tests.harness import Damage, Scheduler, SqlRunner, make_sqlite_runner, sqlite_connection
from tests.postgres_server import Schema, postgres_schema, postgres_server, postgres_url
from tests.sample import load_profile

__all__ = ["postgres_schema", "postgres_server", "postgres_url"]

load_profile()

# Shells and `nohup` make background processes ignore signals, and child processes inherit that. A handler that does
# nothing has the same effect here, but is reset to the default in child processes.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


_LONG_FILES = ("test_contract.py", "test_direct_survival.py", "test_points.py", "test_simulation.py", "test_store.py")
"""Files with tests of 15 to 30 seconds. They run first, so that no process waits for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _LONG_FILES)


def _tests_sql(path: Path) -> bool:
    """Return whether the tests of a file exercise the SQL of a repository."""
    return "db" in path.parts or path.name == "test_repository.py"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres",
        choices=["marked", "all"],
        default="marked",
        help="Run on PostgreSQL only the tests that exercise its transactions (marked, the default), or all.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run rules that do not depend on the database on SQLite only: the tests of repositories prove the SQL on both."""
    if "store" not in metafunc.fixturenames:
        return
    is_on_both = (
        _tests_sql(metafunc.definition.path)
        or metafunc.config.getoption("--postgres") == "all"
        or metafunc.definition.get_closest_marker("both_databases") is not None
    )
    metafunc.parametrize("store", ["sqlite", "postgres"] if is_on_both else ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def unsynced_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off durability and preallocation of SQLite files, for speed.

    Tests of the files override this fixture by an empty one. It has no effect on schedulers in other processes."""
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")
    monkeypatch.setattr(checkpoint, "_WAL_BYTES", 0)


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a new SQLite database with the current schema. To copy it is ten times as fast as to migrate one."""
    path = tmp_path_factory.mktemp("migrated") / "rota.db"
    SqliteStore(path).session().close()
    return path


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Store on each database that the test runs on (see `--postgres`)."""
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("postgres_url"))
    shutil.copyfile(request.getfixturevalue("migrated_database"), tmp_path / "rota.db")
    return SqliteStore(tmp_path / "rota.db")


@pytest.fixture
def run_sql(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> SqlRunner:
    """Function that runs SQL directly on the database of `store`."""
    if isinstance(store, PostgresStore):
        schema: Schema = request.getfixturevalue("postgres_schema")
        return schema.run_sql
    return make_sqlite_runner(tmp_path / "rota.db")


@pytest.fixture
def make_scheduler(store: Store, tmp_path: Path) -> Iterator[Callable[..., Scheduler]]:
    """Function that makes a scheduler with these pool sizes; `flow__x` stands for `flow/x`."""
    schedulers: list[Scheduler] = []

    def make(**pools: int) -> Scheduler:
        scheduler = Scheduler(store, tmp_path, {name.replace("__", "/"): size for name, size in pools.items()})
        schedulers.append(scheduler)
        return scheduler

    yield make
    for scheduler in schedulers:
        scheduler.close()


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler with the default pool sizes: one job at a time."""
    return make_scheduler()


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without pool limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})


@pytest.fixture
def idle_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without capacity, which starts no jobs."""
    return make_scheduler(**{"global": 0})


@pytest.fixture
def harness(store: Store, run_sql: SqlRunner) -> Iterator[StoreHarness]:
    harness = StoreHarness(store, run_sql)
    yield harness
    harness.close()


@pytest.fixture(autouse=True)
def _check_store_at_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the store invariants after each test, except tests of the store itself."""
    is_damaged = request.node.get_closest_marker("damages_store") is not None
    if "store" not in request.fixturenames or _tests_sql(request.path) or is_damaged:
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
