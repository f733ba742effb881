"""The journal: torn, full, overgrown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.rig import Fifo, Rig, lives, rig_in
from rota.executor.port import Trouble
from rota.executor.supervisor import protocol
from rota.executor.supervisor.history import History
from rota.executor.supervisor.journal import Journal
from rota.executor.supervisor.run import Phase, Run

MakeFifo = Callable[[str], Fifo]


def run_of(number: int) -> Run:
    run = Run(number, directory=f"/jobs/{number}", kill_after=5.0, deadline=12.5, idle_timeout=None)
    run.boot = "this-boot"
    return run


def life_of(number: int) -> list[bytes]:
    run = run_of(number)
    run.pid, run.start_time = 100 + number, 7
    run.ended_by, run.kill_at = "stop", 99.0
    end = protocol.line(type="exited", run=number, at=1.0, code=0, signal=None, tail="é\n", watched=True)
    return [run.starting(), run.started(), run.ending(), end, protocol.line(type="acknowledged", run=number)]


LINES = [protocol.line(type="generation", generation=4), *life_of(1), *life_of(2)[:4], *life_of(3)[:2]]
WHOLE = b"".join(LINES)


def replayed(data: bytes) -> History:
    history = History()
    history.replay(data)
    return history


def test_replay() -> None:
    history = replayed(WHOLE)
    assert history.generation == 4
    assert sorted(history.runs) == [2, 3]
    two, three = history.runs[2], history.runs[3]
    assert (two.phase, two.end, two.is_written) == (Phase.ENDED, LINES[9], True)
    assert (three.pid, three.start_time, three.deadline, three.directory, three.boot) == (
        103,
        7,
        12.5,
        "/jobs/3",
        "this-boot",
    )
    assert (three.phase, three.end, three.inherited) == (Phase.STARTING, None, True)


def test_torn_at_every_byte(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A predecessor was killed inside a write: what was whole counts, and the next line is whole again."""
    path = tmp_path / "journal"
    for cut in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:cut])
        journal = Journal(str(path))
        data = journal.read()
        assert data == WHOLE[: WHOLE.rfind(b"\n", 0, cut) + 1]
        assert replayed(data).runs.keys() == replayed(b"".join(LINES[: data.count(b"\n")])).runs.keys()
        assert journal.record(LINES[0])
        assert path.read_bytes() == data + LINES[0]
        os.close(journal._fd)
    assert "not understood" not in capfd.readouterr().err


@given(st.binary(max_size=200))
def test_any_bytes_can_be_replayed(junk: bytes) -> None:
    history = replayed(LINES[0] + junk + b"\n" + LINES[9 - 3])
    assert history.generation >= 4


def test_records_of_a_run_make_the_same_run() -> None:
    run = replayed(b"".join(life_of(5)[:4])).runs[5]
    assert run.records() == life_of(5)[:4]
    assert replayed(b"".join(run.records())).runs[5].records() == run.records()


def test_rewrite_replaces_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), limit=100)
    while not journal.is_overgrown:
        assert journal.record(LINES[0])
    journal.rewrite(LINES[:2])
    assert path.read_bytes() == LINES[0] + LINES[1]
    assert journal.record(LINES[2])
    assert path.read_bytes() == b"".join(LINES[:3])
    assert path.stat().st_mode & 0o777 == 0o600
    assert not journal.is_overgrown, "what cannot be made shorter is not rewritten at every line"


def test_rewrite_without_room_keeps_the_old_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), limit=10)
    journal.record(LINES[0])
    (tmp_path / "journal.new").mkdir()
    journal.rewrite([])
    assert path.read_bytes() == LINES[0]
    assert not journal.is_overgrown
    assert "cannot rewrite" in capfd.readouterr().err


def test_past_its_limit_it_is_rewritten(home: Path) -> None:
    garbage = b"".join(life_of(1)) * 3000
    live = b"".join(life_of(2)[:4]).replace(b"this-boot", b"an-older-boot")
    (home / protocol.JOURNAL).write_bytes(protocol.line(type="generation", generation=1) + garbage + live)
    assert (home / protocol.JOURNAL).stat().st_size > 1 << 20
    with rig_in(home) as rig:
        rig.shell(5, "exit 1")
        rig.exited(5)
        assert rig.exited(2).code == 0
        assert (home / protocol.JOURNAL).stat().st_size < 5000
        rig.kill_supervisor()
        assert rig.exited(2).code == 0
        assert rig.exited(5).code == 1


def test_a_start_that_cannot_be_written_is_refused(rig: Rig, full: Callable[[bool], None]) -> None:
    full(True)
    rig.start(1, ["true"])
    assert "journal cannot be written" in rig.failed(1)
    full(False)
    rig.acknowledge(1)
    rig.start(2, ["true"])
    assert rig.exited(2).code == 0
    data = (rig.home / protocol.JOURNAL).read_bytes()
    assert all(line.startswith(b"{") and line.endswith(b"}") for line in data.splitlines())


def test_an_end_that_cannot_be_written_is_told_once_it_can(
    rig: Rig, full: Callable[[bool], None], fifo: MakeFifo
) -> None:
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}; exit 8")
    rig.start(2, ["sleep", "1000"])
    rig.started(1)
    alive = rig.started(2).pid
    full(True)
    gate.release()
    said = rig.barrier()
    while not _complained(rig):
        said += rig.barrier()
    assert [m for m in said if getattr(m, "run", 0) == 1] == []
    trouble = rig.wait_for(Trouble).trouble
    assert trouble is not None
    assert trouble.startswith("the supervisor's journal cannot be written")
    assert trouble.endswith("; ended, and not told until it can: run-1")
    rig.reconnect()
    assert rig.wait_for(Trouble).trouble == trouble, "who comes later is told too"
    full(False)
    assert rig.wait_for(Trouble).trouble is None
    assert rig.exited(1).code == 8
    assert lives(alive)
    rig.kill_supervisor()
    assert rig.exited(1).code == 8


def _complained(rig: Rig) -> bool:
    return "trying again" in (rig.home / protocol.LOG).read_text()
