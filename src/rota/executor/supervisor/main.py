"""The process itself: one for each home, from its lock to its last turn.

It holds `supervisor.lock` for life. It ends when it has no children and no scheduler; ends that nobody has
acknowledged are safe in the journal, and the next supervisor tells them. SIGINT and SIGHUP are taken and
dropped, as is SIGTERM while anything runs: whoever wants the jobs ended says so to the scheduler.

While it has children and no scheduler it looks now and then whether its socket is still there: where somebody has
removed it, nobody could come to it, nor take its place.
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

from rota.executor.supervisor import orphan, process, protocol
from rota.executor.supervisor.history import History
from rota.executor.supervisor.journal import Journal
from rota.executor.supervisor.keeper import Keeper
from rota.executor.supervisor.log import say
from rota.executor.supervisor.loop import Loop, Timer
from rota.executor.supervisor.server import Server
from rota.executor.supervisor.spawn import Spawner
from rota.executor.supervisor.tree import Tree

LOCK_WAIT = 10.0
FIRST_LINGER = 10.0
"""How long a scheduler may take to come at first: it starts us, then connects."""
LINGER = 2.0
"""How long it may be away: a restart finds the same supervisor."""

LOOK_AT_ADDRESS = 2.0
"""Seconds between two looks at the socket, while a scheduler is missing."""

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_CONFLICT = 4


def main(home: str | os.PathLike[str]) -> int:
    path = os.path.realpath(home)
    lock = _take_lock(f"{path}/{protocol.LOCK}")
    if lock is None:
        say("another supervisor has this home")
        return _CONFLICT
    _prepare_process()
    supervisor = Supervisor(path, lock)
    _say_ready()
    supervisor.run()
    return 0


class Supervisor:
    def __init__(self, home: str, lock: int) -> None:
        self._home = home
        self._lock = lock
        boot = process.boot_id()
        journal = Journal(f"{home}/{protocol.JOURNAL}")
        history = History()
        history.replay(journal.read())
        self._loop = Loop()
        self._spawner = Spawner(home)
        tree = Tree(history.runs, home)
        self._keeper = Keeper(self._loop, journal, self._spawner, history.runs, tree, history.generation, boot)
        self._server = Server(self._loop, self._keeper, tree, boot)
        self._is_over = False
        self._farewell: Timer | None = None
        self._looking: Timer | None = None
        self._said = ""
        self._loop.watch(self._spawner.bell, self._keeper.collect)
        self._signals = _signal_pipe()
        self._loop.watch(self._signals, self._take_signals)
        orphan.take_in(self._keeper, tree, self._loop, boot)
        self._server.listen(home)

    def run(self) -> None:
        self._linger(FIRST_LINGER)
        while not self._is_over:
            for action in self._loop.turn():
                _carefully(action)
            _carefully(self._server.flush)
            self._linger(LINGER)
            self._keep_looking()
        self._keeper.leave()
        self._server.leave()

    def _linger(self, patience: float) -> None:
        is_needed = self._is_needed()
        if is_needed and self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None
        elif not is_needed and self._farewell is None:
            self._farewell = self._loop.at(time.monotonic() + patience, self._leave)

    def _keep_looking(self) -> None:
        is_missed = self._server.scheduler is None and bool(self._keeper.live)
        if not is_missed and self._looking is not None:
            self._looking.cancel()
            self._looking = None
        elif is_missed and self._looking is None:
            self._looking = self._loop.at(time.monotonic() + LOOK_AT_ADDRESS, self._look_at_address)

    def _look_at_address(self) -> None:
        self._looking = None
        if self._server.is_reachable or not is_held_at(f"{self._home}/{protocol.LOCK}", self._lock):
            return
        try:
            self._server.listen(self._home)
            said = "the socket was removed; it is made anew"
        except OSError as error:
            said = f"the socket was removed, and cannot be made anew: {error.strerror}"
        if said != self._said:
            say(said)
        self._said = said

    def _is_needed(self) -> bool:
        return self._server.scheduler is not None or bool(self._keeper.live)

    def _leave(self) -> None:
        self._is_over = not self._is_needed()

    def _take_signals(self) -> None:
        numbers = os.read(self._signals, 4096)
        self._keeper.reap()
        if signal.SIGTERM in numbers:
            if self._keeper.live:
                say(f"SIGTERM ignored: {len(self._keeper.live)} runs live; stop them through the scheduler")
            else:
                self._is_over = True


def _carefully(action: Callable[[], None]) -> None:
    """An error of ours must not cost the children their exit codes: it is logged, and the rest goes on."""
    try:
        action()
    except Exception:  # noqa: BLE001
        say(traceback.format_exc())
        time.sleep(0.05)  # an error that comes back at once must not fill the disk


def _take_lock(path: str) -> int | None:
    """The lock, waited for while a predecessor is ending; none when it stays taken."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def give_up(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, LOCK_WAIT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except TimeoutError:
        os.close(fd)
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return fd


def is_held_at(path: str, lock: int) -> bool:
    """A home that was removed and made anew has another lock there, and perhaps another supervisor."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock))
    except OSError:
        return False


def _prepare_process() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # children inherit it
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.set_inheritable(int(name), int(name) <= 2)  # whatever we were started with is not the children's
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        say("cannot become a subreaper: processes that leave their session may be missed")
    libc.prctl(_PR_SET_NAME, b"rota-supervise", 0, 0, 0)


def _signal_pipe() -> int:
    """A descriptor from which the numbers of signals are read.

    They get a handler that does nothing instead of being ignored, because children would inherit that.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _say_ready() -> None:
    with contextlib.suppress(KeyError, ValueError, OSError):
        os.close(int(os.environ.pop(protocol.READY_FD)))
