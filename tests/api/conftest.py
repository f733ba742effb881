from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.host import Host, hosting


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One for all tests of a module: none of them changes it."""
    with hosting(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path
