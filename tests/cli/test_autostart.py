"""Autostart with real child processes, as a command starts the scheduler."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rota.client.autostart import start
from rota.client.requests import Request
from rota.client.transport import HomeSocket, send
from rota.errors import ServiceUnavailable
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


def test_scheduler_starts_as_separate_session(home: Home) -> None:
    start(home, command=[sys.executable, "-c", SCHEDULER])
    with send(HomeSocket(home), Request("GET", "/")) as stream:
        facts = stream.read().json()
    os.kill(facts["pid"], signal.SIGKILL)
    os.waitpid(facts["pid"], 0)
    assert facts["session"] == facts["pid"]
    assert (facts["home"], facts["cwd"]) == (str(home.root), "/")
    assert (facts["stdin"], facts["stdout"]) == ("/dev/null", str(home.log))
    assert home.log.stat().st_mode & 0o777 == 0o600


def test_failed_start_is_reported_with_new_log_lines(home: Home) -> None:
    home.log.write_text("an old line\n")
    command = [sys.executable, "-c", "import sys; print('port is on fire', file=sys.stderr); sys.exit(7)"]
    with pytest.raises(ServiceUnavailable, match="exit code 7") as caught:
        start(home, command=command, timeout=600)
    assert "port is on fire" in caught.value.message
    assert "an old line" not in caught.value.message


def test_start_waits_for_the_holder_of_the_lock(home: Home) -> None:
    """Exit code 4 means that another process holds the lock; its response does not come here."""
    with pytest.raises(ServiceUnavailable, match="does not answer after"):
        start(home, command=[sys.executable, "-c", "raise SystemExit(4)"], timeout=0.3)


def test_start_reports_refusal_while_the_lock_is_free(home: Home) -> None:
    """The scheduler of another home owns the store, so no scheduler of this home responds."""
    with pytest.raises(ServiceUnavailable, match="exit code 4") as caught:
        start(home, command=[sys.executable, "-c", "print('the store is taken'); raise SystemExit(4)"], timeout=600)
    assert caught.value.message.count("the store is taken") == 1


def test_start_uses_the_scheduler_that_won_the_race(home: Home, tmp_path: Path) -> None:
    # The child starts the winner and exits like a loser.
    script = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SCHEDULER!r}]).pid); sys.exit(4)"
    start(home, command=[sys.executable, "-c", script])
    os.kill(int(home.log.read_text()), signal.SIGKILL)


def test_silent_start_times_out_with_its_log(home: Home) -> None:
    script = "import os, signal; print(os.getpid(), 'still reading', flush=True); signal.pause()"
    with pytest.raises(ServiceUnavailable) as caught:
        start(home, command=[sys.executable, "-c", script], timeout=1.0)
    pid = int(home.log.read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert "still reading" in caught.value.message


def test_start_waits_while_another_process_holds_the_lock(home: Home) -> None:
    """The holder of the lock may be the scheduler that is about to respond."""
    home.lock.touch()
    with home.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ServiceUnavailable, match="does not answer after"):
            start(home, command=[sys.executable, "-c", "raise SystemExit(4)"], timeout=3)


def test_start_returns_false_if_another_scheduler_responds(home: Home) -> None:
    """The socket was recreated before the child reached the lock."""
    variables = {**os.environ, "ROTA_HOME": str(home.root)}
    with subprocess.Popen([sys.executable, "-c", SCHEDULER], env=variables) as running:
        try:
            home.lock.write_text(f"{running.pid}\n")
            while not home.socket.exists():
                time.sleep(0.01)
            assert not start(home, command=[sys.executable, "-c", "import time; time.sleep(1)"])
        finally:
            running.kill()
