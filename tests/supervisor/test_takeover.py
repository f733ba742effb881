"""After the loss of a supervisor: live runs are watched, lost ones are reported, and other processes are untouched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.executor.port import ConnectionLoss, ExitReport, RunInventory
from rota.supervisor import process, protocol
from rota.supervisor.run import SupervisedRun
from rota.supervisor.spawn import RunStep
from tests.supervisor.rig import Fifo, Rig, ends_within, is_alive, open_rig

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def start_process() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts processes in their own sessions, not started by the supervisor under test."""
    created: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **variables: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], **variables}
        created.append(subprocess.Popen(argv or ("sleep", "1000"), start_new_session=True, env=env))
        return created[-1]

    yield start
    for item in created:
        item.kill()
        item.wait()


def read_start_time(pid: int) -> int:
    status = process.read_process(pid)
    assert status is not None
    return status.start_time


def write_journal(home: Path, *runs: SupervisedRun) -> None:
    (home / protocol.JOURNAL).write_bytes(b"".join(line for run in runs for line in run.journal_lines()))


def make_recorded_run(number: int, home: Path, pid: int | None, start_time: int | None) -> SupervisedRun:
    directory = home / "jobs" / f"job-{number}"
    directory.mkdir(parents=True)
    (directory / "stderr.log").write_text("last words\n")
    run = SupervisedRun(number, directory=str(directory), kill_after=0.5, deadline=None, idle_timeout=None)
    run.boot = process.boot_id()
    run.pid, run.start_time = pid, start_time
    return run


def replace_supervisor(rig: Rig) -> RunInventory:
    rig.kill_supervisor()
    rig.wait_for(ConnectionLoss)
    inventory = rig.wait_for(RunInventory)
    rig.upload_environment()
    return inventory


def test_live_child_is_watched_until_it_ends(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"echo oops >&2; read x < {gate.path}; exit 7")
    pid = rig.wait_for_start(1).pid
    inventory = replace_supervisor(rig)
    assert [(report.run, report.pid) for report in inventory.runs] == [(1, pid)]
    assert is_alive(pid)
    rig.sync()
    assert not [m for m in rig.received if isinstance(m, ExitReport)]
    gate.release()
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.ended_by, end.is_observed, end.tail) == (None, None, None, True, "oops\n")


def test_leftovers_of_an_inherited_run_are_ended(rig: Rig, make_fifo: MakeFifo) -> None:
    gate, channel = make_fifo("gate"), make_fifo("channel")
    rig.start_shell(
        1, f"setsid sh -c 'echo $$ > {channel.path}; exec sleep 1000' & sleep 1000 & read x < {gate.path}; exit 7"
    )
    leftover = channel.read_number()
    replace_supervisor(rig)
    assert is_alive(leftover)
    gate.release()
    assert rig.wait_for_exit(1).code is None
    assert not is_alive(leftover)


def test_unobserved_exit_has_no_status(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}; exit 7")
    pid = rig.wait_for_start(1).pid
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    replace_supervisor(rig)
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.is_observed) == (None, None, False)


def test_leftovers_of_an_unobserved_exit_are_ended(rig: Rig, make_fifo: MakeFifo) -> None:
    gate, channel = make_fifo("gate"), make_fifo("channel")
    rig.start_shell(1, f"setsid sh -c 'echo $$ > {channel.path}; exec sleep 1000' & read x < {gate.path}")
    pid, leftover = rig.wait_for_start(1).pid, channel.read_number()
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    replace_supervisor(rig)
    assert rig.wait_for_exit(1).is_observed is False
    assert not is_alive(leftover)


def test_successor_completes_the_clearing_of_a_tree(rig: Rig, make_fifo: MakeFifo) -> None:
    """The exit was recorded while the tree was not clear: the successor ends it before the report."""
    gate, channel = make_fifo("gate"), make_fifo("channel")
    script = f"setsid sh -c 'trap \"\" TERM; echo $$ > {channel.path}; exec sleep 1000' & read x < {gate.path}; exit 3"
    rig.start_shell(1, script, kill_after=1.0)
    pid, leftover = rig.wait_for_start(1).pid, channel.read_number()
    gate.release()
    assert ends_within(pid)
    while b'"exited"' not in (rig.home / protocol.JOURNAL).read_bytes():
        rig.sync()
    rig.kill_supervisor()
    end = rig.wait_for_exit(1)
    assert end.code == 3
    assert not is_alive(leftover)


def test_inherited_run_can_be_stopped(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, f"setsid sh -c 'echo $$ > {channel.path}; exec sleep 1000' & wait")
    pids = [rig.wait_for_start(1).pid, channel.read_number()]
    replace_supervisor(rig)
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.ended_by, end.is_observed) == (None, None, "stop", True)
    assert not any(is_alive(pid) for pid in pids)


def test_inherited_run_that_ignores_term_is_killed(rig: Rig, make_fifo: MakeFifo) -> None:
    ready = make_fifo("ready")
    rig.start_shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1; done", kill_after=0.3)
    ready.read_line()
    rig.wait_for_start(1)
    replace_supervisor(rig)
    rig.stop(1)
    assert rig.wait_for_exit(1).ended_by == "stop"


def test_timeouts_survive_the_supervisor(rig: Rig) -> None:
    before = time.monotonic()
    rig.start(1, ["sleep", "1000"], timeout=1.5)
    rig.start(2, ["sleep", "1000"], idle_timeout=1.0)
    rig.wait_for_start(1)
    rig.wait_for_start(2)
    replace_supervisor(rig)
    assert rig.wait_for_exit(1).ended_by == "timeout"
    assert 1.5 <= time.monotonic() - before < 10
    assert rig.wait_for_exit(2).ended_by == "idle_timeout"


