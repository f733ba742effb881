"""The threads that make children.

    loop thread ── launch ──► queue ──► spawner threads: directory, log files, vfork + exec
         ▲                                    │
         └── bell (eventfd) ◄── done ◄────────┘

Threads of their own for three reasons. What they start are their children and not the leader thread's, which is
how the leader tells mains from strays (see `process`). An exec that hangs, on a dead mount for instance, delays no
end, no stop and no timeout, and other starts only when there are as many as threads. And whoever makes a child waits
until its program is loaded: with a second one the machine has something to do meanwhile.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH110, PTH113, PTH118, PTH120
from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections import deque
from queue import SimpleQueue

from rota import leftover
from rota.executor.supervisor import logs, process
from rota.executor.supervisor.native import posix_spawn
from rota.executor.supervisor.protocol import HOME_TAG, RUN_TAG, clean, tag
from rota.executor.supervisor.step import Step
from rota.executor.supervisor.workspace import Workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Make = Callable[[list[str], str, dict[str, str], tuple[int, int, int]], int]

_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
)


_CLONE_FS = 0x200
_THREADS = 2


class Launch:
    """Everything needed to make the children of one run, in the order of `Step`."""

    __slots__ = ("_overlay", "_surroundings", "argv", "aside", "cwd", "directory", "skip_if", "workspace")

    def __init__(self, order: dict[str, Any], surroundings: dict[str, str]) -> None:
        self.argv: list[str] = order["argv"]
        self.cwd: str = order["cwd"]
        self.directory: str = order["directory"]
        self.skip_if: str | None = order.get("skip_if")
        workspace = order.get("workspace")
        self.workspace = None if workspace is None else Workspace(workspace)
        self.aside: int | None = order.get("aside")
        self._surroundings = surroundings
        self._overlay: dict[str, str] = order["overlay"]

    @classmethod
    def to_finish(cls, directory: str, workspace: dict[str, Any]) -> Launch:
        """Of a run whose command somebody else has started: only its workspace is left to be seen to."""
        order = {"argv": [], "cwd": "/", "directory": directory, "workspace": workspace, "overlay": {}}
        return cls(order, {})

    def step_after(self, step: Step | None) -> Step:
        """The next one of a run that goes on."""
        if step is None and self.workspace is not None:
            return Step.SET_UP
        return Step.CHECK if step in (None, Step.SET_UP) and self.skip_if is not None else Step.MAIN

    def words(self, step: Step) -> list[str]:
        if step is Step.MAIN:
            return self.argv
        if step is Step.CHECK or self.workspace is None:
            return ["/bin/sh", "-c", self.skip_if or ""]
        # -P: a json.py in the working directory must not become part of it
        return [sys.executable, "-P", "-m", "rota.executor.workspace", *self.workspace.words()]

    def place(self, step: Step) -> str:
        """The working directory."""
        return "/" if step.is_ours else self.cwd

    def variables(self, run: int, home: str, step: Step = Step.MAIN) -> dict[str, str]:
        # The tag is what the tree is found by, so it is set here whatever was sent.
        tags = {HOME_TAG: home, RUN_TAG: tag(run)}
        if step.is_ours:
            return {**os.environ, **tags}
        return {**self._moved(self._surroundings), **self._overlay, **tags}

    def _moved(self, variables: dict[str, str]) -> dict[str, str]:
        return variables if self.workspace is None else self.workspace.without_origin(variables, self.cwd)


class Spawned:
    """What became of a launch: a process, or the reason why there is none."""

    __slots__ = ("error", "is_machine", "pid", "run", "start_time")

    def __init__(
        self, run: int, *, pid: int = 0, start_time: int = 0, error: str = "", is_machine: bool = False
    ) -> None:
        self.run = run
        self.pid = pid
        self.start_time = start_time
        self.error = error
        self.is_machine = is_machine
        """The machine's trouble, not the job's."""


class Spawner:
    def __init__(self, home: str) -> None:
        self._home = home
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._asked: SimpleQueue[tuple[int, Launch, Step]] = SimpleQueue()
        self._done: deque[Spawned] = deque()
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.in_flight = 0
        self._spare = logs.Spare()
        # With the directory a thread takes a umask of its own: the user's, and not one that is set for a moment.
        ready = threading.Barrier(_THREADS + 1)
        for _ in range(_THREADS):
            threading.Thread(target=self._work, args=(ready,), name="spawner", daemon=True).start()
        ready.wait()

    def ask(self, run: int, launch: Launch, step: Step) -> None:
        self.in_flight += 1
        self._asked.put((run, launch, step))

    def collect(self) -> list[Spawned]:
        """What was made since. Called by the loop when the bell rings."""
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            return []
        done = [self._done.popleft() for _ in range(len(self._done))]
        self.in_flight -= len(done)
        return done

    def _work(self, ready: threading.Barrier) -> None:
        make = _make_child if _take_own_directory() else _make_child_slowly
        ready.wait()
        while True:
            run, launch, step = self._asked.get()
            try:
                spawned = self._spawn(make, run, launch, step)
            except OSError as error:
                spawned = Spawned(run, error=explain(error, launch), is_machine=error.errno in _MACHINE)
            except Exception as error:  # noqa: BLE001
                # Whatever it is, this thread must live on and the run must get an answer.
                spawned = Spawned(run, error=f"cannot be started: {clean(str(error) or repr(error))}")
            self._done.append(spawned)
            os.eventfd_write(self.bell, 1)
            if self._asked.empty():
                with contextlib.suppress(OSError):
                    self._spare.make(os.path.dirname(launch.directory))

    def _streams(self, directory: str, step: Step) -> tuple[int, int]:
        """A fresh directory with its two files: the spare one if it can be had, else made now. What is not the main
        process has a file of its own."""
        streams = self._spare.become(directory) if step is Step.MAIN else None
        if streams is not None:
            return streams
        logs.make_directory(directory)
        if step is Step.MAIN:
            return logs.open_streams(directory)
        return logs.open_check(directory) if step is Step.CHECK else logs.open_workspace(directory)

    def _spawn(self, make: Make, run: int, launch: Launch, step: Step) -> Spawned:
        words = launch.words(step)
        if not words:
            raise ValueError("the command is empty")
        if launch.aside is not None:
            leftover.set_aside(launch.directory, launch.aside)
            launch.aside = None  # what its next process finds there is this run's
        stdout, stderr = self._streams(launch.directory, step)
        variables = launch.variables(run, self._home, step)
        try:
            pid = make(words, launch.place(step), variables, (self._null, stdout, stderr))
        finally:
            os.close(stdout)
            if stderr != stdout:
                os.close(stderr)
        found = process.look(pid)  # it cannot be gone: nobody has reaped it
        return Spawned(run, pid=pid, start_time=found.start_time if found else 0)


def _take_own_directory() -> bool:
    """From here on the calling thread's working directory is its own: it can go where a child is to start. Some
    sandboxes do not allow it."""
    return bool(ctypes.CDLL(None).unshare(_CLONE_FS) == 0)


def _make_child(argv: list[str], cwd: str, variables: dict[str, str], streams: tuple[int, int, int]) -> int:
    """`posix_spawn` knows no working directory, hence ours. It takes half of what Popen takes."""
    try:
        os.chdir(cwd)
        return posix_spawn(_find(argv[0], variables), argv, variables, streams)
    except OSError as error:
        # By the names that its author gave, not by where it was found.
        name = cwd if error.filename == cwd else argv[0]
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        os.chdir("/")  # a mount that a job has left can be taken away


def _make_child_slowly(argv: list[str], cwd: str, variables: dict[str, str], streams: tuple[int, int, int]) -> int:
    stdin, stdout, stderr = streams
    child = subprocess.Popen(
        argv, cwd=cwd, env=variables, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    child.returncode = 0  # the loop reaps it: Popen must neither wait nor warn
    return child.pid


def _find(program: str, variables: dict[str, str]) -> str:
    """The first on the child's own search path that can be executed."""
    if "/" in program or "\0" in program:
        return program  # what is wrong with the second is for `posix_spawn` to say
    found = [path for place in os.get_exec_path(variables) if os.path.isfile(path := os.path.join(place, program))]
    for path in found:
        if os.access(path, os.X_OK):
            return path
    number = errno.EACCES if found else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def explain(error: OSError, launch: Launch) -> str:
    """Words a person can act on."""
    program = launch.argv[0] if launch.argv else ""
    if error.filename == launch.cwd and launch.cwd != program:
        return clean(_explain_directory(error, launch.cwd))
    if error.filename is not None and error.filename != program:
        return clean(f"cannot be started: {error.strerror}: {error.filename}")
    match error.errno:
        case errno.ENOENT if "/" in program and os.path.exists(os.path.join(launch.cwd, program)):
            text = f"interpreter not found: the first line of {program} names a program that does not exist"
        case errno.ENOENT:
            text = f"program not found: {program}"
        case errno.EACCES:
            text = f"permission denied: {program} is not executable"
        case errno.ENOEXEC:
            text = f"not a program: {program} has no #! line and is not a binary for this machine"
        case errno.E2BIG:
            text = f"arguments and environment are too long: {program}"
        case errno.EAGAIN:
            text = f"no more processes allowed: {program}"
        case _:
            text = f"cannot be started: {error.strerror or error}: {program}"
    return clean(text)


def _explain_directory(error: OSError, cwd: str) -> str:
    if error.errno == errno.ENOENT:
        return f"working directory does not exist: {cwd}"
    return f"working directory cannot be used: {error.strerror}: {cwd}"
