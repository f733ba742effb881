from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.rig import Fifo, Rig, rig_in
from rota.executor.supervisor import protocol


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


@pytest.fixture
def full(rig: Rig) -> Iterator[Callable[[bool], None]]:
    """Makes the disk look full to the supervisor: no file of its may grow."""
    pid = rig.executor.supervisor_pid
    usual = resource.prlimit(pid, resource.RLIMIT_FSIZE)

    def make(is_full: bool) -> None:
        size = (rig.home / protocol.JOURNAL).stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, usual[1]) if is_full else usual)

    yield make
    with contextlib.suppress(ProcessLookupError):
        make(False)
