"""Creation of the processes of a run, one for each of its steps, by threads.

    loop thread ── launch ──► queue ──► spawner threads: directory, log files, vfork + exec
         ▲                                    │
         └── eventfd ◄──── results ◄──────────┘

There are three reasons for separate threads. Their children are not children of the thread group leader, which is how
the leader distinguishes main processes from strays (see `process`). An exec that hangs, for example on a dead mount,
delays no exit, stop or timeout, and delays other starts only when all threads hang. And a thread that creates a child
waits until its program is loaded: a second thread uses the machine meanwhile.

Children are created by `posix_spawn` of the C library. It returns when the child has completed its exec: most of a
millisecond on a busy machine, and forever on a dead mount. Python's own `os.posix_spawn` blocks every other thread of
the process meanwhile; a call through ctypes does not.
"""

# ruff: noqa: PTH110, PTH113, PTH118, PTH120

from __future__ import annotations

import contextlib
import ctypes
import enum
import errno
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

from rota import job_files
from rota.supervisor import log_files, process
from rota.supervisor.cgroup import Cgroups
from rota.supervisor.log import write_log
from rota.supervisor.protocol import HOME_VARIABLE, RUN_VARIABLE, replace_invalid_utf8, run_tag
from rota.supervisor.workspace import RunWorkspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    SpawnChild = Callable[[list[str], str, dict[str, str], tuple[int, int, int]], int]

