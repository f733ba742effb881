"""After a supervisor was lost: what lives is watched, what is gone is said to be gone, nobody else is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor.rig import Fifo, Rig, ends_within, lives, rig_in
from rota.executor.port import Accounts, Exited, Lost
from rota.executor.supervisor import process, protocol
from rota.executor.supervisor.run import Run
from rota.executor.supervisor.step import Step

MakeFifo = Callable[[str], Fifo]


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Processes in sessions of their own that the supervisor under test has not started."""
    made: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **variables: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], **variables}
        made.append(subprocess.Popen(argv or ("sleep", "1000"), start_new_session=True, env=env))
        return made[-1]

    yield start
    for each in made:
        each.kill()
        each.wait()


def started_at(pid: int) -> int:
    found = process.look(pid)
    assert found is not None
    return found.start_time


def write_journal(home: Path, *runs: Run) -> None:
    (home / protocol.JOURNAL).write_bytes(b"".join(line for run in runs for line in run.records()))


def recorded(number: int, home: Path, pid: int | None, start_time: int | None) -> Run:
    directory = home / "jobs" / f"job-{number}"
    directory.mkdir(parents=True)
    (directory / "stderr.log").write_text("last words\n")
    run = Run(number, directory=str(directory), kill_after=0.5, deadline=None, idle_timeout=None)
    run.boot = process.boot_id()
    run.pid, run.start_time = pid, start_time
    return run


def lose_supervisor(rig: Rig) -> Accounts:
    rig.kill_supervisor()
    rig.wait_for(Lost)
    accounts = rig.wait_for(Accounts)
    rig.introduce()
    return accounts


