"""Identity, and whose process is whose."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.executor.supervisor import process
from rota.executor.supervisor.ending import Ending
from rota.executor.supervisor.loop import Loop
from rota.executor.supervisor.process import Process
from rota.executor.supervisor.run import Phase, Run
from rota.executor.supervisor.tree import Tree


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Its own for each test: tags are looked for on the whole machine."""
    return str(tmp_path)


@pytest.fixture
def sleeper(home: str) -> Iterator[subprocess.Popen[bytes]]:
    env = {"PATH": os.environ["PATH"], "ROTA_HOME": home, "ROTA_RUN": "run-7"}
    made = subprocess.Popen(["cat"], start_new_session=True, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdin is not None
    assert made.stdout is not None
    made.stdin.write(b"\n")
    made.stdin.flush()
    made.stdout.readline()  # it has left its exec, so that its environment can be read
    with made:
        yield made
        made.kill()


def test_a_handle_is_had_only_with_the_right_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.look(sleeper.pid)
    assert found is not None
    assert process.handle(sleeper.pid, found.start_time - 1) is None
    fd = process.handle(sleeper.pid, found.start_time)
    assert fd is not None
    os.close(fd)


def test_a_process_that_we_may_not_look_at_is_not_inside_an_exec() -> None:
    """It shows no environment, now and for ever: nobody waits for that. (As root another user's is open to us.)"""
    script = "import ctypes, os; ctypes.CDLL(None).prctl(4, 0); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        for pid in (made.pid, 1):
            found = process.look(pid)
            assert found is not None
            assert not process.is_in_exec(found)
        made.kill()


def test_an_end_with_nothing_left_waits_for_nobody_elses_exec() -> None:
    """The doubt is that of an earlier look, about another run."""
    ended: list[int] = []
    tree = Tree({}, "/nowhere")
    tree.is_certain = False
    run = Run(7, directory="/nowhere", kill_after=5.0, deadline=None, idle_timeout=None)
    run.pid, run.phase = 2**22 - 1, Phase.CLEARING  # no such group
    Ending(Loop(), tree, lambda run: ended.append(run.number)).clear(run)
    assert ended == [7]


def test_no_handle_of_a_zombie(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.look(sleeper.pid)
    assert found is not None
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    zombie = process.look(sleeper.pid)
    assert zombie is not None
    assert zombie.is_gone
    assert process.handle(sleeper.pid, found.start_time) is None
    sleeper.wait()
    assert process.handle(sleeper.pid, found.start_time) is None
    assert process.look(sleeper.pid) is None


def test_a_name_may_hold_anything() -> None:
    stat = b"12 (a) S ) 1 (b)) R 5 6 7 0 -1 4194304 " + b"0 " * 10 + b"1 0 4711 0 0\n"
    found = Process(12, stat)
    assert (found.parent, found.group, found.session, found.start_time, found.is_gone) == (5, 6, 7, 4711, False)


def test_a_process_whose_leader_thread_left_is_not_gone() -> None:
    fields = b"5 6 7 0 -1 0 " + b"0 " * 10
    assert not Process(12, b"12 (x) Z " + fields + b"3 0 4711 0\n").is_gone
    assert Process(12, b"12 (x) Z " + fields + b"1 0 4711 0\n").is_gone


def test_inside_an_exec_there_is_no_environment_yet(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.look(sleeper.pid)
    assert found is not None
    assert found.has_environment
    assert not process.is_in_exec(found)
    found.has_environment = False
    assert process.is_in_exec(found)
    kernel_thread = process.look(2)
    assert kernel_thread is None or not process.is_in_exec(kernel_thread)


def run_of(number: int, phase: Phase = Phase.RUNNING) -> Run:
    run = Run(number, directory="/d", kill_after=1.0, deadline=None, idle_timeout=None)
    run.inherited = True
    run.phase = phase
    return run


@pytest.mark.parametrize(
    ("suffix", "number", "phase", "is_found"),
    [
        ("", 7, Phase.RUNNING, True),
        ("", 7, Phase.STARTING, True),
        ("", 7, Phase.ENDED, False),
        ("", 77, Phase.RUNNING, False),
        ("/", 7, Phase.RUNNING, False),
        ("/other", 7, Phase.RUNNING, False),
    ],
)
def test_tags(
    sleeper: subprocess.Popen[bytes], home: str, suffix: str, number: int, phase: Phase, is_found: bool
) -> None:
    tree = Tree({number: run_of(number, phase)}, home + suffix)
    found = tree.of_all().get(number, [])
    assert [each.pid for each in found] == ([sleeper.pid] if is_found else [])


def test_a_session_of_a_known_run_speaks_before_the_tag(sleeper: subprocess.Popen[bytes], home: str) -> None:
    owner = run_of(3)
    found = process.look(sleeper.pid)
    assert found is not None
    owner.pid, owner.start_time = sleeper.pid, found.start_time
    tree = Tree({3: owner, 7: run_of(7)}, home)
    assert {number: [each.pid for each in members] for number, members in tree.of_all().items()} == {3: [sleeper.pid]}
    owner.start_time = found.start_time - 1  # the number was used again: it names nothing of run-3
    assert list(tree.of_all()) == [7]


def test_the_scheduler_is_nobodys(sleeper: subprocess.Popen[bytes], home: str) -> None:
    tree = Tree({7: run_of(7)}, home)
    tree.schedulers.add(sleeper.pid)
    assert tree.of_all() == {}
