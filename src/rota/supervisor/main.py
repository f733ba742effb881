"""Supervisor process: one per home, from acquiring the lock to the last iteration of the loop.

It holds `supervisor.lock` for life. It exits when it has no live runs and no scheduler; unacknowledged exits are safe
in the journal, and the next supervisor reports them. It ignores SIGINT and SIGHUP, and SIGTERM while a run is live:
jobs are stopped through the scheduler.

While it has live runs and no scheduler, it checks from time to time that its lock file and its socket still exist, and
creates them again. Without the socket no scheduler could connect to the supervisor, nor replace it; without the lock
file a second supervisor could start.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH116, PTH208
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import time
import traceback
from collections.abc import Callable

from rota.supervisor import process, protocol, takeover
from rota.supervisor.cgroup import Cgroups
from rota.supervisor.child_manager import ChildManager
from rota.supervisor.event_loop import EventLoop, Timer
from rota.supervisor.journal import Journal, JournalReplay
from rota.supervisor.log import write_log
from rota.supervisor.server import SupervisorServer
from rota.supervisor.spawn import Spawner
from rota.supervisor.tree import ProcessTree

LOCK_TIMEOUT = 10.0
FIRST_CONNECT_TIMEOUT = 10.0
"""Maximum seconds until the first connection: the scheduler starts the supervisor, then connects."""
RECONNECT_TIMEOUT = 2.0
"""Maximum seconds between two connections: a scheduler that restarts finds the same supervisor."""

SOCKET_CHECK_INTERVAL = 2.0
"""Seconds between two checks of the socket while no scheduler is connected."""

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_CONFLICT_EXIT_CODE = 4


def main(home: str | os.PathLike[str], *options: str) -> int:
    """Run the supervisor of a home. `options`: `protocol.NO_CGROUPS` or nothing."""
    path = os.path.realpath(home)
    lock = _acquire_lock(f"{path}/{protocol.LOCK}")
    if lock is None:
        write_log("another supervisor is running in this home")
        return _CONFLICT_EXIT_CODE
    _prepare_process()
    cgroups = Cgroups("") if protocol.NO_CGROUPS in options else Cgroups.prepare()
    supervisor = Supervisor(path, lock, cgroups)
    _signal_ready()
    supervisor.run()
    cgroups.close()
    return 0


class Supervisor:
    def __init__(self, home: str, lock: int, cgroups: Cgroups) -> None:
        self._home = home
        self._lock = lock
        self._directory = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        boot = process.boot_id()
        journal = Journal(f"{home}/{protocol.JOURNAL}")
        history = JournalReplay()
        history.replay(journal.read())
        self._loop = EventLoop()
        self._spawner = Spawner(home, cgroups)
        tree = ProcessTree(history.runs, home)
        self._child_manager = ChildManager(
            self._loop, journal, self._spawner, history.runs, tree, history.generation, boot
        )
        self._server = SupervisorServer(self._loop, self._child_manager, tree, boot)
        self._is_exiting = False
        self._exit_timer: Timer | None = None
        self._socket_check_timer: Timer | None = None
        self._socket_check_delay = 0.0
        self._last_message = ""
        self._loop.watch(self._spawner.results_fd, self._child_manager.collect_spawned)
        self._signal_fd = _signal_pipe()
        self._loop.watch(self._signal_fd, self._handle_signals)
        takeover.adopt_runs(self._child_manager, tree, self._loop, boot)
        self._server.listen(home)

    def run(self) -> None:
        self._update_exit_timer(FIRST_CONNECT_TIMEOUT)
        while not self._is_exiting:
            for action in self._loop.poll_actions():
                _run_guarded(action)
            _run_guarded(self._server.flush)
            self._update_exit_timer(RECONNECT_TIMEOUT)
            self._update_socket_check()
        self._child_manager.close()
        self._server.close()

    def _update_exit_timer(self, timeout: float) -> None:
        is_needed = self._is_needed()
        if is_needed and self._exit_timer is not None:
            self._exit_timer.cancel()
            self._exit_timer = None
        elif not is_needed and self._exit_timer is None:
            self._exit_timer = self._loop.call_at(time.monotonic() + timeout, self._exit_if_idle)

    def _update_socket_check(self) -> None:
        is_unattended = self._server.scheduler is None and bool(self._child_manager.live_runs)
        if not is_unattended:
            self._socket_check_delay = 0.0  # the first check comes at once, before another scheduler can start
            if self._socket_check_timer is not None:
                self._socket_check_timer.cancel()
                self._socket_check_timer = None
        elif self._socket_check_timer is None:
            at = time.monotonic() + self._socket_check_delay
            self._socket_check_timer = self._loop.call_at(at, self._check_socket)
            self._socket_check_delay = SOCKET_CHECK_INTERVAL

    def _check_socket(self) -> None:
        self._socket_check_timer = None
        try:
            if not self._has_lock() or self._server.is_reachable:
                return
            self._server.listen(self._home)
            message = "the socket was removed; created a new one"
        except OSError as error:
            message = f"the socket was removed, and a new one cannot be created: {error.strerror}"
        if message != self._last_message:
            write_log(message)
        self._last_message = message

    def _has_lock(self) -> bool:
        """Return whether this process holds the lock of the home. A removed lock file is put back, unless the home is
        gone or another supervisor has the lock by now."""
        path = f"{self._home}/{protocol.LOCK}"
        if is_same_file(path, self._lock):
            return True
        lock = try_lock(path) if is_same_file(self._home, self._directory) else None
        if lock is None:
            return False
        os.close(self._lock)
        self._lock = lock
        return True

    def _is_needed(self) -> bool:
        return self._server.scheduler is not None or bool(self._child_manager.live_runs)

    def _exit_if_idle(self) -> None:
        self._is_exiting = not self._is_needed()

    def _handle_signals(self) -> None:
        numbers = os.read(self._signal_fd, 4096)
        self._child_manager.reap()
        if signal.SIGTERM in numbers:
            if self._child_manager.live_runs:
                write_log(
                    f"SIGTERM ignored: {len(self._child_manager.live_runs)} runs live; stop them through the scheduler"
                )
            else:
                self._is_exiting = True


def _run_guarded(action: Callable[[], None]) -> None:
    """Run an action and log its failure: a defect of the supervisor must not cost the children their exit codes."""
    try:
        action()
    except Exception:  # noqa: BLE001
        write_log(traceback.format_exc())
        time.sleep(0.05)  # a failure that repeats at once must not fill the disk


def _acquire_lock(path: str) -> int | None:
    """Acquire the lock, waiting while a predecessor exits. None if it stays locked."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def raise_timeout(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, LOCK_TIMEOUT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except TimeoutError:
        os.close(fd)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return fd


def try_lock(path: str) -> int | None:
    """Return a descriptor of the locked file, created if missing, or None if another process holds the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_same_file(path, fd):
            return fd
    os.close(fd)
    return None


def is_same_file(path: str, fd: int) -> bool:
    """Return whether the path still names the open file. A home that was removed and created again has another lock,
    and perhaps another supervisor."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def _prepare_process() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # children inherit it
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            # Descriptors that the supervisor inherited must not reach the children.
            os.set_inheritable(int(name), int(name) <= 2)
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        write_log("cannot become a subreaper: processes that leave their session may be missed")
    libc.prctl(_PR_SET_NAME, b"rota-supervise", 0, 0, 0)


def _signal_pipe() -> int:
    """Return a descriptor from which signal numbers are read.

    The signals get a handler that does nothing instead of being ignored, because children would inherit that.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _signal_ready() -> None:
    with contextlib.suppress(KeyError, ValueError, OSError):
        os.close(int(os.environ.pop(protocol.READY_FD)))
