"""Real supervisor in a temporary home, and functions that wait on descriptors instead of sleeping."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rota.executor.launcher import SupervisorLauncher
from rota.executor.local import LocalExecutor
from rota.executor.port import (
    AcknowledgeOrder,
    EnvironmentUpload,
    ExecutorMessage,
    ExecutorOrder,
    ExitReport,
    RunInventory,
    StartConfirmation,
    StartFailure,
    StartOrder,
    StopOrder,
)
from rota.ids import JobId, RunId
from rota.supervisor import process
from rota.supervisor.protocol import PROTOCOL

TIMEOUT = 20.0
M = TypeVar("M")


def wait_readable(fd: int, deadline: float, description: str) -> None:
    if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise AssertionError(f"timed out waiting for {description}")


def ends_within(pid: int, timeout: float = TIMEOUT) -> bool:
    """Return whether this process, which need not be a child, ends before the timeout."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], timeout)[0])
    finally:
        os.close(fd)


def is_alive(pid: int) -> bool:
    status = process.read_process(pid)
    return status is not None and not status.is_gone


class Fifo:
    """Channel through which a child sends lines to the test, or waits for the test."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Read-write: there is no end of file, and opening does not wait for the other side.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._buffer = b""

    def read_line(self) -> str:
        deadline = time.monotonic() + TIMEOUT
        while b"\n" not in self._buffer:
            wait_readable(self._fd, deadline, f"a line in {self.path.name}")
            self._buffer += os.read(self._fd, 4096)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def read_number(self) -> int:
        return int(self.read_line())

    def release(self) -> None:
        os.write(self._fd, b"go\n")

    def close(self) -> None:
        os.close(self._fd)


class Rig:
    """The scheduler's side of the executor, as the engine uses it."""

    def __init__(self, home: Path, generation: int = 1, *, are_cgroups_enabled: bool = True) -> None:
        self.home = home
        self.are_cgroups_enabled = are_cgroups_enabled
        self.executor = self._make_executor(generation)
        self.received: list[ExecutorMessage] = []
        self._unclaimed: list[ExecutorMessage] = []
        self.supervisors = [self.executor.supervisor_pid]
        self.inventory = self.wait_for(RunInventory)
        self.upload_environment()

    def _make_executor(self, generation: int) -> LocalExecutor:
        return LocalExecutor(self.home, generation, are_cgroups_enabled=lambda: self.are_cgroups_enabled)

    def upload_environment(self) -> None:
        """Upload the environment, as the engine does after every RunInventory."""
        path = os.environ["PATH"]
        self.send(EnvironmentUpload(environment_id=1, variables={"PATH": path, "GREETING": "hello", "SHARED": "below"}))

    def send(self, *orders: ExecutorOrder) -> None:
        self.executor.send(orders)

    def start(self, run: int, argv: Sequence[str], **options: Any) -> None:
        self.send(self.make_order(run, argv, **options))

    def start_shell(self, run: int, script: str, **options: Any) -> None:
        self.start(run, ["sh", "-c", script], **options)

    def make_order(self, run: int, argv: Sequence[str], **options: Any) -> StartOrder:
        options.setdefault("cwd", str(self.home))
        options.setdefault("overlay", {"ROTA_JOB": f"job-{run}"})
        options.setdefault("directory", str(self.directory(run)))
        options.setdefault("environment_id", 1)
        return StartOrder(run=RunId(run), job=JobId(run), argv=argv, **options)

    def directory(self, run: int) -> Path:
        return self.home / "jobs" / f"job-{run}"

    def read_stdout(self, run: int) -> str:
        return (self.directory(run) / "stdout.log").read_text()

    def stop(self, run: int) -> None:
        self.send(StopOrder(run=RunId(run)))

    def acknowledge(self, run: int) -> None:
        self.send(AcknowledgeOrder(run=RunId(run)))

    def wait_for_message(
        self, matches: Callable[[ExecutorMessage], bool], description: str, timeout: float = TIMEOUT
    ) -> ExecutorMessage:
        """Return the first matching message that was not returned before. Other messages are kept."""
        deadline = time.monotonic() + timeout
        checked = 0
        while True:
            for index in range(checked, len(self._unclaimed)):
                if matches(self._unclaimed[index]):
                    return self._unclaimed.pop(index)
            checked = len(self._unclaimed)
            wait_readable(self.executor.fileno(), deadline, f"{description}; received {self.received[-5:]}")
            messages = self.executor.receive()
            self.received += messages
            self._unclaimed += messages
            if self.executor.supervisor_pid not in self.supervisors:
                self.supervisors.append(self.executor.supervisor_pid)

    def wait_for(self, kind: type[M], run: int | None = None) -> M:
        def matches(message: ExecutorMessage) -> bool:
            return isinstance(message, kind) and (run is None or getattr(message, "run", None) == run)

        message = self.wait_for_message(matches, f"{kind.__name__} of {run}")
        assert isinstance(message, kind)
        return message

    def wait_for_start(self, run: int) -> StartConfirmation:
        return self.wait_for(StartConfirmation, run)

    def wait_for_exit(self, run: int) -> ExitReport:
        return self.wait_for(ExitReport, run)

    def wait_for_failure(self, run: int) -> str:
        return self.wait_for(StartFailure, run).error

    def wait_for_end(self, run: int) -> ExecutorMessage:
        return self.wait_for_message(
            lambda m: isinstance(m, ExitReport | StartFailure) and m.run == run, f"the end of {run}"
        )

    def sync(self, run: int = 999_999) -> list[ExecutorMessage]:
        """Wait until the supervisor has processed all orders. Return the messages received meanwhile."""
        before = len(self.received)
        self.start(run, [])
        self.wait_for_failure(run)
        self.acknowledge(run)
        return self.received[before:]

    def kill_supervisor(self) -> None:
        pid = self.executor.supervisor_pid
        os.kill(pid, signal.SIGKILL)
        assert ends_within(pid)

    def suspend_supervisor(self) -> None:
        """Suspend the supervisor until SIGCONT. It is a child, so the kernel reports when it has really stopped."""
        os.kill(self.executor.supervisor_pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.executor.supervisor_pid, os.WSTOPPED)

    def reconnect(self, generation: int = 1) -> None:
        """Reconnect like a scheduler that was killed and started again."""
        self.executor.close()
        self.executor = self._make_executor(generation)
        self.received.clear()
        self._unclaimed.clear()
        self.inventory = self.wait_for(RunInventory)
        self.upload_environment()

    def close(self) -> None:
        """End the runs that the test left behind, through the supervisor, and then the supervisor."""
        with contextlib.suppress(Exception):
            self.reconnect(1_000_000)
            for report in self.inventory.runs:
                self.stop(report.run)
            for report in self.inventory.runs:
                self.wait_for_end(report.run)
                self.acknowledge(report.run)
            self.sync()
        pid = self.executor.supervisor_pid
        self.executor.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not ends_within(pid, 5.0):
            os.kill(pid, signal.SIGKILL)
        for child in {*self.supervisors, pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


class Wire:
    """Raw socket, for messages that the local executor never sends."""

    def __init__(self, home: Path) -> None:
        self._launcher = SupervisorLauncher(home, lambda: True)
        self.sock: socket.socket = self._launcher.connect(time.monotonic() + TIMEOUT)
        self._buffer = b""

    def send(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def send_together(self, *messages: dict[str, Any]) -> None:
        self.sock.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def hello(self, generation: int, protocol: int = PROTOCOL, **fields: Any) -> dict[str, Any]:
        self.send(type="hello", protocol=protocol, generation=generation, version="test", **fields)
        response = self.receive()
        assert response is not None
        return response

    def receive(self) -> dict[str, Any] | None:
        """Return the next message; None when the supervisor has closed the connection."""
        deadline = time.monotonic() + TIMEOUT
        while b"\n" not in self._buffer:
            wait_readable(self.sock.fileno(), deadline, "a line")
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self.sock.close()
        self._launcher.close()


@contextlib.contextmanager
def open_rig(home: Path, *, are_cgroups_enabled: bool = True) -> Iterator[Rig]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "jobs").mkdir(exist_ok=True)
    rig = Rig(home, are_cgroups_enabled=are_cgroups_enabled)
    try:
        yield rig
    finally:
        rig.close()
