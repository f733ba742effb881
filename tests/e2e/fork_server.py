"""Processes of Rota without the cost of starting Python: forks of a process that has imported all modules.

Starting Python and importing Rota takes most of the time of a short command or a new scheduler. A fork server does both
once. Everything else is as with the executable: a separate process with the same arguments and environment (in `/proc`
too), streams, working directory, signals and exit status.

    test ── ForkedProcess(argv) ──▶ fork server ── fork ──▶ command, scheduler, supervisor
      ▲                                │  ▲                    │
      └──── pid, then wait status ─────┘  └── ForkedProcess ───┘

A fork server has one thread and no open files, so a fork of it is a clean start. The processes that a fork starts come
from the same server. The server is the parent of all forks, reaps them and forwards their wait status.

Tests of how a process starts and ends use the executable: see the marker `executable`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

_SIZE = struct.Struct("!I")
_NUMBER = struct.Struct("!q")
_PADDING = 1 << 15
"""Bytes of arguments, and of environment variables, that a fork can show in `/proc`."""
_OPTIONS = {"stdin", "stdout", "stderr", "cwd", "env", "start_new_session", "pass_fds"}
_READ_AT_START = ("LANG", "LC_", "PYTHON")
"""Prefixes of the variables that Python reads only while it starts."""
_LOCALE = {"LANG": "C.UTF-8"}
"""Variables that a fork server is started with."""

_address: str | None = None
"""Socket of the fork server that this process uses."""


class ForkedProcess(subprocess.Popen[bytes]):
    """A `Popen` that has the server fork Rota's own programs, and executes everything else."""

    _status: socket.socket | None = None
    """The server sends the wait status of a fork here; None for a process that was executed."""

    def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
        self._is_forkable = not rest and set(options) <= _OPTIONS and _can_fork(args, options)
        self._starts_session = bool(options.get("start_new_session"))
        super().__init__(args, *rest, **options)

    def _execute_child(
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: Any,
        shell: Any,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *rest: Any,
    ) -> None:
        """Override the private method in which `Popen`, with its pipes made, forks and executes."""
        pipes = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        if not self._is_forkable:
            super()._execute_child(  # type: ignore[misc]
                args,
                executable,
                preexec_fn,
                close_fds,
                pass_fds,
                cwd,
                env,
                startupinfo,
                creationflags,
                shell,
                *pipes,
                *rest,
            )
            return
        streams = [number if end == -1 else end for number, end in enumerate((p2cread, c2pwrite, errwrite))]
        request = {
            "argv": args,
            "cwd": str(Path(cwd or ".").absolute()),
            "env": dict(os.environ if env is None else env),
            "starts_session": self._starts_session,
            "descriptors": [0, 1, 2, *pass_fds],
        }
        try:
            self._status = _send(request, [*streams, *pass_fds])
            self.pid = _NUMBER.unpack(self._status.recv(_NUMBER.size, socket.MSG_WAITALL))[0]
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *args: Any, **options: Any) -> int | None:
        if self._status is None:
            polled: int | None = super()._internal_poll(*args, **options)  # type: ignore[misc]
            return polled
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            waited: tuple[int, int] = super()._try_wait(wait_flags)  # type: ignore[misc]
            return waited
        flag = socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else socket.MSG_WAITALL
        try:
            status = self._status.recv(_NUMBER.size, flag)
        except BlockingIOError:
            return 0, 0
        self._status.close()
        return self.pid, _NUMBER.unpack(status)[0]

    def __del__(self, *args: Any, **options: Any) -> None:
        super().__del__(*args, **options)
        if self._status is not None:
            self._status.close()