_THREAD_COUNT = 2
_MACHINE_ERRNOS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
)
_CLONE_FS = 0x200
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
_STRUCT_BYTES = 1024
"""Buffer size for an opaque struct of the C library: the largest has 336 bytes."""
_PYTHON_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and children must not."""

_libc = ctypes.CDLL(None)


class RunStep(enum.Enum):
    """Step of a run: one process each, in this order. Most runs have only the main one."""

    SET_UP = "set up the workspace, if the run has one"
    CHECK = "run `skip_if`, if the run has one"
    MAIN = "run the command"
    FINISH = "create the patch, and remove the worktree if that is safe"

    @property
    def is_internal(self) -> bool:
        """Return whether the step belongs to the supervisor and not to the user: before or after everything the job
        does."""
        return self is RunStep.SET_UP or self is RunStep.FINISH

    @property
    def is_before_main(self) -> bool:
        return self is RunStep.SET_UP or self is RunStep.CHECK


class RunLaunch:
    """Parameters of all processes of one run, in the order of `RunStep`."""

    __slots__ = (
        "_environment",
        "_overlay",
        "argv",
        "cwd",
        "directory",
        "is_trial",
        "skip_if",
        "superseded_run",
        "workspace",
    )

    def __init__(self, order: dict[str, Any], environment: dict[str, str]) -> None:
        self.argv: list[str] = order["argv"]
        self.cwd: str = order["cwd"]
        self.directory: str = order["directory"]
        self.skip_if: str | None = order.get("skip_if")
        workspace = order.get("workspace")
        self.workspace = None if workspace is None else RunWorkspace(workspace)
        self.superseded_run: int | None = order.get("superseded_run")
        self.is_trial: bool = order.get("is_trial", False)
        self._environment = environment
        self._overlay: dict[str, str] = order["overlay"]

    @classmethod
    def for_finish(cls, directory: str, workspace: dict[str, Any]) -> RunLaunch:
        """Return the launch of a run whose command another supervisor started: only its workspace remains to be
        finished."""
        order = {"argv": [], "cwd": "/", "directory": directory, "workspace": workspace, "overlay": {}}
        return cls(order, {})

    def next_step(self, step: RunStep | None) -> RunStep:
        """Return the step after `step` of a run that continues."""
        if step is None and self.workspace is not None:
            return RunStep.SET_UP
        return RunStep.CHECK if step in (None, RunStep.SET_UP) and self.skip_if is not None else RunStep.MAIN

    def step_argv(self, step: RunStep) -> list[str]:
        if step is RunStep.MAIN:
            return self.argv
        if step is RunStep.CHECK or self.workspace is None:
            return ["/bin/sh", "-c", self.skip_if or ""]
        # -P: a json.py in the working directory must not be imported
        return [sys.executable, "-P", "-m", "rota.worktrees", *self.workspace.arguments()]

    def step_directory(self, step: RunStep) -> str:
        """Return the working directory."""
        return "/" if step.is_internal else self.cwd

    def step_environment(self, run: int, home: str, step: RunStep = RunStep.MAIN) -> dict[str, str]:
        # The tag identifies the tree, so it overrides whatever the order contains.
        tags = {HOME_VARIABLE: home, RUN_VARIABLE: run_tag(run)}
        if step.is_internal:
            return {**os.environ, **tags}
        return {**self._without_git_variables(self._environment), **self._overlay, **tags}

    def _without_git_variables(self, variables: dict[str, str]) -> dict[str, str]:
        return variables if self.workspace is None else self.workspace.without_git_variables(variables, self.cwd)


class SpawnResult:
    """Result of a launch: a process, or the error that prevented one."""

    __slots__ = ("error", "has_cgroup", "is_machine_failure", "pid", "run", "start_time")

    def __init__(
        self,
        run: int,
        *,
        pid: int = 0,
        start_time: int = 0,
        has_cgroup: bool = True,
        error: str = "",
        is_machine_failure: bool = False,
    ) -> None:
        self.run = run
        self.pid = pid
        self.start_time = start_time
        self.has_cgroup = has_cgroup
        """False if the process should be in the cgroup of its run and is not."""
        self.error = error
        self.is_machine_failure = is_machine_failure
        """Whether the machine is at fault, and not the job."""


class UnusableHome(Exception):
    """Error raised when a directory of the home that every start needs is unusable."""


class Spawner:
    """Threads that create children, used by the loop thread."""

    def __init__(self, home: str, cgroups: Cgroups) -> None:
        self._home = home
        self.cgroups = cgroups
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._requests: SimpleQueue[tuple[int, RunLaunch, RunStep]] = SimpleQueue()
        self._results: deque[SpawnResult] = deque()
        self.results_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.in_flight = 0
        self._spare_directory = log_files.SpareDirectory()
        # A thread with its own directory also has its own umask: the user's, unaffected by a temporary umask of the
        # loop.
        ready = threading.Barrier(_THREAD_COUNT + 1)
        for _ in range(_THREAD_COUNT):
            threading.Thread(target=self._run_thread, args=(ready,), name="spawner", daemon=True).start()
        ready.wait()

    def submit(self, run: int, launch: RunLaunch, step: RunStep) -> None:
        self.in_flight += 1
        self._requests.put((run, launch, step))

    def collect_results(self) -> list[SpawnResult]:
        """Return the results since the last call. The loop calls it when the eventfd is readable."""
        try:
            os.eventfd_read(self.results_fd)
        except BlockingIOError:
            return []
        results = [self._results.popleft() for _ in range(len(self._results))]
        self.in_flight -= len(results)
        return results

    def _run_thread(self, ready: threading.Barrier) -> None:
        spawn_child = _spawn_child if _unshare_directory() else _spawn_child_with_popen
        ready.wait()
        while True:
            run, launch, step = self._requests.get()
            try:
                result = self._spawn(spawn_child, run, launch, step)
            except UnusableHome as error:
                result = SpawnResult(run, error=replace_invalid_utf8(str(error)), is_machine_failure=True)
            except OSError as error:
                result = SpawnResult(
                    run, error=describe_spawn_error(error, launch), is_machine_failure=error.errno in _MACHINE_ERRNOS
                )
            except Exception as error:  # noqa: BLE001
                # Whatever the error, the thread must survive and the run must get an answer.
                result = SpawnResult(run, error=f"cannot be started: {replace_invalid_utf8(str(error) or repr(error))}")
            self._results.append(result)
            os.eventfd_write(self.results_fd, 1)
            if self._requests.empty():
                with contextlib.suppress(OSError):
                    self._spare_directory.prepare(os.path.dirname(launch.directory))

    def _check_home(self) -> None:
        """Refuse a trial start while a direct execution or a job could not start: both are held until then."""
        for directory in (f"{self._home}/jobs", f"{self._home}/reservations"):
            reason = job_files.unusable_reason(directory) if os.path.lexists(directory) else None
            if reason is not None:
                raise UnusableHome(reason)

    def _open_step_files(self, launch: RunLaunch, step: RunStep) -> tuple[int, int]:
        """Open the files of this step. An unusable parent directory is a failure of the scheduler's home; if only the
        job's own directory is unusable, the start of the job fails."""
        try:
            if launch.superseded_run is not None:
                job_files.archive_run_files(launch.directory, launch.superseded_run)
                launch.superseded_run = None  # its next process must keep the files of this run
            return self._open_step_streams(launch.directory, step)
        except OSError as error:
            reason = job_files.unusable_reason(os.path.dirname(launch.directory))
            if reason is None:
                raise
            raise UnusableHome(reason) from error

    def _open_step_streams(self, directory: str, step: RunStep) -> tuple[int, int]:
        """Open the two streams in a new directory: the spare one if available, otherwise one created now. Only the main
        process writes to stdout.log and stderr.log."""
        streams = self._spare_directory.rename_to(directory) if step is RunStep.MAIN else None
        if streams is not None:
            return streams
        log_files.make_directory(directory)
        if step is RunStep.MAIN:
            return log_files.open_streams(directory)
        return log_files.open_skip_if(directory) if step is RunStep.CHECK else log_files.open_workspace(directory)

    def _spawn(self, spawn_child: SpawnChild, run: int, launch: RunLaunch, step: RunStep) -> SpawnResult:
        argv = launch.step_argv(step)
        if not argv:
            raise ValueError("the command is empty")
        if launch.is_trial:
            self._check_home()
        stdout, stderr = self._open_step_files(launch, step)
        variables = launch.step_environment(run, self._home, step)
        try:
            with self._enter_cgroup(run, step) as has_cgroup:
                pid = spawn_child(argv, launch.step_directory(step), variables, (self._null, stdout, stderr))
        finally:
            os.close(stdout)
            if stderr != stdout:
                os.close(stderr)
        child = process.read_process(pid)  # it exists: it is not reaped yet
        return SpawnResult(run, pid=pid, start_time=child.start_time if child else 0, has_cgroup=has_cgroup)

    @contextlib.contextmanager
    def _enter_cgroup(self, run: int, step: RunStep) -> Iterator[bool]:
        """Create children in the run's cgroup inside this context. Yields False, and the run gets none, if that fails.
        The step that finishes a workspace needs none: the supervisor that started the run may be gone."""
        if not self.cgroups.is_enabled or step is RunStep.FINISH:
            yield True
            return
        try:
            self.cgroups.enter(run)
        except OSError as error:
            write_log(f"{run_tag(run)} has no cgroup: {error.strerror}: {error.filename}")
            yield False
            return
        try:
            yield True
        finally:
            try:
                self.cgroups.leave()
            except OSError as error:  # the child exists, so its pid must not be lost with this error
                write_log(
                    f"a spawner thread stays in the cgroup of {run_tag(run)} until its next start: {error.strerror}"
                )


