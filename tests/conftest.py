"""Fixtures that more than one folder uses."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Raw, Scheduler, sqlite_raw
from postgres_server import Schema, postgres_schema, postgres_server, postgres_url
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite import checkpoint, database
from rota.store.sqlite.store import SqliteStore
from sample import load_profile

__all__ = ["postgres_schema", "postgres_server", "postgres_url"]

load_profile()

# A shell has what it runs in the background ignore signals, `nohup` too, and so would all that a test starts. What is
# caught instead is as good as ignored here, and is at its default in whoever is started.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test stores need not outlast a crash of the machine, nor have room to grow. Who tests the files
    themselves has a fixture of this name that does nothing; schedulers with a process of their own know of none."""
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")
    monkeypatch.setattr(checkpoint, "_ROOM", 0)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of SQLite as it is when it is new: to copy one takes a tenth of what it takes to migrate one."""
    path = tmp_path_factory.mktemp("migrated") / "rota.db"
    SqliteStore(path).session().close()
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every store there is; what passes on one passes on all."""
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("postgres_url"))
    shutil.copyfile(request.getfixturevalue("migrated"), tmp_path / "rota.db")
    return SqliteStore(tmp_path / "rota.db")


@pytest.fixture
def raw(request: pytest.FixtureRequest, store: Store, tmp_path: Path) -> Raw:
    """SQL on the same database, past the store's verbs."""
    if isinstance(store, PostgresStore):
        schema: Schema = request.getfixturevalue("postgres_schema")
        return schema.raw
    return sqlite_raw(tmp_path / "rota.db")


@pytest.fixture
def make_scheduler(store: Store, tmp_path: Path) -> Iterator[Callable[..., Scheduler]]:
    made: list[Scheduler] = []

    def make(**pools: int) -> Scheduler:
        scheduler = Scheduler(store, tmp_path, {name.replace("__", "/"): size for name, size in pools.items()})
        made.append(scheduler)
        return scheduler

    yield make
    for scheduler in made:
        scheduler.close()


@pytest.fixture
def scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One with the default limits: one job at a time."""
    return make_scheduler()
