"""Local executor: starting, losing and finding a supervisor."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.errors import ServiceUnavailable
from rota.executor.local import LocalExecutor
from rota.executor.port import (
    ConnectionLoss,
    EnvironmentUpload,
    Executor,
    ExecutorMessage,
    ExecutorNotAnswering,
    ExitReport,
    PingOrder,
    Pong,
    RunInventory,
)
from rota.supervisor import process, protocol
from tests.supervisor.rig import TIMEOUT, Fifo, Rig, ends_within, is_alive, open_rig

MakeFifo = Callable[[str], Fifo]


def test_local_executor_implements_the_port(rig: Rig) -> None:
    executor: Executor = rig.executor
    assert executor.receive() == []


def test_inventory_is_the_first_message(home: Path) -> None:
    executor = LocalExecutor(home, 1)
    try:
        assert select.select([executor], [], [], TIMEOUT)[0]
        assert executor.receive() == [RunInventory(runs=[])]
        assert not select.select([executor], [], [], 0)[0]
    finally:
        executor.close()
        os.kill(executor.supervisor_pid, signal.SIGTERM)
        os.waitpid(executor.supervisor_pid, 0)


def test_supervisor_is_detached_from_its_launcher(rig: Rig) -> None:
    pid = rig.executor.supervisor_pid
    status = process.read_process(pid)
    assert status is not None
    assert status.session == status.group == pid
    descriptors = {link.name: str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert descriptors["0"] == "/dev/null"
    assert descriptors["1"] == descriptors["2"] == str(rig.home.resolve() / protocol.LOG)
    assert not _own_pipes() & set(descriptors.values())
    variables = process.read_environment(pid)
    assert os.fsencode(f"ROTA_HOME={rig.home.resolve()}") in variables
    assert Path(f"/proc/{pid}/comm").read_text() == "rota-supervise\n"
    assert b"rota.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _own_pipes() -> set[str]:
    """Return this process's pipes, including those of the test runner, which would wait for their end."""
    targets = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            targets.add(str(link.readlink()))
    return {target for target in targets if target.startswith("pipe:")}


def test_supervisor_imports_few_modules(home: Path) -> None:
    script = "import sys; import rota.supervisor.main; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"msgspec", "asyncio", "typing", "pathlib", "logging", "inspect", "dataclasses", "rota.executor.port"}
    # An editable install may load some of them itself.
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not (heavy & set(modules)) - set(bare)
    assert {m for m in modules if m.startswith("rota")} <= {"rota", "rota.executor", "rota.job_files"} | {
        m for m in modules if m.startswith("rota.supervisor")
    }


