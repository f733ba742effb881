"""Fixtures that several test packages use."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Scheduler, SqlRunner, make_sqlite_runner
from postgres_server import Schema, postgres_schema, postgres_server, postgres_url
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite import checkpoint, database
from rota.store.sqlite.store import SqliteStore
from sample import load_profile

__all__ = ["postgres_schema", "postgres_server", "postgres_url"]

load_profile()

# Shells and `nohup` make background processes ignore signals, and child processes inherit that. A handler that does
# nothing has the same effect here, but is reset to the default in child processes.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


_SQLITE_ONLY = {"command", "engine", "view", "workflow"}
"""Folders whose tests run on PostgreSQL only where they are marked `both_databases`, or with `--postgres all`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgres",
        choices=["marked", "all"],
        default="marked",
        help="Run on PostgreSQL only the tests that exercise its transactions (marked, the default), or all.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run rules that do not depend on the database on SQLite only: tests/store proves the SQL on both."""
    if "store" not in metafunc.fixturenames:
        return
    folder = metafunc.definition.path.relative_to(Path(__file__).parent).parts[0]
    is_on_both = (
        folder not in _SQLITE_ONLY
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
