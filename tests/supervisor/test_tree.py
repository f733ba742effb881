"""Termination of process trees: stops, processes that a run leaves behind, and processes that must not be touched."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.executor.port import ExitReport, StopOrder
from rota.ids import RunId
from rota.supervisor import process
from tests.supervisor.rig import Fifo, Rig, ends_within, is_alive, open_rig

MakeFifo = Callable[[str], Fifo]

DAEMON = "setsid sh -c '{before} echo $$ > {channel}; exec sleep 1000' &"
"""Grandchild in its own session that sends its pid."""

IGNORE_TERM = 'trap "" TERM;'
"""An ignored signal stays ignored across exec."""


def start_daemon(channel: Fifo, before: str = "") -> str:
    return DAEMON.format(before=before, channel=channel.path)


@pytest.fixture
def unrelated_pid() -> Iterator[int]:
    """Process that belongs to no run and must survive."""
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield child.pid
    child.kill()
    child.wait()


def test_process_outside_the_session_is_ended_after_the_exit(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, other, gate = make_fifo("channel"), make_fifo("other"), make_fifo("gate")
    rig.start_shell(2, start_daemon(other) + " exec sleep 1000")
    others = [rig.wait_for_start(2).pid, other.read_number()]
    rig.start_shell(1, start_daemon(channel) + f" read x < {gate.path}; exit 3")
    leftover = channel.read_number()
    gate.release()
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (3, None)
    assert not is_alive(leftover)
    assert all(is_alive(pid) for pid in others)


def test_process_in_the_session_is_ended_after_the_exit(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, f"sleep 1000 & echo $! > {channel.path}")
    leftover = channel.read_number()
    assert rig.wait_for_exit(1).code == 0
    assert not is_alive(leftover)


def test_process_in_another_group_of_the_session_is_ended(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, f"set -m; sleep 1000 & echo $! > {channel.path}")
    leftover = channel.read_number()
    assert rig.wait_for_exit(1).code == 0
    assert not is_alive(leftover)


def test_child_of_a_stray_without_environment_is_ended(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    inner = f"echo $$ > {channel.path}; exec sleep 1000"
    rig.start_shell(1, f"setsid sh -c \"setsid env -i sh -c '{inner}' & exec sleep 1000\" & read x < {gate.path}")
    leftover = channel.read_number()
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    assert not is_alive(leftover)


def test_strays_in_exec_are_not_missed(rig: Rig) -> None:
    """A process in the middle of an exec shows no environment: it is scanned again."""
    count = 150
    rig.send(*(rig.make_order(n, ["sh", "-c", "setsid sleep 1000 & exit 0"]) for n in range(1, count + 1)))
    for n in range(1, count + 1):
        rig.wait_for_exit(n)
    tag = os.fsencode(f"ROTA_HOME={rig.home.resolve()}")
    processes = process.read_all_processes()
    remaining = [
        pid for pid, status in processes.items() if not status.is_gone and tag in process.read_environment(pid)
    ]
    remaining.remove(rig.executor.supervisor_pid)
    for pid in remaining:
        os.kill(pid, signal.SIGKILL)
    assert remaining == []


def test_stray_that_ignores_term_is_killed(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    rig.start_shell(1, start_daemon(channel, IGNORE_TERM) + f" read x < {gate.path}", kill_after=0.2)
    leftover = channel.read_number()
    gate.release()
    assert rig.wait_for_exit(1).code == 0
    assert not is_alive(leftover)


def test_many_strays_are_ended(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, gate = make_fifo("channel"), make_fifo("gate")
    script = f"for i in 1 2 3 4 5 6 7 8 9 10; do {start_daemon(channel)} done; read x < {gate.path}"
    rig.start_shell(1, script)
    leftovers = [channel.read_number() for _ in range(10)]
    gate.release()
    rig.wait_for_exit(1)
    assert not any(is_alive(pid) for pid in leftovers)


def test_stop_ends_the_whole_tree(rig: Rig, make_fifo: MakeFifo, unrelated_pid: int) -> None:
    channel, other = make_fifo("channel"), make_fifo("other")
    rig.start_shell(2, start_daemon(other) + " exec sleep 1000")
    others = [rig.wait_for_start(2).pid, other.read_number(), unrelated_pid]
    rig.start_shell(1, start_daemon(channel) + " sleep 1000 & wait")
    pids = [rig.wait_for_start(1).pid, channel.read_number()]
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.code, end.signal, end.ended_by) == (None, signal.SIGTERM, "stop")
    assert not any(is_alive(pid) for pid in pids)
    assert all(is_alive(pid) for pid in others)


def test_stop_kills_a_tree_that_ignores_term(rig: Rig, make_fifo: MakeFifo) -> None:
    channel, ready = make_fifo("channel"), make_fifo("ready")
    rig.start_shell(
        1, f"{IGNORE_TERM} {start_daemon(channel)} echo > {ready.path}; while :; do sleep 1; done", kill_after=0.3
    )
    leftover = channel.read_number()
    ready.read_line()
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by) == (signal.SIGKILL, "stop")
    assert not is_alive(leftover)


def test_stop_lets_the_main_process_clean_up(rig: Rig, make_fifo: MakeFifo) -> None:
    """Helpers it starts after TERM are not signaled, and its own exit code counts."""
    ready = make_fifo("ready")
    script = f"trap 'sh -c \"sleep 0.2; echo cleaned\"; exit 5' TERM; echo > {ready.path}; while :; do sleep 0.01; done"
    rig.start_shell(1, script)
    ready.read_line()
    rig.stop(1)
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (5, "stop")
    assert rig.read_stdout(1) == "cleaned\n"


def test_stop_ends_a_suspended_tree(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"], kill_after=60)
    pid = rig.wait_for_start(1).pid
    os.kill(pid, signal.SIGSTOP)
    rig.stop(1)
    assert rig.wait_for_exit(1).signal == signal.SIGTERM


def test_repeated_stop_is_accepted(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.wait_for_start(1)
    rig.stop(1)
    rig.stop(1)
    assert rig.wait_for_exit(1).ended_by == "stop"


def test_stop_right_after_the_start_is_executed(rig: Rig) -> None:
    """The process may not exist yet when the stop is read."""
    rig.executor.send([rig.make_order(1, ["sleep", "1000"])])
    rig.stop(1)
    assert rig.wait_for_exit(1).ended_by == "stop"


def test_stop_after_the_exit_changes_nothing(rig: Rig) -> None:
    rig.start_shell(1, "exit 4")
    assert rig.wait_for_exit(1).code == 4
    rig.stop(1)
    assert [m for m in rig.sync() if isinstance(m, ExitReport) and m.run == 1] == []
    rig.reconnect()
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (4, None)


def test_exit_before_a_stop_keeps_its_result(rig: Rig, make_fifo: MakeFifo) -> None:
    """A child that ended before the supervisor read the stop keeps its result, whichever arrived first."""
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}; exit 4")
    started = rig.wait_for_start(1)
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(started.pid)
    rig.stop(1)
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    end = rig.wait_for_exit(1)
    assert (end.code, end.ended_by) == (4, None)


def test_same_run_of_another_home_is_untouched(rig: Rig, tmp_path: Path, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    with open_rig(tmp_path / "second") as second:
        second.start_shell(1, start_daemon(channel) + " exec sleep 1000")
        others = [second.wait_for_start(1).pid, channel.read_number()]
        rig.start_shell(1, "sleep 1000 & exit 0")
        rig.wait_for_exit(1)
        rig.start(2, ["sleep", "1000"])
        rig.wait_for_start(2)
        rig.stop(2)
        rig.wait_for_exit(2)
        assert all(is_alive(pid) for pid in others)


def test_unidentified_stray_ends_with_its_only_candidate(rig: Rig, make_fifo: MakeFifo) -> None:
    """It left its session, parents and environment behind, and it ignores TERM."""
    channel, gate, go = make_fifo("channel"), make_fifo("gate"), make_fifo("go")
    script = rig.home / "stray"
    script.write_text(f"trap : TERM; echo $$ > {channel.path}; while :; do read x < {gate.path}; done")
    rig.start_shell(1, f"setsid env -i sh -c '(sh {script} &)'; read x < {go.path}; exit 3", kill_after=0.1)
    stray = channel.read_number()
    go.release()
    assert rig.wait_for_exit(1).code == 3
    assert not is_alive(stray)


@pytest.fixture
def rig_without_cgroups(home: Path) -> Iterator[Rig]:
    """Rig without cgroups, which would identify every process."""
    with open_rig(home, are_cgroups_enabled=False) as rig:
        yield rig


def test_ambiguous_stray_ends_with_its_last_candidate(rig_without_cgroups: Rig, make_fifo: MakeFifo) -> None:
    rig = rig_without_cgroups
    channel, gate = make_fifo("channel"), make_fifo("gate")
    script = rig.home / "stray"
    script.write_text(f"echo $$ > {channel.path}; read x < {gate.path}")
    rig.start(1, ["sleep", "1000"])
    rig.wait_for_start(1)
    rig.start_shell(2, f"setsid env -i sh -c '(sh {script} &)'; exit 0")
    stray = channel.read_number()
    assert rig.wait_for_exit(2).code == 0
    assert is_alive(stray)
    assert "it ends with the last of them" in (rig.home / "supervisor.log").read_text()
    rig.start_shell(3, "exit 0")  # started after the stray: it cannot have left it
    assert rig.wait_for_exit(3).code == 0
    assert is_alive(stray)
    rig.stop(1)
    rig.wait_for_exit(1)
    assert not is_alive(stray)


def test_zombies_of_strays_are_reaped(rig: Rig, make_fifo: MakeFifo) -> None:
    channel = make_fifo("channel")
    rig.start_shell(1, f"(sh -c 'echo $$ > {channel.path}' &); (sh -c 'exit 0' &); exec sleep 1000")
    stray = channel.read_number()
    rig.wait_for_start(1)
    assert ends_within(stray)
    rig.sync()
    rig.sync()
    assert not Path(f"/proc/{stray}").exists()


def test_supervisor_with_children_ignores_termination_signals(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(rig.executor.supervisor_pid, number)
    rig.sync()
    assert is_alive(pid)
    assert len(rig.supervisors) == 1
    assert "SIGTERM ignored" in (rig.home / "supervisor.log").read_text()


def test_stop_overrides_kill_after(rig: Rig, make_fifo: MakeFifo) -> None:
    """The setting may have changed since the run started."""
    ready = make_fifo("ready")
    rig.start_shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1000; done", kill_after=1000.0)
    ready.read_line()
    rig.send(StopOrder(run=RunId(1), kill_after=0.1))
    end = rig.wait_for_exit(1)
    assert (end.signal, end.ended_by) == (9, "stop")
