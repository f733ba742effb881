"""Fixtures that more than one folder uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import Raw, Scheduler, sqlite_raw
from rota.store.port import Store
from rota.store.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every store there is; what passes on one passes on all."""
    assert request.param == "sqlite"
    return SqliteStore(tmp_path / "rota.db")


@pytest.fixture
def raw(store: Store, tmp_path: Path) -> Raw:
    """SQL on the same database, past the store's verbs."""
    assert isinstance(store, SqliteStore)
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
