from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import AsyncClient, Client
from rota.home import Home
from tests.client.sdk.keep_alive_server import KeepAliveServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KeepAliveServer]:
    """Fake scheduler on the socket of a new home."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    running = KeepAliveServer(Home(root))
    yield running
    running.close()


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def client_type(request: pytest.FixtureRequest) -> type[Client | AsyncClient]:
    """Class of the client. A test runs once with each class."""
    param: type[Client | AsyncClient] = request.param
    return param
