from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
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
