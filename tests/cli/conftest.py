from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.home import Home
from tests.cli.fake_scheduler import Server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Provide an empty home that ROTA_HOME names."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_HOME", str(root))
    return Home(root)


@pytest.fixture
def server(home: Home) -> Iterator[Server]:
    """Provide a stand-in for the scheduler of the home."""
    stand_in = Server(home)
    yield stand_in
    stand_in.close()
