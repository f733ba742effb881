"""Start of the scheduler by a command that found none.

The scheduler runs in its own process and session, without the caller's streams, so that neither a closed terminal nor a
pipe that waits for end of file affects it. Several starters can race: the `flock` on `scheduler.lock` lets one win, the
children of the others exit with code 4, and every starter waits for the winner.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from rota.client.problem import ConnectionBroken, NotRunning, ResponseTimeout
from rota.client.requests.control import get_health
from rota.client.transport import HomeSocket, send
from rota.errors import Conflict, ServiceUnavailable
from rota.home import UNKNOWN_PID, Home, holder_pid, is_held

START_TIMEOUT = 10.0
_POLL_INTERVAL = 0.02
_RESPAWN_DELAY = 1.0
_NOTICE_DELAY = 2.0
_MAX_LOG_LINES = 12
_MAX_LOG_BYTES = 8192


def start(
    home: Home, *, timeout: float = START_TIMEOUT, command: Sequence[str] | None = None, options: Sequence[str] = ()
) -> bool:
    """Start the scheduler, and return whether the one that answers is the one started here. `options` are options of
    `rota serve`.

    If no scheduler answers in time, raise ServiceUnavailable with the end of its log.
    """
    home.prepare()
    command = command or [sys.executable, "-m", "rota", "serve", *options]
    begin = _log_size(home)
    started = spawned = time.monotonic()
    child = _spawn(home, command)
    was_refused = (
        False  # The child was refused although the home's lock was free. A second time it is the store's lock.
    )
    while not _is_responding(home):
        now = time.monotonic()
        code = child.poll()
        if code is not None and code >= 0 and (code != Conflict.exit_code or (was_refused and not is_held(home.lock))):
            raise ServiceUnavailable(f"the scheduler could not start (exit code {code}){_log_tail(home, begin)}")
        if code is not None and now - spawned >= _RESPAWN_DELAY:
            # The holder of the lock may be shutting down, or the child was killed. No other scheduler is starting then,
            # so start another child from time to time.
            was_refused = code >= 0 and not is_held(home.lock)
            begin, spawned = _log_size(home), now
            child = _spawn(home, command)
        if now - started >= timeout:
            _detach(child)
            raise ServiceUnavailable(
                f"the scheduler does not answer after {timeout:g} s; try again, or see {home.log}"
                f"{_log_tail(home, begin)}"
            )
        time.sleep(_POLL_INTERVAL)
    # A running scheduler may answer before the child finds its lock held.
    is_ours = child.poll() is None and holder_pid(home.lock) in (str(child.pid), UNKNOWN_PID)
    _detach(child)
    return is_ours


def wait_until_running(
    home: Home, *, timeout: float = START_TIMEOUT, notify: Callable[[str], None] | None = None
) -> bool:
    """Return whether the process that holds the scheduler's lock, which is starting or stopping, answers in the end.
    `notify` is called with a notice if that takes long."""
    began = time.monotonic()
    while time.monotonic() < began + timeout and is_held(home.lock):
        if _is_responding(home):
            return True
        if notify is not None and time.monotonic() >= began + _NOTICE_DELAY:
            notify(f"the scheduler (pid {holder_pid(home.lock)}) does not listen on {home.socket}; waiting for it")
            notify = None
        time.sleep(_POLL_INTERVAL)
    return _is_responding(home)


def make_unreachable_error(home: Home) -> ServiceUnavailable | None:
    """Return the error for a scheduler that holds its lock and does not listen, or `None` if there is no scheduler."""
    if not is_held(home.lock):
        return None
    pid = holder_pid(home.lock)
    return ServiceUnavailable(
        f"the scheduler (pid {pid}) is running, but its socket {home.socket} cannot be reached; see {home.log},"
        " and remove any other file at the path of the socket"
    )


def _spawn(home: Home, command: Sequence[str]) -> subprocess.Popen[bytes]:
    # Created with mode 0600: the log can contain secrets from jobs and errors.
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",  # does not keep a file system busy or depend on a directory that may be removed
            env=_scheduler_environment(home),
            start_new_session=True,
        )
    finally:
        os.close(log)


def _scheduler_environment(home: Home) -> dict[str, str]:
    """Return the caller's environment without the variables of a job: a scheduler that a job starts does not belong to
    that job."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return {**environment, "ROTA_HOME": str(home.root)}


def _detach(child: subprocess.Popen[bytes]) -> None:
    """Mark the child as finished. The scheduler outlives this process; otherwise Popen warns about a child that was not
    waited for."""
    if child.returncode is None:
        child.returncode = 0


def _is_responding(home: Home) -> bool:
    try:
        with send(HomeSocket(home), get_health(timeout=1.0)) as stream:
            return stream.read().status == 200
    except (NotRunning, ConnectionBroken, ResponseTimeout, ServiceUnavailable):
        return False


def _log_size(home: Home) -> int:
    return home.log.stat().st_size if home.log.exists() else 0


def _log_tail(home: Home, start_offset: int) -> str:
    """Return the last lines that this start wrote to the log."""
    try:
        with home.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(start_offset, size - _MAX_LOG_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError as error:
        return f"; {home.log} cannot be read: {error.strerror}"
    lines = text.splitlines()[-_MAX_LOG_LINES:]
    if not lines:
        return f"; it wrote nothing to {home.log}"
    return "\n".join((f"; the end of {home.log}:", *("    " + line for line in lines)))
