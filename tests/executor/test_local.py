"""The scheduler's end: starting, losing and finding a supervisor."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from executor.rig import PATIENCE, Fifo, Rig, ends_within, lives, rig_in
from rota.errors import Unavailable
from rota.executor.local import LocalExecutor
from rota.executor.port import Accounts, Environment, Executor, Exited, Lost, Message
from rota.executor.supervisor import process, protocol

MakeFifo = Callable[[str], Fifo]


def test_it_is_an_executor(rig: Rig) -> None:
    executor: Executor = rig.executor
    assert executor.receive() == []


def test_accounts_come_first_and_the_descriptor_says_so(home: Path) -> None:
    executor = LocalExecutor(home, 1)
    try:
        assert select.select([executor], [], [], PATIENCE)[0]
        assert executor.receive() == [Accounts(runs=[])]
        assert not select.select([executor], [], [], 0)[0]
    finally:
        executor.close()
        os.kill(executor.supervisor_pid, signal.SIGTERM)
        os.waitpid(executor.supervisor_pid, 0)


def test_the_supervisor_stands_on_its_own(rig: Rig) -> None:
    pid = rig.executor.supervisor_pid
    found = process.look(pid)
    assert found is not None
    assert found.session == found.group == pid
    descriptors = {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert descriptors["0"] == "/dev/null"
    assert descriptors["1"] == descriptors["2"] == str(rig.home.resolve() / protocol.LOG)
    assert not _pipes() & set(descriptors.values())
    variables = process.variables(pid)
    assert os.fsencode(f"ROTA_HOME={rig.home.resolve()}") in variables
    assert Path(f"/proc/{pid}/comm").read_text() == "rota-supervise\n"
    assert b"rota.executor.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _pipes() -> set[str]:
    """Ours; among them those of whoever started the tests, who would wait for their end."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(link.readlink()))
    return {target for target in found if target.startswith("pipe:")}


def test_it_imports_little(home: Path) -> None:
    script = "import sys; import rota.executor.supervisor.main; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"msgspec", "asyncio", "typing", "pathlib", "logging", "inspect", "dataclasses", "rota.executor.port"}
    # An editable install may bring some of them along by itself.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not (heavy & set(modules)) - set(bare)
    assert {m for m in modules if m.startswith("rota")} <= {"rota", "rota.executor", "rota.leftover", "rota.report"} | {
        m for m in modules if m.startswith("rota.executor.supervisor")
    }


