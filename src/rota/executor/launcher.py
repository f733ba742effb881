"""Launcher of the home's supervisor: connect to a running one or start one, within a bounded time.

The supervisor gets its own exec, so it shares none of the scheduler's memory, descriptors or terminal. It gets its own
session, so a signal that ends the scheduler does not end it. Two launchers may race: the lock admits one supervisor,
and both launchers connect to it.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rota.errors import Conflict, ServiceUnavailable
from rota.supervisor import protocol

_POLL_INTERVAL = 0.1
_MAX_START_FAILURES = 3
_LOG_TAIL_BYTES = 2000


class SupervisorLauncher:
    def __init__(self, home: Path, are_cgroups_enabled: Callable[[], bool]) -> None:
        self._home = home
        self._are_cgroups_enabled = are_cgroups_enabled
        """Return whether a supervisor started at this moment may create cgroups."""
        self._process: subprocess.Popen[bytes] | None = None
        self._descriptor_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        """The limit this process started with. The scheduler may raise its own limit; jobs keep the original one."""

    def connect(self, deadline: float) -> socket.socket:
        """Connect to the supervisor that holds the lock. Raises ServiceUnavailable at the deadline."""
        ready = -1
        failures = 0
        try:
            while True:
                sock = self._try_connect()
                if sock is not None:
                    return sock
                if time.monotonic() >= deadline or failures == _MAX_START_FAILURES:
                    raise ServiceUnavailable(self.with_log_tail("the supervisor could not be started"))
                if ready == -1:
                    ready = self._start_supervisor()
                # Readable once the new supervisor listens or has exited. Bounded, because another supervisor may be
                # ready first.
                poll = select.poll()  # not select(), which supports no descriptor above 1023
                poll.register(ready, select.POLLIN)
                poll.poll(_POLL_INTERVAL * 1000)
                if self._process is not None and self._process.poll() is not None:
                    # Zero: nothing to do. Conflict: another supervisor has the home and will listen soon.
                    failures += self._process.returncode not in (0, Conflict.exit_code)
                    ready = self._close_ready_fd(ready)
                    time.sleep(_POLL_INTERVAL)
        finally:
            self._close_ready_fd(ready)

    def with_log_tail(self, message: str) -> str:
        """Return the message with the end of the supervisor's log."""
        log = self._home / protocol.LOG
        try:
            tail = log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        except OSError:
            tail = ""
        return f"{message}; see {log}" + (f":\n{tail}" if tail else "")

    def close(self) -> None:
        """Forget the supervisor process without ending it."""
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # it outlives this process on purpose: Popen must not warn
        self._process = None

    def _try_connect(self) -> socket.socket | None:
        try:
            directory = os.open(self._home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ServiceUnavailable(f"the home cannot be opened: {error.strerror}: {self._home}") from error
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)  # with a full socket backlog, a blocking connect would wait forever
            # A socket address has at most 107 bytes; through the descriptor a home path of any length fits.
            sock.connect(f"/proc/self/fd/{directory}/{protocol.SOCKET}")
            sock.setblocking(True)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except OSError as error:
            sock.close()
            raise ServiceUnavailable(f"the supervisor's socket cannot be used: {error.strerror}") from error
        finally:
            os.close(directory)
        return sock

    def _start_supervisor(self) -> int:
        """Start a supervisor and return a descriptor that becomes readable when it listens."""
        self.close()
        log = os.open(self._home / protocol.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            ready, write_fd = os.pipe()
        except OSError:
            os.close(log)
            raise
        options = [] if self._are_cgroups_enabled() else [protocol.NO_CGROUPS]
        try:
            self._process = subprocess.Popen(
                # -P: a json.py in the working directory must not be imported
                [sys.executable, "-P", "-m", "rota.supervisor", str(self._home), *options],
                cwd=self._home,
                env=_supervisor_environment(self._home, write_fd),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(write_fd,),
                start_new_session=True,
            )
            if resource.getrlimit(resource.RLIMIT_NOFILE) != self._descriptor_limit:
                # Set in time: the supervisor has no order yet.
                with suppress(ProcessLookupError):
                    resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._descriptor_limit)
        except OSError as error:
            os.close(ready)
            raise ServiceUnavailable(f"the supervisor could not be started: {error}") from error
        finally:
            os.close(write_fd)
            os.close(log)
        return ready

    def _close_ready_fd(self, ready_fd: int) -> int:
        if ready_fd != -1:
            os.close(ready_fd)
        return -1


def _supervisor_environment(home: Path, ready_fd: int) -> dict[str, str]:
    """Return the environment of the supervisor: this process's, without the variables of a run. A scheduler that a job
    started must not make its supervisor part of that job."""
    variables = {name: value for name, value in os.environ.items() if name not in ("ROTA_RUN", "ROTA_JOB")}
    return variables | {protocol.HOME_VARIABLE: str(home), protocol.READY_FD: str(ready_fd)}