def test_a_living_child_is_watched_until_it_ends(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.shell(1, f"echo oops >&2; read x < {gate.path}; exit 7")
    pid = rig.started(1).pid
    accounts = lose_supervisor(rig)
    assert [(account.run, account.pid) for account in accounts.runs] == [(1, pid)]
    assert lives(pid)
    rig.barrier()
    assert not [m for m in rig.seen if isinstance(m, Exited)]
    gate.release()
    end = rig.exited(1)
    assert (end.code, end.signal, end.ended_by, end.watched, end.tail) == (None, None, None, True, "oops\n")


def test_what_it_leaves_behind_is_ended_too(rig: Rig, fifo: MakeFifo) -> None:
    gate, told = fifo("gate"), fifo("told")
    rig.shell(1, f"setsid sh -c 'echo $$ > {told.path}; exec sleep 1000' & sleep 1000 & read x < {gate.path}; exit 7")
    left = told.number()
    lose_supervisor(rig)
    assert lives(left)
    gate.release()
    assert rig.exited(1).code is None
    assert not lives(left)


def test_a_child_that_ended_unseen(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}; exit 7")
    pid = rig.started(1).pid
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    lose_supervisor(rig)
    end = rig.exited(1)
    assert (end.code, end.signal, end.watched) == (None, None, False)


def test_what_a_child_that_ended_unseen_left_behind(rig: Rig, fifo: MakeFifo) -> None:
    gate, told = fifo("gate"), fifo("told")
    rig.shell(1, f"setsid sh -c 'echo $$ > {told.path}; exec sleep 1000' & read x < {gate.path}")
    pid, left = rig.started(1).pid, told.number()
    rig.suspend_supervisor()
    gate.release()
    assert ends_within(pid)
    lose_supervisor(rig)
    assert rig.exited(1).watched is False
    assert not lives(left)


def test_lost_while_it_was_clearing_up(rig: Rig, fifo: MakeFifo) -> None:
    """The end was written, the tree was not gone: the successor ends it before it tells."""
    gate, told = fifo("gate"), fifo("told")
    script = f"setsid sh -c 'trap \"\" TERM; echo $$ > {told.path}; exec sleep 1000' & read x < {gate.path}; exit 3"
    rig.shell(1, script, kill_after=1.0)
    pid, left = rig.started(1).pid, told.number()
    gate.release()
    assert ends_within(pid)
    while b'"exited"' not in (rig.home / protocol.JOURNAL).read_bytes():
        rig.barrier()
    rig.kill_supervisor()
    end = rig.exited(1)
    assert end.code == 3
    assert not lives(left)


def test_stop_of_an_orphan(rig: Rig, fifo: MakeFifo) -> None:
    told = fifo("told")
    rig.shell(1, f"setsid sh -c 'echo $$ > {told.path}; exec sleep 1000' & wait")
    pids = [rig.started(1).pid, told.number()]
    lose_supervisor(rig)
    rig.stop(1)
    end = rig.exited(1)
    assert (end.code, end.signal, end.ended_by, end.watched) == (None, None, "stop", True)
    assert not any(lives(pid) for pid in pids)


def test_an_orphan_that_ignores_term_is_killed(rig: Rig, fifo: MakeFifo) -> None:
    ready = fifo("ready")
    rig.shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1; done", kill_after=0.3)
    ready.line()
    rig.started(1)
    lose_supervisor(rig)
    rig.stop(1)
    assert rig.exited(1).ended_by == "stop"


def test_timeouts_outlive_the_supervisor(rig: Rig) -> None:
    before = time.monotonic()
    rig.start(1, ["sleep", "1000"], timeout=1.5)
    rig.start(2, ["sleep", "1000"], idle_timeout=1.0)
    rig.started(1)
    rig.started(2)
    lose_supervisor(rig)
    assert rig.exited(1).ended_by == "timeout"
    assert 1.5 <= time.monotonic() - before < 10
    assert rig.exited(2).ended_by == "idle_timeout"


def test_a_stop_that_had_begun_goes_on(rig: Rig, fifo: MakeFifo) -> None:
    ready = fifo("ready")
    rig.shell(1, f"trap '' TERM; echo > {ready.path}; while :; do sleep 1; done", kill_after=2.0)
    ready.line()
    rig.started(1)
    rig.stop(1)
    rig.barrier()
    lose_supervisor(rig)
    assert rig.exited(1).ended_by == "stop"


def test_an_orphan_is_not_started_a_second_time(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.start(1, ["sleep", "1000"])
    rig.started(1)
    lose_supervisor(rig)
    rig.start(1, ["sleep", "1000"])
    rig.barrier()
    assert "known already" in caplog.text


def test_starting_only_is_found_by_its_tag(home: Path, child: Callable[..., subprocess.Popen[bytes]]) -> None:
    found = child(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    other_run = child(ROTA_RUN="run-11", ROTA_HOME=str(home.resolve()))
    other_home = child(ROTA_RUN="run-1", ROTA_HOME="/elsewhere")
    write_journal(home, recorded(1, home, None, None))
    with rig_in(home) as rig:
        assert [(account.run, account.pid) for account in rig.accounts.runs] == [(1, found.pid)]
        rig.stop(1)
        assert rig.exited(1).ended_by == "stop"
    assert found.wait() == -signal.SIGTERM
    assert other_run.poll() is None
    assert other_home.poll() is None


def test_a_command_after_its_skip_if_is_found_by_its_tag_too(
    home: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The journal has the pid of what came before; the command's own was never written."""
    run = recorded(1, home, 4242, 17)
    run.step = Step.CHECK
    lines = [*run.records()]
    run.step = Step.MAIN
    found = child(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    (home / protocol.JOURNAL).write_bytes(b"".join((*lines, run.at_step())))
    with rig_in(home) as rig:
        assert [(account.run, account.pid) for account in rig.accounts.runs] == [(1, found.pid)]
        rig.barrier()
        assert found.poll() is None
        found.terminate()
        found.wait()
        end = rig.exited(1)
        assert (end.code, end.watched) == (None, True)


def test_starting_only_and_nothing_found(home: Path) -> None:
    write_journal(home, recorded(1, home, None, None))
    with rig_in(home) as rig:
        end = rig.exited(1)
    assert (end.code, end.signal, end.watched, end.tail) == (None, None, False, "last words\n")


def test_a_pid_that_was_used_again_is_never_signalled(
    home: Path, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Same number, other start time: a session leader too, so that session and group match."""
    foreign = child()
    write_journal(home, recorded(1, home, foreign.pid, started_at(foreign.pid) - 1))
    with rig_in(home) as rig:
        assert [(account.run, account.pid) for account in rig.accounts.runs] == [(1, None)]
        rig.stop(1)
        end = rig.exited(1)
        assert (end.code, end.ended_by, end.watched) == (None, None, False)
        assert foreign.poll() is None


def test_a_session_whose_leader_is_gone_is_not_taken_for_the_runs(
    home: Path, fifo: MakeFifo, child: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The number was used again, for a session of which only a member is left."""
    told = fifo("told")
    leader = child("sh", "-c", f"sh -c 'echo $$ > {told.path}; exec sleep 1000' & exit 0")
    member = told.number()
    leader.wait()
    try:
        write_journal(home, recorded(1, home, leader.pid, 1))
        with rig_in(home) as rig:
            assert rig.exited(1).watched is False
            assert lives(member)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)


def test_nothing_is_adopted_after_a_reboot(home: Path, child: Callable[..., subprocess.Popen[bytes]]) -> None:
    foreign = child(ROTA_RUN="run-1", ROTA_HOME=str(home.resolve()))
    run = recorded(1, home, foreign.pid, started_at(foreign.pid))
    run.boot = "another-boot"
    only_starting = recorded(2, home, None, None)
    only_starting.boot = "another-boot"
    write_journal(home, run, only_starting)
    with rig_in(home) as rig:
        assert [account.pid for account in rig.accounts.runs] == [None, None]
        assert rig.exited(1).watched is False
        assert rig.exited(2).watched is False
        assert foreign.poll() is None


def test_killed_again_and_again(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}")
    pid = rig.started(1).pid
    for _ in range(4):
        accounts = lose_supervisor(rig)
        assert [(account.run, account.pid) for account in accounts.runs] == [(1, pid)]
    gate.release()
    assert rig.exited(1).watched is True


@pytest.mark.parametrize("delay_lines", range(0, 12, 2))
def test_killed_in_the_middle_of_many_starts(rig: Rig, delay_lines: int) -> None:
    """Whatever moment the kill hits, every run is accounted for and none ran twice."""
    count = 40
    mark = rig.home / "marks"
    mark.mkdir()
    rig.send(*(rig.order(n, ["sh", "-c", f"echo $$ >> {mark}/{n}"]) for n in range(1, count + 1)))
    for _ in range(delay_lines):
        rig.wait_until(lambda _message: True, "anything")
    rig.kill_supervisor()
    rig.wait_for(Lost)
    accounts = rig.wait_for(Accounts)
    known = {account.run for account in accounts.runs}
    for run in known:
        rig.exited(run)
    for n in range(1, count + 1):
        path = mark / str(n)
        if path.exists():
            assert n in known
            assert len(path.read_text().splitlines()) == 1
