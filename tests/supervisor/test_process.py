"""Identity of processes, and their assignment to runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.supervisor import process
from rota.supervisor.event_loop import EventLoop
from rota.supervisor.process import Process
from rota.supervisor.run import RunPhase, SupervisedRun
from rota.supervisor.tree import ProcessTree, TreeTerminator


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Home of its own for each test: tags are searched on the whole machine."""
    return str(tmp_path)


@pytest.fixture
def sleeper(home: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "ROTA_HOME": home, "ROTA_RUN": "run-7"}
    sleeper = subprocess.Popen(["cat"], start_new_session=True, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    sleeper.stdin.write(b"\n")
    sleeper.stdin.flush()
    sleeper.stdout.readline()  # it has completed its exec, so its environment is readable
    with sleeper:
        yield sleeper
        sleeper.kill()


def test_pidfd_requires_the_matching_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    status = process.read_process(sleeper.pid)
    assert status is not None
    assert process.open_pidfd(sleeper.pid, status.start_time - 1) is None
    fd = process.open_pidfd(sleeper.pid, status.start_time)
    assert fd is not None
    os.close(fd)


def test_unreadable_process_is_not_in_exec() -> None:
    """It never shows an environment, so nothing waits for one. (Root can read the environment of any user.)"""
    script = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for pid in (child.pid, 1):
            status = process.read_process(pid)
            assert status is not None
            assert not process.is_in_exec(status)
        child.kill()


def test_empty_tree_is_cleared_despite_an_uncertain_scan() -> None:
    """The uncertainty stems from an earlier scan, for another run."""
    cleared: list[int] = []
    tree = ProcessTree({}, "/nowhere")
    tree.is_certain = False
    run = SupervisedRun(7, directory="/nowhere", kill_after=5.0, deadline=None, idle_timeout=None)
    run.pid, run.phase = 2**22 - 1, RunPhase.CLEARING  # no such group
    TreeTerminator(EventLoop(), tree, lambda run: cleared.append(run.number)).clear_tree(run)
    assert cleared == [7]


def test_zombie_has_no_pidfd(sleeper: subprocess.Popen[bytes]) -> None:
    status = process.read_process(sleeper.pid)
    assert status is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    zombie = process.read_process(sleeper.pid)
    assert zombie is not None
    assert zombie.is_gone
    assert process.open_pidfd(sleeper.pid, status.start_time) is None
    sleeper.wait()
    assert process.open_pidfd(sleeper.pid, status.start_time) is None
    assert process.read_process(sleeper.pid) is None


def test_process_name_may_contain_anything() -> None:
    stat = b"12 (a) S ) 1 (b)) R 5 6 7 0 -1 4194304 " + b"0 " * 10 + b"1 0 4711 0 0\n"
    status = Process(12, stat)
    assert (status.parent, status.group, status.session, status.start_time, status.is_gone) == (5, 6, 7, 4711, False)


def test_process_without_its_leader_thread_is_not_gone() -> None:
    fields = b"5 6 7 0 -1 0 " + b"0 " * 10
    assert not Process(12, b"12 (x) Z " + fields + b"3 0 4711 0\n").is_gone
    assert Process(12, b"12 (x) Z " + fields + b"1 0 4711 0\n").is_gone


def test_process_without_environment_is_in_exec(sleeper: subprocess.Popen[bytes]) -> None:
    status = process.read_process(sleeper.pid)
    assert status is not None
    assert status.has_environment
    assert not process.is_in_exec(status)
    status.has_environment = False
    assert process.is_in_exec(status)
    kernel_thread = process.read_process(2)
    assert kernel_thread is None or not process.is_in_exec(kernel_thread)


def make_run(number: int, phase: RunPhase = RunPhase.RUNNING) -> SupervisedRun:
    run = SupervisedRun(number, directory="/d", kill_after=1.0, deadline=None, idle_timeout=None)
    run.is_inherited = True
    run.phase = phase
    return run


@pytest.mark.parametrize(
    ("suffix", "number", "phase", "is_found"),
    [
        ("", 7, RunPhase.RUNNING, True),
        ("", 7, RunPhase.STARTING, True),
        ("", 7, RunPhase.ENDED, False),
        ("", 77, RunPhase.RUNNING, False),
        ("/", 7, RunPhase.RUNNING, False),
        ("/other", 7, RunPhase.RUNNING, False),
    ],
)
def test_process_is_found_by_its_tag(
    sleeper: subprocess.Popen[bytes], home: str, suffix: str, number: int, phase: RunPhase, is_found: bool
) -> None:
    tree = ProcessTree({number: make_run(number, phase)}, home + suffix)
    members = tree.processes_by_run().get(number, [])
    assert [member.pid for member in members] == ([sleeper.pid] if is_found else [])


def test_session_takes_precedence_over_the_tag(sleeper: subprocess.Popen[bytes], home: str) -> None:
    owner = make_run(3)
    status = process.read_process(sleeper.pid)
    assert status is not None
    owner.pid, owner.start_time = sleeper.pid, status.start_time
    tree = ProcessTree({3: owner, 7: make_run(7)}, home)
    assert {number: [member.pid for member in members] for number, members in tree.processes_by_run().items()} == {
        3: [sleeper.pid]
    }
    owner.start_time = status.start_time - 1  # the number was reused: it does not identify run-3
    assert list(tree.processes_by_run()) == [7]


def test_scheduler_belongs_to_no_run(sleeper: subprocess.Popen[bytes], home: str) -> None:
    tree = ProcessTree({7: make_run(7)}, home)
    tree.scheduler_pids.add(sleeper.pid)
    assert tree.processes_by_run() == {}