def _can_fork(args: Any, options: Mapping[str, Any]) -> bool:
    if _address is None or not isinstance(args, list) or _program(args) is None:
        return False
    env: Mapping[str, str] = os.environ if options.get("env") is None else options["env"]
    return (
        Path(options.get("cwd") or ".").is_dir()
        and (args[1:3] != ["-m", "rota"] or args[3:] == ["serve"] or _read_at_start(env) == _LOCALE)
        and len(_joined(args)) < _PADDING
        and len(_joined(f"{name}={text}" for name, text in env.items())) < _PADDING
    )


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how a command reads and prints. Background processes only write a log."""
    return {name: text for name, text in env.items() if name.startswith(_READ_AT_START)}


def _joined(words: Sequence[str] | Iterator[str]) -> bytes:
    """Return arguments or variables in the format of the kernel."""
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _program(argv: list[str]) -> Callable[[], int] | None:
    """Return the function that `python -m` would run. It reads its arguments from `sys.argv`."""
    if argv[:3] == [sys.executable, "-m", "rota"]:
        return _run_command
    if argv[:4] == [sys.executable, "-P", "-m", "rota.supervisor"]:
        return _run_supervisor
    return None


def _run_command() -> int:
    from rota.cli.main import program

    del sys.argv[:2]
    return program()


def _run_supervisor() -> int:
    from rota.supervisor.main import main

    return main(*sys.argv[4:])


def _send(request: Mapping[str, Any], descriptors: list[int]) -> socket.socket:
    payload = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    assert _address is not None
    connection.connect(_address)
    socket.send_fds(connection, [_SIZE.pack(len(payload))], descriptors)
    connection.sendall(payload)
    return connection


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, 16)
    payload = connection.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL)
    return json.loads(payload), list(descriptors)


@contextmanager
def fork_server() -> Iterator[None]:
    """Fork instead of execute, for as long as the block lasts."""
    global _address
    with tempfile.TemporaryDirectory(prefix="rota-fork-") as directory:
        address = f"{directory}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address)
            listener.listen(64)
            hold_read, hold = os.pipe()
            server = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno()), str(hold_read), address, "-" * _PADDING],
                env={**_LOCALE, "PATH": os.defpath, "PADDING": "-" * _PADDING},
                stdin=subprocess.DEVNULL,
                cwd="/",
                pass_fds=(listener.fileno(), hold_read),
            )
            os.close(hold_read)
        _address = address
        try:
            yield
        finally:
            _address = None
            os.close(hold)
            server.wait()


# The server.


def _serve(listener: socket.socket, hold: int) -> Callable[[], NoReturn]:
    """Fork on request until the pipe is closed. Return in each fork the function that it has to call."""
    children: dict[int, socket.socket] = {}
    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    # A selector is part of a reference cycle: if the garbage collector freed it, a fork would close a reused number.
    with selectors.DefaultSelector() as selector:
        for descriptor in (listener.fileno(), hold, wakeup_read):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if hold in ready:
                os._exit(0)
            if wakeup_read in ready:
                os.read(wakeup_read, 4096)
                _reap(children)
            if listener.fileno() in ready:
                connection, _ = listener.accept()
                request, descriptors = _receive(connection)
                pid = os.fork()
                if pid == 0:
                    return lambda: _become(request, descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                children[pid] = connection
                with suppress(OSError):  # its client may be gone
                    connection.sendall(_NUMBER.pack(pid))


def _reap(children: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with suppress(OSError), children.pop(pid) as connection:
                connection.sendall(_NUMBER.pack(status))


def _become(request: Mapping[str, Any], descriptors: list[int]) -> NoReturn:
    """Make this fork the process that was requested, run it and exit. The interpreter handles its exceptions."""
    argv, variables = request["argv"], request["env"]
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _place_descriptors(descriptors, request["descriptors"])
    if request["starts_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    _write_proc_memory(argv, variables)
    _open_streams()
    if "-P" not in argv[:2]:
        sys.path.insert(0, request["cwd"])
    sys.argv[:] = argv
    subprocess.Popen = ForkedProcess  # type: ignore[misc, assignment]
    gc.enable()
    run = _program(argv)
    assert run is not None
    _exit(run())


def _place_descriptors(descriptors: list[int], numbers: list[int]) -> None:
    """Give each descriptor its number, the first three among them, and close all others."""
    above = max([*descriptors, *numbers]) + 1
    moved = [os.dup2(descriptor, above + index) for index, descriptor in enumerate(descriptors)]
    for source, number in zip(moved, numbers, strict=True):
        os.dup2(source, number)
    begin = 3
    for number in sorted(numbers)[3:]:
        os.closerange(begin, number)
        begin = number + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))


def _write_proc_memory(argv: list[str], variables: Mapping[str, str]) -> None:
    """Write arguments and variables to the memory that `/proc` shows, over those of the server."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    arguments_begin, arguments_end, variables_begin, variables_end = map(int, fields[45:49])
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    os.pwrite(memory, _joined(argv).ljust(arguments_end - arguments_begin, b"\0"), arguments_begin)
    environment = _joined(f"{name}={text}" for name, text in variables.items())
    os.pwrite(memory, environment.ljust(variables_end - variables_begin, b"\0"), variables_begin)
    os.close(memory)


_kept_streams: list[object] = []
"""Streams of the server: they would close the descriptors of a fork's streams when they are freed."""


def _open_streams() -> None:
    """Open the three streams as Python does when it starts."""
    _kept_streams.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = _stream(0, "r", sys.stdin)
    sys.stdout = _stream(1, "w", sys.stdout)
    sys.stderr = _stream(2, "w", sys.stderr, buffering=1)


def _stream(number: int, mode: str, example: Any, *, buffering: int = -1) -> Any:
    return os.fdopen(number, mode, buffering, encoding=example.encoding, errors=example.errors, closefd=False)


def _exit(code: int) -> NoReturn:
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = 120
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _import_all() -> None:
    """Import every module that a command, a scheduler or a supervisor may import."""
    import rota

    for module in pkgutil.walk_packages(rota.__path__, "rota."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    del sys.path[0]  # the directory of this file
    _address = sys.argv[3]
    gc.disable()
    _import_all()
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))()
