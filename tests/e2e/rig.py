"""End-to-end test rig: a real home, real commands, real child processes. No fixed sleeps.

`Rota` is one home with its commands and its socket; `close` ends every process of the home.
`ChildControl` gives tests control over the processes of jobs. Each process reports its steps through one pipe, so the
order of the lines is the order of events, and waits at its own gate until the test releases it.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tests.e2e.conformance import check_json_output, check_response
from tests.e2e.fork_server import ForkedProcess

T = TypeVar("T")

TIMEOUT = 30.0
"""Seconds until a test fails. Generous, because a machine with more tests than cores is slow at times."""


def eventually(probe: Callable[[], T | None], timeout: float = TIMEOUT, *, description: str = "the condition") -> T:
    """Poll until `probe` returns a true value, and return that value.

    For state that sends no notification: a file, a process list.
    """
    deadline = time.monotonic() + timeout
    while not (value := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{description} not true within {timeout:g} s; last value: {value!r}")
        select.select([], [], [], 0.02)
    return value


def exits_within(pid: int, timeout: float = TIMEOUT) -> bool:
    """Whether the process ends within the timeout. It need not be a child of this process."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout)[0])
    finally:
        os.close(descriptor)


def is_alive(pid: int) -> bool:
    return not exits_within(pid, 0)


