from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import AsyncClient, Client
from rota.home import Home
from sdk.lasting import Lasting


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Lasting]:
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    running = Lasting(Home(root))
    yield running
    running.close()


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> type[Client | AsyncClient]:
    found: type[Client | AsyncClient] = request.param
    return found