def _unshare_directory() -> bool:
    """Give the calling thread its own working directory, so that it can change to the directory of a child. Some
    sandboxes do not allow it."""
    return bool(_libc.unshare(_CLONE_FS) == 0)


def _spawn_child(argv: list[str], cwd: str, variables: dict[str, str], streams: tuple[int, int, int]) -> int:
    """Start a child with `posix_spawn`, which has no parameter for the working directory: the thread changes its own.
    It takes half the time of Popen."""
    try:
        os.chdir(cwd)
        return posix_spawn(_find_program(argv[0], variables), argv, variables, streams)
    except OSError as error:
        # Report the names of the command, not the resolved path.
        name = cwd if error.filename == cwd else argv[0]
        raise OSError(error.errno, error.strerror, name) from None
    finally:
        os.chdir("/")  # so that a mount that a job has left can be unmounted


def _spawn_child_with_popen(argv: list[str], cwd: str, variables: dict[str, str], streams: tuple[int, int, int]) -> int:
    stdin, stdout, stderr = streams
    child = subprocess.Popen(
        argv, cwd=cwd, env=variables, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
    child.returncode = 0  # the loop reaps it: Popen must neither wait nor warn
    return child.pid


def _find_program(program: str, variables: dict[str, str]) -> str:
    """Return the first executable match on the child's own search path."""
    if "/" in program or "\0" in program:
        return program  # `posix_spawn` reports the null byte
    directories = os.get_exec_path(variables)
    matches = [path for directory in directories if os.path.isfile(path := os.path.join(directory, program))]
    for path in matches:
        if os.access(path, os.X_OK):
            return path
    number = errno.EACCES if matches else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def describe_spawn_error(error: OSError, launch: RunLaunch) -> str:
    """Describe the failure in terms the user can act on."""
    program = launch.argv[0] if launch.argv else ""
    if error.filename == launch.cwd and launch.cwd != program:
        return replace_invalid_utf8(_describe_directory_error(error, launch.cwd))
    if error.filename is not None and error.filename != program:
        return replace_invalid_utf8(f"cannot be started: {error.strerror}: {error.filename}")
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
    return replace_invalid_utf8(text)


def _describe_directory_error(error: OSError, cwd: str) -> str:
    if error.errno == errno.ENOENT:
        return f"working directory does not exist: {cwd}"
    return f"working directory cannot be used: {error.strerror}: {cwd}"


def posix_spawn(path: str, argv: Sequence[str], variables: dict[str, str], streams: Sequence[int]) -> int:
    """Start a child in its own session, in the calling thread's directory, with these descriptors as 0, 1 and 2. Return
    its pid."""
    if any(not name or "=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    program, words = _encode_argument(path), _encode_arguments(argv)
    environment = _encode_arguments(f"{name}={value}" for name, value in variables.items())
    pid = ctypes.c_int()
    actions = ctypes.create_string_buffer(_STRUCT_BYTES)
    _raise_errno(_libc.posix_spawn_file_actions_init(actions))
    try:
        for number, fd in enumerate(streams):
            _raise_errno(_libc.posix_spawn_file_actions_adddup2(actions, fd, number))
        _raise_errno(_libc.posix_spawn(ctypes.byref(pid), program, actions, _ATTRIBUTES, words, environment))
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)
    return pid.value


def _encode_argument(argument: str) -> bytes:
    text = os.fsencode(argument)
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return text


def _encode_arguments(arguments: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    texts = [*map(_encode_argument, arguments), None]
    return (ctypes.c_char_p * len(texts))(*texts)


def _make_attributes() -> ctypes.Array[ctypes.c_char]:
    """Return spawn attributes: a new session, no signal blocked, none ignored because of Python."""
    attributes, signals = ctypes.create_string_buffer(_STRUCT_BYTES), ctypes.create_string_buffer(_STRUCT_BYTES)
    _raise_errno(_libc.posix_spawnattr_init(attributes))
    _libc.sigemptyset(signals)
    _raise_errno(_libc.posix_spawnattr_setsigmask(attributes, signals))
    for number in _PYTHON_IGNORED_SIGNALS:
        _libc.sigaddset(signals, int(number))
    _raise_errno(_libc.posix_spawnattr_setsigdefault(attributes, signals))
    _raise_errno(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)))
    return attributes


def _raise_errno(error_number: int) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number))


_ATTRIBUTES = _make_attributes()
