from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.supervisor import protocol
from tests.supervisor.rig import Fifo, Rig, open_rig


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def rig(home: Path) -> Iterator[Rig]:
    with open_rig(home) as rig:
        yield rig


@pytest.fixture
def make_fifo(tmp_path: Path) -> Iterator[Callable[[str], Fifo]]:
    created: list[Fifo] = []

    def make(name: str) -> Fifo:
        created.append(Fifo(tmp_path / name))
        return created[-1]

    yield make
    for item in created:
        item.close()


@pytest.fixture
def fill_disk(rig: Rig) -> Iterator[Callable[[bool], None]]:
    """Return a function that makes the disk look full to the supervisor: its files cannot grow."""
    pid = rig.executor.supervisor_pid
    default = resource.prlimit(pid, resource.RLIMIT_FSIZE)

    def set_full(is_full: bool) -> None:
        size = (rig.home / protocol.JOURNAL).stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, default[1]) if is_full else default)

    yield set_full
    with contextlib.suppress(ProcessLookupError):
        set_full(False)
