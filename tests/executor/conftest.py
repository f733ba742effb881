from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.rig import Fifo, Rig, rig_in


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with rig_in(home) as rig:
        yield rig


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Callable[[str], Fifo]]:
    made: list[Fifo] = []

    def make(name: str) -> Fifo:
        made.append(Fifo(tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        each.close()
