"""Start the scheduler for a command that found none.

It becomes an exec of its own in a session of its own, without the caller's streams, so that neither closing the
terminal nor a pipe that waits for end of file has anything to do with it. Starters race freely: the `flock` on
`scheduler.lock` lets one win, the others' children leave with code 4, and every starter waits for the winner.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from rota.client.ask.scheduler import health
from rota.client.lock import is_held
from rota.client.problem import Broken, NoAnswer, NotRunning
from rota.client.transport import HomeSocket, send
from rota.errors import Conflict, Unavailable
from rota.home import Home

PATIENCE = 10.0
_LOOK_EVERY = 0.02
_TRY_AGAIN_AFTER = 1.0
_SHOWN_LINES = 12
_SHOWN_BYTES = 8192


def start(home: Home, *, patience: float = PATIENCE, command: Sequence[str] | None = None) -> None:
    """Return when the home's scheduler answers; Unavailable with the end of its log if it does not."""
    home.prepare()
    command = command or [sys.executable, "-m", "rota", "serve"]
    begin = _size_of_log(home)
    started = spawned = time.monotonic()
    child = _spawn(home, command)
    was_refused = False
    """Though nobody held the home's lock: who is refused again does not get its store."""
    while not _answers(home):
        now = time.monotonic()
        code = child.poll()
        if code is not None and code >= 0 and (code != Conflict.exit_code or (was_refused and not is_held(home.lock))):
            raise Unavailable(f"the scheduler could not start (exit code {code}){_end_of_log(home, begin)}")
        if code is not None and now - spawned >= _TRY_AGAIN_AFTER:
            # The lock's holder may be one that is just leaving, and a child that was killed can be replaced: nobody
            # else is coming then, so try again now and then.
            was_refused = code >= 0 and not is_held(home.lock)
            begin, spawned = _size_of_log(home), now
            child = _spawn(home, command)
        if now - started >= patience:
            _let_go(child)
            raise Unavailable(
                f"the scheduler does not answer after {patience:g} s; ask again, or see {home.log}"
                f"{_end_of_log(home, begin)}"
            )
        time.sleep(_LOOK_EVERY)
    _let_go(child)


def comes_back(home: Home, *, patience: float = PATIENCE) -> bool:
    """While somebody holds the scheduler's lock he is leaving or just starting: whether he answers in the end."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and is_held(home.lock):
        if _answers(home):
            return True
        time.sleep(_LOOK_EVERY)
    return _answers(home)


def _spawn(home: Home, command: Sequence[str]) -> subprocess.Popen[bytes]:
    # 0600 from its first moment: what jobs and errors say is nobody else's business.
    log = os.open(home.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",  # It must not keep a file system busy, nor depend on a directory that may be removed.
            env=_environment(home),
            start_new_session=True,
        )
    finally:
        os.close(log)


def _environment(home: Home) -> dict[str, str]:
    """The caller's, without what marks a job: a scheduler that a job started is no part of that job's tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return {**kept, "ROTA_HOME": str(home.root)}


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """The scheduler outlives us on purpose; without this Popen would warn about a child that was not waited for."""
    if child.returncode is None:
        child.returncode = 0


def _answers(home: Home) -> bool:
    try:
        with send(HomeSocket(home), health(patience=1.0)) as stream:
            return stream.read().status == 200
    except (NotRunning, Broken, NoAnswer, Unavailable):
        return False


def _size_of_log(home: Home) -> int:
    return home.log.stat().st_size if home.log.exists() else 0


def _end_of_log(home: Home, begin: int) -> str:
    """What this start wrote, its last lines only."""
    try:
        with home.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(begin, size - _SHOWN_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError as error:
        return f"; {home.log} cannot be read: {error.strerror}"
    lines = text.splitlines()[-_SHOWN_LINES:]
    if not lines:
        return f"; it wrote nothing to {home.log}"
    return "\n".join((f"; the end of {home.log}:", *("    " + line for line in lines)))