def test_killed_supervisor_is_replaced_at_once(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    first = rig.executor.supervisor_pid
    rig.kill_supervisor()
    rig.received.clear()
    rig.wait_for(RunInventory)
    lost, inventory = rig.received[:2]
    assert isinstance(lost, ConnectionLoss)
    assert isinstance(inventory, RunInventory)
    assert [(report.run, report.pid) for report in inventory.runs] == [(1, pid)]
    assert rig.executor.supervisor_pid != first
    rig.upload_environment()
    rig.start(2, ["true"])
    assert rig.wait_for_exit(2).code == 0
    assert is_alive(pid)


def test_orders_to_a_dead_supervisor_are_dropped(rig: Rig) -> None:
    rig.kill_supervisor()
    rig.start(1, ["true"])
    rig.wait_for(ConnectionLoss)
    rig.start(1, ["true"])
    assert list(rig.wait_for(RunInventory).runs) == []


def test_restarted_scheduler_finds_the_same_supervisor(rig: Rig) -> None:
    rig.start(1, ["sleep", "1000"])
    pid = rig.wait_for_start(1).pid
    before = rig.executor.supervisor_pid
    rig.reconnect(2)
    assert rig.executor.supervisor_pid == before
    assert [(report.run, report.pid) for report in rig.inventory.runs] == [(1, pid)]


def test_concurrent_launchers_share_one_supervisor(home: Path) -> None:
    executors: list[LocalExecutor] = []
    threads = [threading.Thread(target=lambda: executors.append(LocalExecutor(home, 1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert len({executor.supervisor_pid for executor in executors}) == 1
    pid = executors[0].supervisor_pid
    # The others wait for the lock and exit when they cannot get it or have nothing to do.
    launched = [executor._launcher._process for executor in executors if executor._launcher._process is not None]
    for executor in executors:
        executor.close()
    for process_ in launched:
        if process_.pid != pid:
            os.kill(process_.pid, signal.SIGKILL)
            os.waitpid(process_.pid, 0)
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid)
    os.waitpid(pid, 0)


def test_idle_supervisor_exits_without_a_scheduler(rig: Rig) -> None:
    rig.start_shell(1, "exit 3")
    end = rig.wait_for_exit(1)
    pid = rig.executor.supervisor_pid
    rig.executor.close()
    assert ends_within(pid)
    assert os.waitpid(pid, 0) == (pid, 0)
    assert not (rig.home / protocol.SOCKET).exists()
    rig.reconnect()
    assert rig.executor.supervisor_pid != pid
    assert rig.wait_for_exit(1) == end, "the next supervisor reports unacknowledged exits"


def test_supervisor_stays_while_a_child_lives(rig: Rig, make_fifo: MakeFifo) -> None:
    gate = make_fifo("gate")
    rig.start_shell(1, f"read x < {gate.path}; exit 6")
    rig.wait_for_start(1)
    pid = rig.executor.supervisor_pid
    rig.executor.close()
    assert not ends_within(pid, 3.0)
    gate.release()
    assert ends_within(pid)
    rig.reconnect()
    assert rig.wait_for_exit(1).code == 6


def test_sigterm_ends_an_idle_supervisor(rig: Rig) -> None:
    pid = rig.executor.supervisor_pid
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid)
    rig.wait_for(ConnectionLoss)
    rig.wait_for(RunInventory)


def test_long_home_path_works(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 30) / ("path" * 30)
    with open_rig(home) as rig:
        rig.start_shell(1, "exit 3")
        assert rig.wait_for_exit(1).code == 3


def test_stale_socket_is_replaced(home: Path) -> None:
    (home / protocol.SOCKET).write_text("")
    with open_rig(home) as rig:
        rig.start(1, ["true"])
        assert rig.wait_for_exit(1).code == 0


def test_full_buffers_in_both_directions_do_not_deadlock(rig: Rig) -> None:
    """Megabytes of orders while nothing is read: the rest is sent when the descriptor reports that there is room."""
    big = {f"NAME_{n}": "x" * 1000 for n in range(1000)}
    orders = [EnvironmentUpload(environment_id=n, variables=big) for n in range(2, 12)]
    rig.executor.send(orders)
    for n in range(1, 101):
        rig.start(n, ["/bin/true"])
    for n in range(1, 101):
        rig.wait_for_exit(n)
    for n in range(1, 101):
        rig.acknowledge(n)
    rig.sync()
    rig.reconnect()
    assert list(rig.inventory.runs) == []


def test_buffered_order_is_sent_without_an_incoming_message(rig: Rig) -> None:
    """The rest of the buffer is sent without waiting for a message."""
    rig.suspend_supervisor()
    rig.executor.send([EnvironmentUpload(environment_id=2, variables={"X": "y" * 5_000_000})])
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    received: list[ExecutorMessage] = []
    while rig.executor._outgoing:
        assert select.select([rig.executor], [], [], TIMEOUT)[0]
        received += rig.executor.receive()
    assert received == []
    assert not select.select([rig.executor], [], [], 0)[0]
    rig.start(1, ["true"])
    assert rig.wait_for_exit(1).code == 0


def test_exits_are_kept_while_the_scheduler_does_not_read(rig: Rig) -> None:
    for n in range(1, 151):
        rig.start_shell(n, "printf '%4000s' x >&2; exit 1")
    for n in range(1, 151):
        end = rig.wait_for_exit(n)
        assert isinstance(end, ExitReport)
        assert len(end.tail) == 4000


def test_supervisor_that_cannot_start_is_reported_with_its_log(home: Path) -> None:
    (home / protocol.JOURNAL).mkdir()
    with pytest.raises(ServiceUnavailable, match=r"(?s)could not be started; see .*supervisor.log.*Is a directory"):
        LocalExecutor(home, 1)


def test_descriptor_is_not_readable_without_a_supervisor(home: Path) -> None:
    """The engine waits on the descriptor: readable without a message, it would make a busy loop."""
    executor = LocalExecutor(home, None)
    (home / protocol.JOURNAL).mkdir()
    try:
        assert executor.receive() == [], "there is no connection without a generation"
        with pytest.raises(ServiceUnavailable):
            executor.connect_as(1)
        with pytest.raises(ServiceUnavailable):
            executor.receive()
        assert select.select([executor.fileno()], [], [], 0)[0] == []
    finally:
        executor.close()


@pytest.fixture
def waiting_executor(rig: Rig) -> Iterator[LocalExecutor]:
    """Executor of a new scheduler whose hello the suspended supervisor has not answered."""
    rig.start_shell(1, "exec sleep 1000")
    rig.wait_for_start(1)
    rig.suspend_supervisor()
    executor = LocalExecutor(rig.home, None, connect_timeout=0.3)
    with pytest.raises(ExecutorNotAnswering, match=rf"pid {rig.executor.supervisor_pid}\) does not answer"):
        executor.connect_as(2)
    yield executor
    executor.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(rig.executor.supervisor_pid, signal.SIGCONT)


def test_silent_supervisor_is_waited_for_once_and_on_one_connection(rig: Rig, waiting_executor: LocalExecutor) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the count is what matters
    started = time.monotonic()
    for _ in range(40):  # more than the backlog of the socket holds
        with pytest.raises(ExecutorNotAnswering):
            waiting_executor.receive()
    assert time.monotonic() - started < TIMEOUT, "no call waits"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert select.select([waiting_executor.fileno()], [], [], 0)[0] == []
    os.kill(rig.executor.supervisor_pid, signal.SIGCONT)
    (inventory,) = _receive_when_available(waiting_executor)
    assert isinstance(inventory, RunInventory)
    assert [report.run for report in inventory.runs] == [1]


def test_successor_of_a_silent_supervisor_is_found(rig: Rig, waiting_executor: LocalExecutor) -> None:
    rig.kill_supervisor()
    (inventory,) = _receive_when_available(waiting_executor)
    assert isinstance(inventory, RunInventory)
    assert [report.run for report in inventory.runs] == [1]
    assert waiting_executor.supervisor_pid != rig.supervisors[0]
    rig.supervisors.append(waiting_executor.supervisor_pid)


def _receive_when_available(executor: LocalExecutor) -> list[ExecutorMessage]:
    """Receive until the supervisor is available."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(ServiceUnavailable):
            return executor.receive()
        select.select([], [], [], 0.02)
    raise AssertionError("no supervisor")


def test_full_socket_backlog_does_not_block(rig: Rig, waiting_executor: LocalExecutor) -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            for _ in range(100):
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                sock.setblocking(False)
                sock.connect(str(rig.home / protocol.SOCKET))
        with pytest.raises(ServiceUnavailable, match="cannot be used"):
            LocalExecutor(rig.home, 3, connect_timeout=0.3)
    assert waiting_executor.supervisor_pid == rig.executor.supervisor_pid


def test_ping_is_answered_while_a_start_hangs(rig: Rig) -> None:
    rig.directory(1).mkdir()
    os.mkfifo(rig.directory(1) / "stdout.log")
    rig.start(1, ["true"])
    rig.send(PingOrder())
    rig.wait_for(Pong)
    reader = os.open(rig.directory(1) / "stdout.log", os.O_RDONLY)
    rig.wait_for_start(1)
    rig.wait_for_exit(1)
    os.close(reader)


def test_missing_home_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="home cannot be opened"):
        LocalExecutor(tmp_path / "nowhere", 1)


def test_supervisor_started_by_a_job_is_not_part_of_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RUN", "run-1")
    monkeypatch.setenv("ROTA_JOB", "job-1")
    with open_rig(home) as rig:
        variables = process.read_environment(rig.executor.supervisor_pid)
        assert not [v for v in variables if v.startswith((b"ROTA_RUN=", b"ROTA_JOB="))]
        rig.start_shell(1, "sleep 1000 & exit 0")
        rig.wait_for_exit(1)
        assert len(rig.supervisors) == 1