def test_stop_in_progress_survives_the_supervisor(rig: Rig, make_fifo: MakeFifo) -> None:
    ready = make_fifo("ready")
    rig.start_shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1; done", kill_after=2.0)
    ready.read_line()
    rig.wait_for_start(1)
    rig.stop(1)
    rig.sync()
    replace_supervisor(rig)
    assert rig.wait_for_exit(1).ended_by == "stop"


def test_inherited_run_is_not_started_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.wait_for_start(1)
    replace_supervisor(rig)
    rig.start(1, ["sleep", "1000"])
    rig.sync()
    assert "already known" in caplog.text


def test_run_without_a_recorded_pid_is_found_by_its_tag(
    home: Path, start_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process_ = start_process(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    other_run = start_process(ROTA_RUN="run-11", ROTA_HOME=str(home.resolve()))
    other_home = start_process(ROTA_RUN="run-1", ROTA_HOME="/elsewhere")
    write_journal(home, make_recorded_run(1, home, None, None))
    with open_rig(home) as rig:
        assert [(report.run, report.pid) for report in rig.inventory.runs] == [(1, process_.pid)]
        rig.stop(1)
        assert rig.wait_for_exit(1).ended_by == "stop"
    assert process_.wait() == -signal.SIGTERM
    assert other_run.poll() is None
    assert other_home.poll() is None


def test_command_after_skip_if_is_found_by_its_tag(
    home: Path, start_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The journal has the pid of the previous step; the pid of the command was not recorded."""
    run = make_recorded_run(1, home, 4242, 17)
    run.step = RunStep.CHECK
    lines = [*run.journal_lines()]
    run.step = RunStep.MAIN
    process_ = start_process(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    (home / protocol.JOURNAL).write_bytes(b"".join((*lines, run.step_line())))
    with open_rig(home) as rig:
        assert [(report.run, report.pid) for report in rig.inventory.runs] == [(1, process_.pid)]
        rig.sync()
        assert process_.poll() is None
        process_.terminate()
        process_.wait()
        end = rig.wait_for_exit(1)
        assert (end.code, end.is_observed) == (None, True)


def test_run_without_a_process_is_reported_as_lost(home: Path) -> None:
    write_journal(home, make_recorded_run(1, home, None, None))
    with open_rig(home) as rig:
        end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.is_observed, end.tail) == (None, None, False, "last words\n")


def test_reused_pid_is_never_signaled(home: Path, start_process: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Same number, other start time: a session leader too, so that session and group match."""
    foreign = start_process()
    write_journal(home, make_recorded_run(1, home, foreign.pid, read_start_time(foreign.pid) - 1))
    with open_rig(home) as rig:
        assert [(report.run, report.pid) for report in rig.inventory.runs] == [(1, None)]
        rig.stop(1)
        end = rig.wait_for_exit(1)
        assert (end.code, end.ended_by, end.is_observed) == (None, None, False)
        assert foreign.poll() is None


def test_reused_session_without_its_leader_is_not_matched(
    home: Path, make_fifo: MakeFifo, start_process: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The number was reused for a session of which only a member is left."""
    channel = make_fifo("channel")
    leader = start_process("sh", "-c", f"sh -c 'echo $$ > {channel.path}; exec sleep 1000' & exit 0")
    member = channel.read_number()
    leader.wait()
    try:
        write_journal(home, make_recorded_run(1, home, leader.pid, 1))
        with open_rig(home) as rig:
            assert rig.wait_for_exit(1).is_observed is False
            assert is_alive(member)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def test_nothing_is_adopted_after_a_reboot(home: Path, start_process: Callable[..., subprocess.Popen[bytes]]) -> None:
    foreign = start_process(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    run = make_recorded_run(1, home, foreign.pid, read_start_time(foreign.pid))
    run.boot = "another-boot"
    only_starting = make_recorded_run(2, home, None, None)
    only_starting.boot = "another-boot"
    write_journal(home, run, only_starting)
    with open_rig(home) as rig:
        assert [report.pid for report in rig.inventory.runs] == [None, None]
        assert rig.wait_for_exit(1).is_observed is False
        assert rig.wait_for_exit(2).is_observed is False
        assert foreign.poll() is None


def test_run_survives_repeated_supervisor_kills(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}")
    pid = rig.wait_for_start(1).pid
    for _ in range(4):
        inventory = replace_supervisor(rig)
        assert [(report.run, report.pid) for report in inventory.runs] == [(1, pid)]
    gate.release()
    assert rig.wait_for_exit(1).is_observed is True


@pytest.mark.parametrize("delay_lines", range(0, 12, 2))
def test_kill_during_many_starts_neither_loses_nor_repeats_runs(rig: Rig, delay_lines: int) -> None:
    """At any moment of the kill, every run is accounted for and none ran twice."""
    count = 40
    marks = rig.home / "marks"
    marks.mkdir()
    rig.send(*(rig.make_order(n, ["sh", "-c", f"echo $$ >> {marks}/{n}"]) for n in range(1, count + 1)))
    for _ in range(delay_lines):
        rig.wait_for_message(lambda _message: True, "a message")
    rig.kill_supervisor()
    rig.wait_for(ConnectionLoss)
    inventory = rig.wait_for(RunInventory)
    known = {report.run for report in inventory.runs}
    for run in known:
        rig.wait_for_exit(run)
    for n in range(1, count + 1):
        path = marks / str(n)
        if path.exists():
            assert n in known
            assert len(path.read_text().splitlines()) == 1
