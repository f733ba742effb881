"""Ends of whole trees: stop, what a run leaves behind, and whom it must never touch."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.rig import Fifo, Rig, ends_within, lives, rig_in
from rota.executor.port import Exited, Stop
from rota.executor.supervisor import process
from rota.ids import RunId

MakeFifo = Callable[[str], Fifo]

DAEMON = "setsid sh -c '{before} echo $$ > {told}; exec sleep 1000' &"
"""A grandchild in a session of its own that tells its pid."""

DEAF = 'trap "" TERM;'
"""An ignored signal stays ignored over exec."""


def daemon(told: Fifo, before: str = "") -> str:
    return DAEMON.format(before=before, told=told.path)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that is nobody's run: it must survive everything."""
    made = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    yield made.pid
    made.kill()
    made.wait()


def test_what_left_the_session_is_ended_after_a_normal_exit(rig: Rig, fifo: MakeFifo) -> None:
    told, other, gate = fifo("told"), fifo("other"), fifo("gate")
    rig.shell(2, daemon(other) + " exec sleep 1000")
    others = [rig.started(2).pid, other.number()]
    rig.shell(1, daemon(told) + f" read x < {gate.path}; exit 3")
    left = told.number()
    gate.release()
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (3, None)
    assert not lives(left)
    assert all(lives(pid) for pid in others)


def test_what_stayed_in_the_session_is_ended_after_a_normal_exit(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, f"sleep 1000 & echo $! > {told.path}")
    left = told.number()
    assert rig.exited(1).code == 0
    assert not lives(left)


def test_background_job_of_another_group_in_the_session(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, f"set -m; sleep 1000 & echo $! > {told.path}")
    left = told.number()
    assert rig.exited(1).code == 0
    assert not lives(left)


def test_child_of_a_stray_without_environment_is_ended(rig: Rig, fifo: MakeFifo) -> None:
    told, gate = fifo("told"), fifo("gate")
    inner = f"echo $$ > {told.path}; exec sleep 1000"
    rig.shell(1, f"setsid sh -c \"setsid env -i sh -c '{inner}' & exec sleep 1000\" & read x < {gate.path}")
    left = told.number()
    gate.release()
    assert rig.exited(1).code == 0
    assert not lives(left)


