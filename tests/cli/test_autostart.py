"""Real children, started as a command starts the scheduler."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from rota.client.ask import Ask
from rota.client.autostart import start
from rota.client.transport import HomeSocket, send
from rota.errors import Unavailable
from rota.home import Home

SCHEDULER = """
import json, os, socket, sys
home = os.environ["ROTA_HOME"]
listening = socket.socket(socket.AF_UNIX)
listening.bind(home + "/rota.sock")
listening.listen()
facts = {"home": home, "cwd": os.getcwd(), "pid": os.getpid(), "session": os.getsid(0),
         "stdin": os.readlink("/proc/self/fd/0"), "stdout": os.readlink("/proc/self/fd/1")}
body = json.dumps(facts).encode()
while True:
    connection, _ = listening.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    connection.close()
"""


def test_the_scheduler_is_a_process_of_its_own(home: Home) -> None:
    start(home, command=[sys.executable, "-c", SCHEDULER])
    with send(HomeSocket(home), Ask("GET", "/")) as stream:
        facts = stream.read().json()
    os.kill(facts["pid"], signal.SIGKILL)
    os.waitpid(facts["pid"], 0)
    assert facts["session"] == facts["pid"]
    assert (facts["home"], facts["cwd"]) == (str(home.root), "/")
    assert (facts["stdin"], facts["stdout"]) == ("/dev/null", str(home.log))
    assert home.log.stat().st_mode & 0o777 == 0o600


def test_one_that_cannot_start_is_told_at_once_with_the_end_of_its_log(home: Home) -> None:
    home.log.write_text("an old line\n")
    command = [sys.executable, "-c", "import sys; print('port is on fire', file=sys.stderr); sys.exit(7)"]
    with pytest.raises(Unavailable, match="exit code 7") as caught:
        start(home, command=command, patience=600)
    assert "port is on fire" in caught.value.message
    assert "an old line" not in caught.value.message


def test_one_that_lost_the_race_is_not_an_error_of_its_own(home: Home) -> None:
    """Exit code 4: another holds the lock, so its answer is waited for; here none comes."""
    with pytest.raises(Unavailable, match="does not answer after"):
        start(home, command=[sys.executable, "-c", "raise SystemExit(4)"], patience=0.3)


def test_one_that_is_refused_though_nobody_holds_the_lock_is_told_with_its_reason(home: Home) -> None:
    """Another home's scheduler has the store: nobody in this one is coming."""
    with pytest.raises(Unavailable, match="exit code 4") as caught:
        start(home, command=[sys.executable, "-c", "print('the store is taken'); raise SystemExit(4)"], patience=600)
    assert caught.value.message.count("the store is taken") == 1


def test_the_loser_of_the_race_uses_the_winner(home: Home, tmp_path: Path) -> None:
    # The child is both: it leaves the winner behind and exits as a loser does.
    script = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SCHEDULER!r}]).pid); sys.exit(4)"
    start(home, command=[sys.executable, "-c", script])
    os.kill(int(home.log.read_text()), signal.SIGKILL)


def test_a_silent_one_is_given_up_with_its_log(home: Home) -> None:
    script = "import os, signal; print(os.getpid(), 'still reading', flush=True); signal.pause()"
    with pytest.raises(Unavailable) as caught:
        start(home, command=[sys.executable, "-c", script], patience=1.0)
    pid = int(home.log.read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert "still reading" in caught.value.message


def test_one_that_is_refused_while_somebody_holds_the_lock_is_waited_with(home: Home) -> None:
    """Whoever holds it may be the one that everybody waits for."""
    home.lock.touch()
    with home.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="does not answer after"):
            start(home, command=[sys.executable, "-c", "raise SystemExit(4)"], patience=3)