def kill(pid: int) -> None:
    """Send SIGKILL and wait until the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert exits_within(pid), f"{pid} survives SIGKILL"


class CommandResult(NamedTuple):
    """Output of a command on each stream, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Response(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("rota", timeout=TIMEOUT * 2)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # A socket address holds at most 107 bytes, and pytest paths are long. A path through a descriptor is short.
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def shell_exit_code(code: int) -> int:
    """Return the exit code as a shell reports it: 128 plus the number of the signal that ended the process."""
    return code if code >= 0 else 128 - code


class Rota:
    def __init__(
        self, home: Path, cwd: Path, *, prefix: Sequence[str] = (), is_forked: bool = False, **variables: str
    ) -> None:
        self.home = home
        self.cwd = cwd
        self.socket = home / "rota.sock"
        self.prefix = list(prefix)
        """Words before every command, for example `nsenter …`."""
        self.is_forked = is_forked
        """Whether commands, and the processes they start, are forks of the fork server instead of executables."""
        # Not the environment of the test runner: the test suite may itself run as a job of Rota.
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(cwd),
            "LANG": "C.UTF-8",
            "ROTA_HOME": str(home),
            **variables,
        }
        self.expects_defects = False
        """Whether the test provokes a traceback in the logs."""

    # Commands.

    def argv(self, *words: str) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "rota", *words]

    def spawn(self, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command in the background. Collect its result with `finish`."""
        popen = ForkedProcess if self.is_forked else subprocess.Popen
        return popen(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            **{"cwd": self.cwd, "stdout": subprocess.PIPE, **options},
        )

    def finish(self, process: subprocess.Popen[bytes]) -> CommandResult:
        out, err = process.communicate(timeout=TIMEOUT * 2)
        return CommandResult(shell_exit_code(process.returncode), out.decode(), err.decode())

    def run(
        self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None, **options: Any
    ) -> CommandResult:
        """Run a command to its end. Check its exit code unless `code` is None."""
        output = self.finish(self.spawn(*words, env=env, **options))
        assert code is None or output.code == code, f"rota {' '.join(words)}: {output}"
        return output

    def json(self, *words: str, **options: Any) -> Any:
        output = self.run("--json", *words, **options).json()
        if options.get("code", 0) == 0:
            check_json_output(words[0], output)
        return output

    def submit(self, *words: str, **options: Any) -> str:
        """Run `rota submit` with options, `--` and the command. Return the id of the job."""
        output = self.run("submit", *words, **options)
        assert len(output.lines) == 1
        return output.lines[0]

    def post_job(self, words: Sequence[str], **fields: Any) -> str:
        """Submit over HTTP, ten times faster than with a command. `words` may begin with `--`."""
        command = list(words[1:] if words[0] == "--" else words)
        response = self.api("POST", "/api/jobs", {"command": command, **fields})
        assert response.status == 201, response
        return str(response.json()["job"]["id"])

    def set_global_size(self, size: int) -> None:
        assert self.api("PUT", "/api/pools/global", {"size": size}).status == 200

    def set_start_delays(self, delays: str) -> None:
        self.run("config", "set", "breaker.start_delays", delays)

    def wait(self, *jobs: str, code: int | None = 0) -> CommandResult:
        return self.run("wait", *jobs, code=code)

    def show(self, job: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}").json()
        return shown

    def wait_for_end(self, job: str) -> dict[str, Any]:
        """Return the job when it has ended."""
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}?wait=60").json()
        assert shown["finished_at"] is not None, shown
        return shown

    def wait_while(self, job: str, status: str) -> dict[str, Any]:
        """Return the job as soon as its status differs from `status`."""
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}?wait=60&last_seen={status}").json()
        assert shown["status"] != status, shown
        return shown

    def wait_for_start(self, job: str) -> dict[str, Any]:
        """Return the job when it is RUNNING and its pid is known."""

        def running_job() -> dict[str, Any] | None:
            shown = self.show(job)
            return shown if shown["status"] == "RUNNING" and shown["pid"] else None

        return eventually(running_job, description=f"{job} RUNNING")

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs, oldest first."""
        listed: list[dict[str, Any]] = self.api("GET", "/api/jobs?limit=1000").json()["jobs"]
        return sorted(listed, key=lambda job: int(job["id"].removeprefix("job-")))

    # The socket.

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection for a response that is not read as a whole."""
        return _Connection(self.socket)

    def api(self, method: str, target: str, body: Any = None, **headers: str) -> Response:
        connection = _Connection(self.socket)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, target, payload, {key.replace("_", "-"): text for key, text in headers.items()})
            response = connection.getresponse()
            answer = Response(response.status, response.read())
            check_response(method, target, answer.status, response.headers, answer.body)
            return answer
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api("GET", "/api/scheduler").json()
        return status

    # Processes.

    @property
    def scheduler_pid(self) -> int:
        return int(self.status()["pid"])

    @property
    def supervisor_pid(self) -> int:
        return int(self.status()["supervisor_pid"])

    def start(self) -> int:
        """Start the scheduler unless it runs. Return its pid."""
        return int(self.json("up")["pid"])

    def crash(self) -> None:
        """Kill the scheduler with SIGKILL."""
        kill(self.scheduler_pid)

    def processes(self) -> dict[int, list[str]]:
        """Return pid and arguments of every live process that has this home in its environment."""
        tag = b"ROTA_HOME=" + os.fsencode(self.home)
        processes = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                if tag in (entry / "environ").read_bytes().split(b"\0"):
                    words = (entry / "cmdline").read_bytes().rstrip(b"\0")  # a fork has padded arguments
                    processes[int(entry.name)] = words.decode(errors="replace").split("\0")
        return processes

    def schedulers(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if words[1:4] == ["-m", "rota", "serve"]]

    def close(self) -> None:
        """Kill every process of this home, the schedulers first because they start others."""
        for _ in range(10):
            processes = self.processes()
            if not processes:
                break
            for pid in sorted(processes, key=lambda pid: "serve" not in processes[pid]):
                kill(pid)
        else:
            raise AssertionError(f"still running: {processes}")
        if not self.expects_defects:
            self.assert_no_defects()

    def assert_no_defects(self) -> None:
        for name in ("rota.log", "supervisor.log"):
            with suppress(OSError):
                text = (self.home / name).read_text()
                assert "Traceback" not in text, text
                assert "a defect" not in text, text
                assert "internal error" not in text, text


_GATED = """#!/bin/sh
# NAME: report the start, wait at the gate for an exit code, report the end, exit with the code.
echo "$1 begins" > "{directory}/events"
read -r code < "{directory}/$1.gate"
echo "$1 ends" > "{directory}/events"
exit "${{code:-0}}"
"""

_IMMEDIATE = """#!/bin/sh
# NAME [CODE]: report the start and the end, exit.
echo "$1 begins" > "{directory}/events"
echo "$1 ends" > "{directory}/events"
exit "${{2:-0}}"
"""


class ChildControl:
    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.pipe = path / "events"
        """The test reads the lines that are written here."""
        os.mkfifo(self.pipe)
        # Read-write: the pipe never reaches its end when writers close it, and opening does not block.
        self._events = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._unread = b""
        self._gated = self._program("gated", _GATED)
        self._immediate = self._program("immediate", _IMMEDIATE)

    def _program(self, name: str, text: str) -> str:
        program = self.path / name
        program.write_text(text.format(directory=self.path))
        program.chmod(0o755)
        return str(program)

    def gated(self, name: str) -> list[str]:
        """Return the arguments of a verb for a command that reports its start and ends when it is released."""
        return ["--", *self.gated_argv(name)]

    def gated_argv(self, name: str) -> list[str]:
        self.make_gate(name)
        return [self._gated, name]

    def immediate(self, name: str, code: int = 0) -> list[str]:
        """Return the arguments of a verb for a command that starts and ends immediately."""
        return ["--", *self.immediate_argv(name, code)]

    def immediate_argv(self, name: str, code: int = 0) -> list[str]:
        return [self._immediate, name, str(code)]

    def make_gate(self, name: str) -> Path:
        path = self.path / f"{name}.gate"
        os.mkfifo(path)
        return path

    def release(self, name: str, code: int = 0) -> None:
        """Open the gate. Waits until the process has reached it."""

        def open_gate() -> int | None:
            try:
                return os.open(self.path / f"{name}.gate", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None

        descriptor = eventually(open_gate, description=f"{name} at its gate")
        os.write(descriptor, f"{code}\n".encode())
        os.close(descriptor)

    def read_lines(self, count: int = 1) -> list[str]:
        """Return the next `count` lines. Waits for them."""
        deadline = time.monotonic() + TIMEOUT
        while self._unread.count(b"\n") < count:
            remaining = max(0.0, deadline - time.monotonic())
            if not select.select([self._events], [], [], remaining)[0]:
                raise AssertionError(f"timed out; read only {self._unread!r} instead of {count} lines")
            self._unread += os.read(self._events, 65536)
        *lines, self._unread = self._unread.split(b"\n", count)
        return [line.decode() for line in lines]

    def read_available(self) -> list[str]:
        """Return the lines written so far, without waiting."""
        while select.select([self._events], [], [], 0)[0]:
            self._unread += os.read(self._events, 65536)
        return self.read_lines(self._unread.count(b"\n"))

    def close(self) -> None:
        os.close(self._events)