def test_strays_that_are_just_being_made_are_not_missed(rig: Rig) -> None:
    """Between the two halves of an exec a process shows no environment: it is looked at again."""
    count = 150
    rig.send(*(rig.order(n, ["sh", "-c", "setsid sleep 1000 & exit 0"]) for n in range(1, count + 1)))
    for n in range(1, count + 1):
        rig.exited(n)
    tag = os.fsencode(f"ROTA_HOME={rig.home.resolve()}")
    everything = process.look_at_all()
    left = [pid for pid, each in everything.items() if not each.is_gone and tag in process.variables(pid)]
    left.remove(rig.executor.supervisor_pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def test_what_ignores_term_is_killed(rig: Rig, fifo: MakeFifo) -> None:
    told, gate = fifo("told"), fifo("gate")
    rig.shell(1, daemon(told, DEAF) + f" read x < {gate.path}", kill_after=0.2)
    left = told.number()
    gate.release()
    assert rig.exited(1).code == 0
    assert not lives(left)


def test_many_strays(rig: Rig, fifo: MakeFifo) -> None:
    told, gate = fifo("told"), fifo("gate")
    script = f"for i in 1 2 3 4 5 6 7 8 9 10; do {daemon(told)} done; read x < {gate.path}"
    rig.shell(1, script)
    left = [told.number() for _ in range(10)]
    gate.release()
    rig.exited(1)
    assert not any(lives(pid) for pid in left)


def test_stop_ends_the_whole_tree(rig: Rig, fifo: MakeFifo, stranger: int) -> None:
    told, other = fifo("told"), fifo("other")
    rig.shell(2, daemon(other) + " exec sleep 1000")
    others = [rig.started(2).pid, other.number(), stranger]
    rig.shell(1, daemon(told) + " sleep 1000 & wait")
    pids = [rig.started(1).pid, told.number()]
    rig.stop(1)
    end = rig.exited(1)
    assert (end.code, end.signal, end.ended_by) == (None, signal.SIGTERM, "stop")
    assert not any(lives(pid) for pid in pids)
    assert all(lives(pid) for pid in others)


def test_stop_kills_what_ignores_term(rig: Rig, fifo: MakeFifo) -> None:
    told, ready = fifo("told"), fifo("ready")
    rig.shell(1, f"{DEAF} {daemon(told)} echo > {ready.path}; while :; do sleep 1; done", kill_after=0.3)
    left = told.number()
    ready.line()
    rig.stop(1)
    end = rig.exited(1)
    assert (end.signal, end.ended_by) == (signal.SIGKILL, "stop")
    assert not lives(left)


def test_stop_lets_the_main_process_clean_up(rig: Rig, fifo: MakeFifo) -> None:
    """Helpers it starts after TERM are not signalled, and its own exit code counts."""
    ready = fifo("ready")
    script = f"trap 'sh -c \"sleep 0.2; echo cleaned\"; exit 5' TERM; echo > {ready.path}; while :; do sleep 0.01; done"
    rig.shell(1, script)
    ready.line()
    rig.stop(1)
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (5, "stop")
    assert rig.stdout(1) == "cleaned\n"


def test_stop_of_a_suspended_tree(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"], kill_after=60)
    pid = rig.started(1).pid
    os.kill(pid, signal.SIGSTOP)
    rig.stop(1)
    assert rig.exited(1).signal == signal.SIGTERM


def test_stop_twice_is_fine(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.started(1)
    rig.stop(1)
    rig.stop(1)
    assert rig.exited(1).ended_by == "stop"


def test_stop_right_behind_start(rig: Rig) -> None:
    """The process may not exist yet when the stop is read."""
    rig.executor.send([rig.order(1, ["sleep", "1000"])])
    rig.stop(1)
    assert rig.exited(1).ended_by == "stop"


def test_stop_after_the_end_changes_nothing(rig: Rig) -> None:
    rig.shell(1, "exit 4")
    assert rig.exited(1).code == 4
    rig.stop(1)
    assert [m for m in rig.barrier() if isinstance(m, Exited) and m.run == 1] == []
    rig.reconnect()
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (4, None)


def test_stop_while_the_unreaped_end_waits(rig: Rig, fifo: MakeFifo) -> None:
    """A child that ended before the supervisor read the stop has its result, whatever came in first."""
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}; exit 4")
    started = rig.started(1)
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(started.pid)
    rig.stop(1)
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    end = rig.exited(1)
    assert (end.code, end.ended_by) == (4, None)


def test_the_same_run_of_another_home_is_not_ours(rig: Rig, tmp_path: Path, fifo: MakeFifo) -> None:
    told = fifo("told")
    with rig_in(tmp_path / "second") as second:
        second.shell(1, daemon(told) + " exec sleep 1000")
        others = [second.started(1).pid, told.number()]
        rig.shell(1, "sleep 1000 & exit 0")
        rig.exited(1)
        rig.start(2, ["sleep", "1000"])
        rig.started(2)
        rig.stop(2)
        rig.exited(2)
        assert all(lives(pid) for pid in others)


def test_a_stray_that_nothing_names_ends_with_the_only_run_that_can_have_left_it(rig: Rig, fifo: MakeFifo) -> None:
    """It left its session, its parents and its environment behind, and does not listen either."""
    told, gate, go = fifo("told"), fifo("gate"), fifo("go")
    script = rig.home / "stray"
    script.write_text(f"trap : TERM; echo $$ > {told.path}; while :; do read x < {gate.path}; done")
    rig.shell(1, f"setsid env -i sh -c '(sh {script} &)'; read x < {go.path}; exit 3", kill_after=0.1)
    stray = told.number()
    go.release()
    assert rig.exited(1).code == 3
    assert not lives(stray)


def test_a_stray_that_two_runs_can_have_left_ends_with_the_last_of_them(rig: Rig, fifo: MakeFifo) -> None:
    told, gate = fifo("told"), fifo("gate")
    script = rig.home / "stray"
    script.write_text(f"echo $$ > {told.path}; read x < {gate.path}")
    rig.start(1, ["sleep", "1000"])
    rig.started(1)
    rig.shell(2, f"setsid env -i sh -c '(sh {script} &)'; exit 0")
    stray = told.number()
    assert rig.exited(2).code == 0
    assert lives(stray)
    assert "it ends with the last of them" in (rig.home / "supervisor.log").read_text()
    rig.shell(3, "exit 0")  # begun later than the stray: it cannot have left it
    assert rig.exited(3).code == 0
    assert lives(stray)
    rig.stop(1)
    rig.exited(1)
    assert not lives(stray)


def test_zombies_of_strays_do_not_pile_up(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, f"(sh -c 'echo $$ > {told.path}' &); (sh -c 'exit 0' &); exec sleep 1000")
    stray = told.number()
    rig.started(1)
    assert ends_within(stray)
    rig.barrier()
    rig.barrier()
    assert not Path(f"/proc/{stray}").exists()


def test_sigterm_and_interrupts_do_not_end_a_supervisor_that_has_children(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(rig.executor.supervisor_pid, number)
    rig.barrier()
    assert lives(pid)
    assert len(rig.supervisors) == 1
    assert "SIGTERM ignored" in (rig.home / "supervisor.log").read_text()


def test_a_stop_says_how_long_it_waits(rig: Rig, fifo: MakeFifo) -> None:
    """The setting may be another one than when the run began."""
    ready = fifo("ready")
    rig.shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1000; done", kill_after=1000.0)
    ready.line()
    rig.send(Stop(run=RunId(1), kill_after=0.1))
    end = rig.exited(1)
    assert (end.signal, end.ended_by) == (9, "stop")
