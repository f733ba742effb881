"""Rota as a person uses it: a real home, real commands, real children. Nothing here waits by sleeping.

A `Rota` is one home with its commands, its socket and, at the end, the certainty that nothing of it lives on.
A `Stage` is where children act: each says what it does through one pipe, so the order of what was said is the
order of what happened, and each waits at a gate of its own until the test lets it go.
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

from e2e.conformity import check, check_said

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds until a test gives up; a machine with three tests on two cores is slow now and then."""


def eventually(look: Callable[[], T | None], patience: float = PATIENCE, *, what: str = "what was waited for") -> T:
    """What `look` sees as soon as it is something. For what cannot tell: a file, a process list."""
    deadline = time.monotonic() + patience
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about in {patience:g} s; last seen: {seen!r}")
        select.select([], [], [], 0.02)
    return seen


def ends_within(pid: int, patience: float = PATIENCE) -> bool:
    """Whether the process, anybody's child, is gone in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], patience)[0])
    finally:
        os.close(descriptor)


def lives(pid: int) -> bool:
    return not ends_within(pid, 0)


def kill(pid: int) -> None:
    """As `kill -9` does, and back only when it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert ends_within(pid), f"{pid} survives SIGKILL"


class Said(NamedTuple):
    """What a command said, on each stream, and how it left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


class Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("rota", timeout=PATIENCE * 2)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # An address has room for 107 bytes, and pytest's directories are long: through a descriptor any length fits.
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def shown(code: int) -> int:
    """An exit code as a shell says it: 128 and its number for who was ended by a signal."""
    return code if code >= 0 else 128 - code


class Rota:
    def __init__(self, home: Path, cwd: Path, *, prefix: Sequence[str] = (), **variables: str) -> None:
        self.home = home
        self.cwd = cwd
        self.socket = home / "rota.sock"
        self.prefix = list(prefix)
        """Put before every command, as `nsenter …`."""
        # Not the test runner's environment: a suite that is itself somebody's job must not know.
        self.env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(cwd),
            "LANG": "C.UTF-8",
            "ROTA_HOME": str(home),
            **variables,
        }
        self.expects_defects = False
        """Whether a traceback in the logs is what the test is about."""

    # Commands.

    def argv(self, *words: str) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "rota", *words]

    def begin(self, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """A command that goes on while the test does something else; end it with `end`."""
        return subprocess.Popen(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**self.env, **(env or {})},
            **{"cwd": self.cwd, "stdout": subprocess.PIPE, **options},
        )

    def end(self, process: subprocess.Popen[bytes]) -> Said:
        out, err = process.communicate(timeout=PATIENCE * 2)
        return Said(shown(process.returncode), out.decode(), err.decode())

    def ask(self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None, **options: Any) -> Said:
        """One command, start to end. Its exit code is checked unless it is None."""
        said = self.end(self.begin(*words, env=env, **options))
        assert code is None or said.code == code, f"rota {' '.join(words)}: {said}"
        return said

    def json(self, *words: str, **options: Any) -> Any:
        said = self.ask("--json", *words, **options).json()
        if options.get("code", 0) == 0:
            check_said(words[0], said)
        return said

    def submit(self, *words: str, **options: Any) -> str:
        """Options, then `--`, then the command; the job's id."""
        said = self.ask("submit", *words, **options)
        assert len(said.lines) == 1
        return said.lines[0]

    def post(self, words: Sequence[str], **fields: Any) -> str:
        """Submit over HTTP, for a tenth of what a command costs; `words` may begin with `--`."""
        command = list(words[1:] if words[0] == "--" else words)
        answer = self.api("POST", "/api/jobs", {"command": command, **fields})
        assert answer.status == 201, answer
        return str(answer.json()["job"]["id"])

    def set_global(self, size: int) -> None:
        assert self.api("PUT", "/api/pools/global", {"size": size}).status == 200

    def wait(self, *jobs: str, code: int | None = 0) -> Said:
        return self.ask("wait", *jobs, code=code)

    def show(self, job: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}").json()
        return shown

    def ended(self, job: str) -> dict[str, Any]:
        """The job when it has ended."""
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}?wait=60").json()
        assert shown["finished_at"] is not None, shown
        return shown

    def leaves(self, job: str, status: str) -> dict[str, Any]:
        """The job as soon as its status is another than this."""
        shown: dict[str, Any] = self.api("GET", f"/api/jobs/{job}?wait=60&seen={status}").json()
        assert shown["status"] != status, shown
        return shown

    def running(self, job: str) -> dict[str, Any]:
        """The job when its child is known to run."""

        def look() -> dict[str, Any] | None:
            shown = self.show(job)
            return shown if shown["status"] == "RUNNING" and shown["pid"] else None

        return eventually(look, what=f"{job} RUNNING")

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, oldest first."""
        listed: list[dict[str, Any]] = self.api("GET", "/api/jobs?limit=1000").json()["jobs"]
        return sorted(listed, key=lambda job: int(job["id"].removeprefix("job-")))

    # The socket.

    def connection(self) -> http.client.HTTPConnection:
        """For an answer that is not read as a whole."""
        return _Connection(self.socket)

    def api(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        connection = _Connection(self.socket)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, target, payload, {key.replace("_", "-"): text for key, text in headers.items()})
            response = connection.getresponse()
            answer = Answer(response.status, response.read())
            check(method, target, answer.status, response.headers, answer.body)
            return answer
        finally:
            connection.close()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api("GET", "/api/scheduler").json()
        return status

    # Processes.

    @property
    def scheduler(self) -> int:
        return int(self.status()["pid"])

    @property
    def supervisor(self) -> int:
        return int(self.status()["supervisor_pid"])

    def start(self) -> int:
        """Be sure that the scheduler runs; its pid."""
        return int(self.json("up")["pid"])

    def crash(self) -> None:
        """`kill -9` of the scheduler."""
        kill(self.scheduler)

    def processes(self) -> dict[int, list[str]]:
        """Everything alive that was started with this home in its environment: pid and arguments."""
        tag = b"ROTA_HOME=" + os.fsencode(self.home)
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):
                if tag in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return found

    def schedulers(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if words[1:4] == ["-m", "rota", "serve"]]

    def close(self) -> None:
        """End all that this home started: first who could start more."""
        for _ in range(10):
            left = self.processes()
            if not left:
                break
            for pid in sorted(left, key=lambda pid: "serve" not in left[pid]):
                kill(pid)
        else:
            raise AssertionError(f"still there: {left}")
        if not self.expects_defects:
            self.assert_no_defects()

    def assert_no_defects(self) -> None:
        for name in ("rota.log", "supervisor.log"):
            with suppress(OSError):
                text = (self.home / name).read_text()
                assert "Traceback" not in text, text
                assert "a defect" not in text, text


_ACTOR = """#!/bin/sh
# NAME: say so, wait at the gate for an exit code, say so, leave with it.
echo "$1 begins" > "{stage}/told"
read -r code < "{stage}/$1.gate"
echo "$1 ends" > "{stage}/told"
exit "${{code:-0}}"
"""

_WALK_ON = """#!/bin/sh
# NAME [CODE]: come and go.
echo "$1 begins" > "{stage}/told"
echo "$1 ends" > "{stage}/told"
exit "${{2:-0}}"
"""


class Stage:
    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.pipe = path / "told"
        """A line written here is heard by the test."""
        os.mkfifo(self.pipe)
        # Read-write: it never ends, whoever comes and goes, and opening it waits for nobody.
        self._told = os.open(self.pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self._actor = self._program("actor", _ACTOR)
        self._walk_on = self._program("walk_on", _WALK_ON)

    def _program(self, name: str, text: str) -> str:
        program = self.path / name
        program.write_text(text.format(stage=self.path))
        program.chmod(0o755)
        return str(program)

    def actor(self, name: str) -> list[str]:
        """A command: it begins, and ends when it is released."""
        self.gate(name)
        return ["--", self._actor, name]

    def walk_on(self, name: str, code: int = 0) -> list[str]:
        """A command that begins and ends at once."""
        return ["--", self._walk_on, name, str(code)]

    def gate(self, name: str) -> Path:
        path = self.path / f"{name}.gate"
        os.mkfifo(path)
        return path

    def release(self, name: str, code: int = 0) -> None:
        """Let it go on. It need not be at its gate yet, but must come."""

        def opened() -> int | None:
            try:
                return os.open(self.path / f"{name}.gate", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return None

        descriptor = eventually(opened, what=f"{name} at its gate")
        os.write(descriptor, f"{code}\n".encode())
        os.close(descriptor)

    def hear(self, count: int = 1) -> list[str]:
        """The next lines that were said."""
        deadline = time.monotonic() + PATIENCE
        while self._rest.count(b"\n") < count:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._told], [], [], left)[0]:
                raise AssertionError(f"silence; heard only {self._rest!r} instead of {count} lines")
            self._rest += os.read(self._told, 65536)
        *lines, self._rest = self._rest.split(b"\n", count)
        return [line.decode() for line in lines]

    def heard(self) -> list[str]:
        """All that was said by now."""
        while select.select([self._told], [], [], 0)[0]:
            self._rest += os.read(self._told, 65536)
        return self.hear(self._rest.count(b"\n"))

    def close(self) -> None:
        os.close(self._told)
