"""A real supervisor over a temporary home, and ways to wait that block on descriptors, never on time alone."""

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

from rota.executor.local import LocalExecutor
from rota.executor.port import (
    Accounts,
    Acknowledge,
    Environment,
    Exited,
    FailedToStart,
    Message,
    Order,
    Start,
    Started,
    Stop,
)
from rota.executor.starter import Starter
from rota.executor.supervisor import process
from rota.executor.supervisor.protocol import PROTOCOL
from rota.ids import JobId, RunId

PATIENCE = 20.0
M = TypeVar("M")


def wait_readable(fd: int, deadline: float, what: str) -> None:
    if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        raise AssertionError(f"timed out: {what}")


def ends_within(pid: int, patience: float = PATIENCE) -> bool:
    """Whether this process, which need not be a child, ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], patience)[0])
    finally:
        os.close(fd)


def lives(pid: int) -> bool:
    found = process.look(pid)
    return found is not None and not found.is_gone


class Fifo:
    """How a child tells the test something, or is told to go on."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        # Read-write: never at its end, and opening does not wait for the other side.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""

    def line(self) -> str:
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            wait_readable(self._fd, deadline, f"a line in {self.path.name}")
            self._rest += os.read(self._fd, 4096)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def number(self) -> int:
        return int(self.line())

    def release(self) -> None:
        os.write(self._fd, b"go\n")

    def close(self) -> None:
        os.close(self._fd)


class Rig:
    """The scheduler's side, as the engine would use it."""

    def __init__(self, home: Path, generation: int = 1) -> None:
        self.home = home
        self.executor = LocalExecutor(home, generation)
        self.seen: list[Message] = []
        self._fresh: list[Message] = []
        self.supervisors = [self.executor.supervisor_pid]
        self.accounts = self.wait_for(Accounts)
        self.introduce()

    def introduce(self) -> None:
        """What the engine does after every Accounts."""
        path = os.environ["PATH"]
        self.send(Environment(surroundings=1, variables={"PATH": path, "GREETING": "hello", "SHARED": "below"}))

    def send(self, *orders: Order) -> None:
        self.executor.send(orders)

    def start(self, run: int, argv: Sequence[str], **options: Any) -> None:
        self.send(self.order(run, argv, **options))

    def shell(self, run: int, script: str, **options: Any) -> None:
        self.start(run, ["sh", "-c", script], **options)

    def order(self, run: int, argv: Sequence[str], **options: Any) -> Start:
        options.setdefault("cwd", str(self.home))
        options.setdefault("overlay", {"ROTA_JOB": f"job-{run}"})
        options.setdefault("directory", str(self.directory(run)))
        options.setdefault("surroundings", 1)
        return Start(run=RunId(run), job=JobId(run), argv=argv, **options)

    def directory(self, run: int) -> Path:
        return self.home / "jobs" / f"job-{run}"

    def stdout(self, run: int) -> str:
        return (self.directory(run) / "stdout.log").read_text()

    def stop(self, run: int) -> None:
        self.send(Stop(run=RunId(run)))

    def acknowledge(self, run: int) -> None:
        self.send(Acknowledge(run=RunId(run)))

    def wait_until(self, is_it: Callable[[Message], bool], what: str, patience: float = PATIENCE) -> Message:
        """The first message that fits and was not given out before; the others wait for their turn."""
        deadline = time.monotonic() + patience
        looked_at = 0
        while True:
            for index in range(looked_at, len(self._fresh)):
                if is_it(self._fresh[index]):
                    return self._fresh.pop(index)
            looked_at = len(self._fresh)
            wait_readable(self.executor.fileno(), deadline, f"{what}; seen {self.seen[-5:]}")
            came = self.executor.receive()
            self.seen += came
            self._fresh += came
            if self.executor.supervisor_pid not in self.supervisors:
                self.supervisors.append(self.executor.supervisor_pid)

    def wait_for(self, kind: type[M], run: int | None = None) -> M:
        def is_it(message: Message) -> bool:
            return isinstance(message, kind) and (run is None or getattr(message, "run", None) == run)

        found = self.wait_until(is_it, f"{kind.__name__} of {run}")
        assert isinstance(found, kind)
        return found

    def started(self, run: int) -> Started:
        return self.wait_for(Started, run)

    def exited(self, run: int) -> Exited:
        return self.wait_for(Exited, run)

    def failed(self, run: int) -> str:
        return self.wait_for(FailedToStart, run).error

    def ended(self, run: int) -> Message:
        return self.wait_until(lambda m: isinstance(m, Exited | FailedToStart) and m.run == run, f"the end of {run}")

    def barrier(self, run: int = 999_999) -> list[Message]:
        """Everything the supervisor had to say until now."""
        before = len(self.seen)
        self.start(run, [])
        self.failed(run)
        self.acknowledge(run)
        return self.seen[before:]

    def kill_supervisor(self) -> None:
        pid = self.executor.supervisor_pid
        os.kill(pid, signal.SIGKILL)
        assert ends_within(pid)

    def suspend_supervisor(self) -> None:
        """Until SIGCONT. It is our child, so the kernel says when it has really stopped."""
        os.kill(self.executor.supervisor_pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.executor.supervisor_pid, os.WSTOPPED)

    def reconnect(self, generation: int = 1) -> None:
        """As a scheduler that was killed and started again."""
        self.executor.close()
        self.executor = LocalExecutor(self.home, generation)
        self.seen.clear()
        self._fresh.clear()
        self.accounts = self.wait_for(Accounts)
        self.introduce()

    def close(self) -> None:
        """End what the test left running, through the supervisor, and then the supervisor."""
        with contextlib.suppress(Exception):
            self.reconnect(1_000_000)
            for account in self.accounts.runs:
                self.stop(account.run)
            for account in self.accounts.runs:
                self.ended(account.run)
                self.acknowledge(account.run)
            self.barrier()
        pid = self.executor.supervisor_pid
        self.executor.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if not ends_within(pid, 5.0):
            os.kill(pid, signal.SIGKILL)
        for each in {*self.supervisors, pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each, 0)


class Wire:
    """The bare socket, for what a well-behaved executor never says."""

    def __init__(self, home: Path) -> None:
        self._starter = Starter(home)
        self.sock: socket.socket = self._starter.connect(time.monotonic() + PATIENCE)
        self._rest = b""

    def say(self, **message: Any) -> None:
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def say_at_once(self, *messages: dict[str, Any]) -> None:
        self.sock.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def hello(self, generation: int, protocol: int = PROTOCOL, **more: Any) -> dict[str, Any]:
        self.say(type="hello", protocol=protocol, generation=generation, version="test", **more)
        answer = self.hear()
        assert answer is not None
        return answer

    def hear(self) -> dict[str, Any] | None:
        """The next message; none when the supervisor has closed the connection."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            wait_readable(self.sock.fileno(), deadline, "a line")
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        self.sock.close()
        self._starter.close()


@contextlib.contextmanager
def rig_in(home: Path) -> Iterator[Rig]:
    home.mkdir(parents=True, exist_ok=True)
    (home / "jobs").mkdir(exist_ok=True)
    rig = Rig(home)
    try:
        yield rig
    finally:
        rig.close()