def test_a_killed_supervisor_is_replaced_at_once(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    first = rig.executor.supervisor_pid
    rig.kill_supervisor()
    rig.seen.clear()
    rig.wait_for(Accounts)
    lost, accounts = rig.seen[:2]
    assert isinstance(lost, Lost)
    assert isinstance(accounts, Accounts)
    assert [(account.run, account.pid) for account in accounts.runs] == [(1, pid)]
    assert rig.executor.supervisor_pid != first
    rig.introduce()
    rig.start(2, ["true"])
    assert rig.exited(2).code == 0
    assert lives(pid)


def test_orders_to_a_dead_supervisor_are_not_an_error(rig: Rig) -> None:
    rig.kill_supervisor()
    rig.start(1, ["true"])
    rig.wait_for(Lost)
    rig.start(1, ["true"])
    assert list(rig.wait_for(Accounts).runs) == []


def test_a_scheduler_killed_and_started_again_finds_the_same_supervisor(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.started(1).pid
    before = rig.executor.supervisor_pid
    rig.reconnect(2)
    assert rig.executor.supervisor_pid == before
    assert [(account.run, account.pid) for account in rig.accounts.runs] == [(1, pid)]


def test_two_starters_meet_at_one_supervisor(home: Path) -> None:
    executors: list[LocalExecutor] = []
    threads = [threading.Thread(target=lambda: executors.append(LocalExecutor(home, 1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({executor.supervisor_pid for executor in executors}) == 1
    pid = executors[0].supervisor_pid
    # The others wait for the lock and leave when they cannot have it, or find nothing to do.
    waiting = [each._starter._process for each in executors if each._starter._process is not None]
    for executor in executors:
        executor.close()
    for process_ in waiting:
        if process_.pid != pid:
            os.kill(process_.pid, signal.SIGKILL)
            os.waitpid(process_.pid, 0)
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid)
    os.waitpid(pid, 0)


def test_it_ends_by_itself_when_nobody_needs_it(rig: Rig) -> None:
    rig.shell(1, "exit 3")
    end = rig.exited(1)
    pid = rig.executor.supervisor_pid
    rig.executor.close()
    assert ends_within(pid)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert not (rig.home / protocol.SOCKET).exists()
    rig.reconnect()
    assert rig.executor.supervisor_pid != pid
    assert rig.exited(1) == end, "what nobody acknowledged is told by the next one"


def test_it_stays_while_a_child_lives_and_then_ends(rig: Rig, fifo: MakeFifo) -> None:
    gate = fifo("gate")
    rig.shell(1, f"read x < {gate.path}; exit 6")
    rig.started(1)
    pid = rig.executor.supervisor_pid
    rig.executor.close()
    assert not ends_within(pid, 3.0)
    gate.release()
    assert ends_within(pid)
    rig.reconnect()
    assert rig.exited(1).code == 6


def test_sigterm_ends_an_idle_one(rig: Rig) -> None:
    pid = rig.executor.supervisor_pid
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid)
    rig.wait_for(Lost)
    rig.wait_for(Accounts)


def test_a_long_home_path(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / ("path" * 30)
    with rig_in(home) as rig:
        rig.shell(1, "exit 3")
        assert rig.exited(1).code == 3


def test_a_stale_socket_is_no_hindrance(home: Path) -> None:
    (home / protocol.SOCKET).write_text("")
    with rig_in(home) as rig:
        rig.start(1, ["true"])
        assert rig.exited(1).code == 0


def test_much_unread_both_ways_does_not_stall(rig: Rig) -> None:
    """Megabytes of orders while nothing is read: the rest goes out when the descriptor says it can."""
    big = {f"NAME_{n}": "x" * 1000 for n in range(1000)}
    orders = [Environment(surroundings=n, variables=big) for n in range(2, 12)]
    rig.executor.send(orders)
    for n in range(1, 101):
        rig.start(n, ["/bin/true"])
    for n in range(1, 101):
        rig.exited(n)
    for n in range(1, 101):
        rig.acknowledge(n)
    rig.barrier()
    rig.reconnect()
    assert list(rig.accounts.runs) == []


def test_the_last_order_goes_out_without_any_answer(rig: Rig) -> None:
    """What is left in the buffer needs no message to come in before it is sent."""
    rig.suspend_supervisor()
    rig.executor.send([Environment(surroundings=2, variables={"X": "y" * 5_000_000})])
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    received: list[Message] = []
    while rig.executor._out:
        assert select.select([rig.executor], [], [], PATIENCE)[0]
        received += rig.executor.receive()
    assert received == []
    assert not select.select([rig.executor], [], [], 0)[0]
    rig.start(1, ["true"])
    assert rig.exited(1).code == 0


def test_many_ends_while_the_scheduler_does_not_read(rig: Rig) -> None:
    for n in range(1, 151):
        rig.shell(n, "printf '%4000s' x >&2; exit 1")
    for n in range(1, 151):
        end = rig.exited(n)
        assert isinstance(end, Exited)
        assert len(end.tail) == 4000


def test_a_supervisor_that_cannot_be_had(home: Path) -> None:
    (home / protocol.JOURNAL).mkdir()
    with pytest.raises(Unavailable, match=r"(?s)could not be started; see .*supervisor.log.*Is a directory"):
        LocalExecutor(home, 1)


def test_while_there_is_none_nobody_is_called_over_and_over(home: Path) -> None:
    """The loop waits on the descriptor: readable for nothing, it would spin until a supervisor can be had."""
    executor = LocalExecutor(home, None)
    (home / protocol.JOURNAL).mkdir()
    try:
        assert executor.receive() == [], "nobody is spoken to before it is known for whom"
        with pytest.raises(Unavailable):
            executor.introduce(1)
        with pytest.raises(Unavailable):
            executor.receive()
        assert select.select([executor.fileno()], [], [], 0)[0] == []
    finally:
        executor.close()


def test_a_supervisor_that_does_not_answer(rig: Rig) -> None:
    pid = rig.executor.supervisor_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            LocalExecutor(rig.home, 2, wait=0.3)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="home cannot be opened"):
        LocalExecutor(tmp_path / "nowhere", 1)


def test_a_supervisor_started_by_a_job_is_not_part_of_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RUN", "run-1")
    monkeypatch.setenv("ROTA_JOB", "job-1")
    with rig_in(home) as rig:
        variables = process.variables(rig.executor.supervisor_pid)
        assert not [v for v in variables if v.startswith((b"ROTA_RUN=", b"ROTA_JOB="))]
        rig.shell(1, "sleep 1000 & exit 0")
        rig.exited(1)
        assert len(rig.supervisors) == 1
