"""Finding the home's supervisor, or starting one, within a bounded time.

It gets an exec of its own, so that it has none of the scheduler's memory, descriptors or terminal, and a
session of its own, so that nothing that ends the scheduler ends it. Two starters may race: the lock lets one
supervisor through, and both connect to that.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rota.errors import Conflict, Unavailable
from rota.executor.supervisor import protocol

_LOOK_AGAIN = 0.1
_TRIES = 3
_LOG_END = 2000


class Starter:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        """As we were started with. The scheduler may give itself more; jobs have what they would have had."""

    def connect(self, deadline: float) -> socket.socket:
        """A connection to whoever holds the lock. Unavailable when the time is over."""
        ready = -1
        failures = 0
        try:
            while True:
                sock = self._try()
                if sock is not None:
                    return sock
                if time.monotonic() >= deadline or failures == _TRIES:
                    raise Unavailable(self.explain("the supervisor could not be started"))
                if ready == -1:
                    ready = self._start()
                # Readable once the new one listens or is gone. Not waited for alone: another may come first.
                poll = select.poll()  # not select(), which knows no descriptor beyond 1,023
                poll.register(ready, select.POLLIN)
                poll.poll(_LOOK_AGAIN * 1000)
                if self._process is not None and self._process.poll() is not None:
                    # Zero: it had nothing to do. Conflict: another has the home, and will listen soon.
                    failures += self._process.returncode not in (0, Conflict.exit_code)
                    ready = self._drop(ready)
                    time.sleep(_LOOK_AGAIN)
        finally:
            self._drop(ready)

    def explain(self, what: str) -> str:
        """The error's text with the end of the supervisor's log."""
        log = self._home / protocol.LOG
        try:
            end = log.read_bytes()[-_LOG_END:].decode("utf-8", "replace").strip()
        except OSError:
            end = ""
        return f"{what}; see {log}" + (f":\n{end}" if end else "")

    def close(self) -> None:
        """Let go of the process without ending it."""
        if self._process is not None and self._process.poll() is None:
            self._process.returncode = 0  # it outlives us on purpose: Popen must not warn
        self._process = None

    def _try(self) -> socket.socket | None:
        try:
            directory = os.open(self._home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"the home cannot be opened: {error.strerror}: {self._home}") from error
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # An address has room for 107 bytes; through the descriptor a home of any length fits.
            sock.connect(f"/proc/self/fd/{directory}/{protocol.SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            return None
        except OSError as error:
            sock.close()
            raise Unavailable(f"the supervisor's socket cannot be used: {error.strerror}") from error
        finally:
            os.close(directory)
        return sock

    def _start(self) -> int:
        """Start one; the descriptor that tells when it listens."""
        self.close()
        ready, theirs = os.pipe()
        log = os.open(self._home / protocol.LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                # -P: a json.py in the working directory must not become part of it
                [sys.executable, "-P", "-m", "rota.executor.supervisor", str(self._home)],
                cwd=self._home,
                env=_environment(self._home, theirs),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs,),
                start_new_session=True,
            )
            if resource.getrlimit(resource.RLIMIT_NOFILE) != self._descriptors:  # it has not been asked for a job yet
                with suppress(ProcessLookupError):
                    resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._descriptors)
        except OSError as error:
            os.close(ready)
            raise Unavailable(f"the supervisor could not be started: {error}") from error
        finally:
            os.close(theirs)
            os.close(log)
        return ready

    def _drop(self, ready: int) -> int:
        if ready != -1:
            os.close(ready)
        return -1


def _environment(home: Path, ready: int) -> dict[str, str]:
    """Ours, but not a run's: a scheduler that a job started must not make its supervisor part of that job."""
    variables = {name: value for name, value in os.environ.items() if name not in ("ROTA_RUN", "ROTA_JOB")}
    return variables | {protocol.HOME_TAG: str(home), protocol.READY_FD: str(ready)}
