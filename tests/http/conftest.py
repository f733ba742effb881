from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.host import LocalServer, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """Server for all tests of a module. None of them changes it."""
    with run_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path
