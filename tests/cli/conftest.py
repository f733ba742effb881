from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stand_in import Server
from rota.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of its own, named by the environment, as a shell would."""
    root = tmp_path / "home"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("ROTA_HOME", str(root))
    return Home(root)


@pytest.fixture
def server(home: Home) -> Iterator[Server]:
    running = Server(home)
    yield running
    running.close()
