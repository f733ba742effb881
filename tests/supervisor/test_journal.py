"""Journal: truncated, on a full disk, and past its size limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.executor.port import ExecutorFailure
from rota.supervisor import protocol
from rota.supervisor.journal import Journal, JournalReplay
from rota.supervisor.run import RunPhase, SupervisedRun
from tests.supervisor.rig import Fifo, Rig, is_alive, open_rig

MakeFifo = Callable[[str], Fifo]


def make_run(number: int) -> SupervisedRun:
    run = SupervisedRun(number, directory=f"/jobs/{number}", kill_after=5.0, deadline=12.5, idle_timeout=None)
    run.boot = "this-boot"
    return run


def make_run_lines(number: int) -> list[bytes]:
    run = make_run(number)
    run.pid, run.start_time = 100 + number, 7
    run.ended_by, run.kill_at = "stop", 99.0
    end = protocol.encode_message(type="exited", run=number, at=1.0, code=0, signal=None, tail="é\n", is_observed=True)
    return [
        run.starting_line(),
        run.started_line(),
        run.ending_line(),
        end,
        protocol.encode_message(type="acknowledged", run=number),
    ]


LINES = [
    protocol.encode_message(type="generation", generation=4),
    *make_run_lines(1),
    *make_run_lines(2)[:4],
    *make_run_lines(3)[:2],
]
WHOLE = b"".join(LINES)


def replay(data: bytes) -> JournalReplay:
    journal = JournalReplay()
    journal.replay(data)
    return journal


def test_replay_restores_unacknowledged_runs() -> None:
    history = replay(WHOLE)
    assert history.generation == 4
    assert sorted(history.runs) == [2, 3]
    two, three = history.runs[2], history.runs[3]
    assert (two.phase, two.end_line, two.is_end_recorded) == (RunPhase.ENDED, LINES[9], True)
    assert (three.pid, three.start_time, three.deadline, three.directory, three.boot) == (
        103,
        7,
        12.5,
        "/jobs/3",
        "this-boot",
    )
    # Replay never sets RUNNING: the successor checks the process first.
    assert (three.phase, three.end_line, three.is_inherited) == (RunPhase.STARTING, None, True)


def test_journal_truncated_at_every_byte_is_usable(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A predecessor was killed inside a write: complete lines count, and the next line is complete again."""
    path = tmp_path / "journal"
    for cut in range(len(WHOLE) + 1):
        path.write_bytes(WHOLE[:cut])
        journal = Journal(str(path))
        data = journal.read()
        assert data == WHOLE[: WHOLE.rfind(b"\n", 0, cut) + 1]
        assert replay(data).runs.keys() == replay(b"".join(LINES[: data.count(b"\n")])).runs.keys()
        assert journal.record(LINES[0])
        assert path.read_bytes() == data + LINES[0]
        os.close(journal._fd)
    assert "invalid journal line" not in capfd.readouterr().err


@given(st.binary(max_size=200))
def test_any_bytes_can_be_replayed(garbage: bytes) -> None:
    history = replay(LINES[0] + garbage + b"\n" + LINES[6])  # run 2: starting
    assert history.generation >= 4


def test_journal_lines_of_a_run_restore_it() -> None:
    run = replay(b"".join(make_run_lines(5)[:4])).runs[5]
    assert run.journal_lines() == make_run_lines(5)[:4]
    assert replay(b"".join(run.journal_lines())).runs[5].journal_lines() == run.journal_lines()


def test_rewrite_replaces_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), limit=100)
    while not journal.needs_rewrite:
        assert journal.record(LINES[0])
    journal.rewrite(LINES[:2])
    assert path.read_bytes() == LINES[0] + LINES[1]
    assert journal.record(LINES[2])
    assert path.read_bytes() == b"".join(LINES[:3])
    assert path.stat().st_mode & 0o777 == 0o600
    assert not journal.needs_rewrite, "a journal that cannot shrink is not rewritten at every line"


def test_failed_rewrite_keeps_the_old_journal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "journal"
    journal = Journal(str(path), limit=10)
    journal.record(LINES[0])
    (tmp_path / "journal.new").mkdir()
    journal.rewrite([])
    assert path.read_bytes() == LINES[0]
    assert not journal.needs_rewrite
    assert "cannot rewrite" in capfd.readouterr().err


def test_journal_past_its_limit_is_rewritten(home: Path) -> None:
    garbage = b"".join(make_run_lines(1)) * 3000
    live = b"".join(make_run_lines(2)[:4]).replace(b"this-boot", b"an-older-boot")
    (home / protocol.JOURNAL).write_bytes(protocol.encode_message(type="generation", generation=1) + garbage + live)
    assert (home / protocol.JOURNAL).stat().st_size > 1 << 20
    with open_rig(home) as rig:
        rig.start_shell(5, "exit 1")
        rig.wait_for_exit(5)
        assert rig.wait_for_exit(2).code == 0
        assert (home / protocol.JOURNAL).stat().st_size < 5000
        rig.kill_supervisor()
        assert rig.wait_for_exit(2).code == 0
        assert rig.wait_for_exit(5).code == 1


def test_start_is_refused_if_it_cannot_be_recorded(rig: Rig, fill_disk: Callable[[bool], None]) -> None:
    fill_disk(True)
    rig.start(1, ["true"])
    assert "journal cannot be written" in rig.wait_for_failure(1)
    fill_disk(False)
    rig.acknowledge(1)
    rig.start(2, ["true"])
    assert rig.wait_for_exit(2).code == 0
    data = (rig.home / protocol.JOURNAL).read_bytes()
    assert all(line.startswith(b"{") and line.endswith(b"}") for line in data.splitlines())


def test_exit_is_reported_once_it_can_be_recorded(
    rig: Rig, fill_disk: Callable[[bool], None], make_fifo: MakeFifo
) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}; exit 8")
    rig.start(2, ["sleep", "1000"])
    rig.wait_for_start(1)
    alive = rig.wait_for_start(2).pid
    fill_disk(True)
    gate.release()
    messages = rig.sync()
    while not _has_logged_retry(rig):
        messages += rig.sync()
    assert [m for m in messages if getattr(m, "run", 0) == 1] == []
    failure = rig.wait_for(ExecutorFailure).error
    assert failure is not None
    assert failure.startswith("the supervisor's journal cannot be written")
    assert failure.endswith("; exits not reported until then: run-1")
    rig.reconnect()
    assert rig.wait_for(ExecutorFailure).error == failure, "a new connection gets it too"
    fill_disk(False)
    assert rig.wait_for(ExecutorFailure).error is None
    assert rig.wait_for_exit(1).code == 8
    assert is_alive(alive)
    rig.kill_supervisor()
    assert rig.wait_for_exit(1).code == 8


def _has_logged_retry(rig: Rig) -> bool:
    return "retrying every second" in (rig.home / protocol.LOG).read_text()
