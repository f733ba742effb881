from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.either import Either, Tour
from e2e.rig import PATIENCE, Rota, Stage
from rota import AsyncClient, Client


@pytest.fixture
def make_rota(tmp_path: Path) -> Iterator[Callable[..., Rota]]:
    """Homes of any shape; whatever they start is gone afterwards."""
    made: list[Rota] = []

    def make(home: Path | None = None, **options: Any) -> Rota:
        cwd = tmp_path / "desk"
        cwd.mkdir(exist_ok=True)
        rota = Rota(home or tmp_path / "home", cwd, **options)
        made.append(rota)
        return rota

    yield make
    for rota in made:
        rota.close()


@pytest.fixture
def rota(make_rota: Callable[..., Rota]) -> Rota:
    """A fresh home without a scheduler."""
    return make_rota()


@pytest.fixture(scope="session")
def idle_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The one behind `untouched`: a start is most of what a refusal costs."""
    place = tmp_path_factory.mktemp("idle")
    rota = Rota(place / "home", place)
    rota.start()
    yield rota.home
    rota.close()


@pytest.fixture
def untouched(idle_home: Path, tmp_path: Path) -> Iterator[Rota]:
    """A scheduler in whose store there is nothing, shared by tests of what is refused or only looked at. Who leaves
    anything there, changes what is configured or ends the scheduler fails."""
    cwd = tmp_path / "desk"
    cwd.mkdir()
    rota = Rota(idle_home, cwd)
    before = _kept(rota)
    yield rota
    assert _kept(rota) == before, "who leaves something behind needs a home of his own"
    rota.assert_no_defects()


def _kept(rota: Rota) -> tuple[object, ...]:
    """Who runs, what is stored and configured, and which number the next job would have."""
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        stored = [line for line in database.iterdump() if not line.startswith('INSERT INTO "meta"')]  # written unasked
    rehearsed = rota.api("POST", "/api/jobs/batch?dry_run=1", {"jobs": [{"command": ["true"]}]}).json()
    return rota.scheduler, stored, (rota.home / "rota.toml").exists(), rehearsed["jobs"][0]["id"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "stage")
    yield stage
    stage.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    path = tmp_path / "repository"
    path.mkdir()
    for words in (
        ["init", "-q", "-b", "main"],
        ["config", "user.name", "Tester"],
        ["config", "user.email", "tester@example.org"],
        ["commit", "-q", "--allow-empty", "-m", "begin"],
    ):
        subprocess.run(["git", *words], cwd=path, check=True)
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def keeper(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Rota:
    """A scheduler on each of the databases."""
    rota = make_rota()
    if request.param == "postgres":
        rota.ask("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    return rota


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> type[Client | AsyncClient]:
    found: type[Client | AsyncClient] = request.param
    return found


@pytest.fixture
def tour(kind: type[Client | AsyncClient], rota: Rota) -> Callable[[Tour], None]:
    """Runs a test that is written once with a client of each kind."""

    def take(steps: Tour) -> None:
        async def all_of_it() -> None:
            async with asyncio.timeout(PATIENCE):
                await steps(Either(kind(home=rota.home)))

        asyncio.run(all_of_it())

    return take
