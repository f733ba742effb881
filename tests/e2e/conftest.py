from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota import AsyncClient, Client
from rota.client import autostart
from tests.e2e.awaitable_client import AwaitableClient, ClientTest
from tests.e2e.fork_server import ForkedProcess, fork_server
from tests.e2e.rig import TIMEOUT, ChildControl, Rota


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """Fork server of this test worker."""
    with fork_server():
        yield


@pytest.fixture
def make_rota(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., Rota]]:
    """Factory of homes. Every process that they start is killed at the end of the test."""
    is_forked = request.node.get_closest_marker("executable") is None
    if is_forked:  # schedulers that a Python client in this process starts
        forking_subprocess = SimpleNamespace(Popen=ForkedProcess, DEVNULL=subprocess.DEVNULL)
        monkeypatch.setattr(autostart, "subprocess", forking_subprocess)
    homes: list[Rota] = []

    def make(home: Path | None = None, **options: Any) -> Rota:
        cwd = tmp_path / "desk"
        cwd.mkdir(exist_ok=True)
        rota = Rota(home or tmp_path / "home", cwd, **{"is_forked": is_forked, **options})
        homes.append(rota)
        return rota

    yield make
    for rota in homes:
        rota.close()


@pytest.fixture
def rota(make_rota: Callable[..., Rota]) -> Rota:
    """A new home without a scheduler."""
    return make_rota()


@pytest.fixture(scope="session")
def idle_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Home of `read_only_rota`. Shared, because a start takes most of the time of a test of refusals."""
    directory = tmp_path_factory.mktemp("idle")
    rota = Rota(directory / "home", directory, is_forked=True)
    rota.start()
    yield rota.home
    rota.close()


@pytest.fixture
def read_only_rota(idle_home: Path, tmp_path: Path) -> Iterator[Rota]:
    """Scheduler with an empty store, shared by tests of refusals and of reads.

    A test fails if it changes the store or the configuration or ends the scheduler.
    """
    cwd = tmp_path / "desk"
    cwd.mkdir()
    rota = Rota(idle_home, cwd, is_forked=True)
    before = _state_of(rota)
    yield rota
    assert _state_of(rota) == before, "a test that changes the home must use the fixture `rota`"
    rota.assert_no_defects()


def _state_of(rota: Rota) -> tuple[object, ...]:
    """Return the pid, the stored rows, whether a configuration exists, and the id of the next job."""
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        # The scheduler writes to `meta` by itself.
        stored = [line for line in database.iterdump() if not line.startswith('INSERT INTO "meta"')]
    dry_run = rota.api("POST", "/api/jobs/batch?dry_run=1", {"jobs": [{"command": ["true"]}]}).json()
    return rota.scheduler_pid, stored, (rota.home / "rota.toml").exists(), dry_run["jobs"][0]["id"]


@pytest.fixture
def children(tmp_path: Path) -> Iterator[ChildControl]:
    children = ChildControl(tmp_path / "stage")
    yield children
    children.close()


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
def rota_on_each_store(request: pytest.FixtureRequest, make_rota: Callable[..., Rota]) -> Rota:
    """Running scheduler, once on SQLite and once on PostgreSQL."""
    rota = make_rota()
    if request.param == "postgres":
        rota.run("config", "set", "store.url", request.getfixturevalue("postgres_url"))
    rota.start()
    return rota


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def client_type(request: pytest.FixtureRequest) -> type[Client | AsyncClient]:
    """Class of the client. A test runs once with each class."""
    param: type[Client | AsyncClient] = request.param
    return param


@pytest.fixture
def run_with_client(client_type: type[Client | AsyncClient], rota: Rota) -> Callable[[ClientTest], None]:
    """Function that runs the steps of a test with a client of each class."""

    def run(steps: ClientTest) -> None:
        async def run_steps() -> None:
            async with asyncio.timeout(TIMEOUT):
                await steps(AwaitableClient(client_type(home=rota.home)))

        asyncio.run(run_steps())

    return run
