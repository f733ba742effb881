"""Commands in a home whose scheduler is stopped."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess

import pytest

from rota.cli.main import main
from rota.client import autostart
from rota.client.problem import NotRunning
from rota.client.requests.control import tick
from rota.client.session import SchedulerSession
from rota.home import Home

READS = [
    "status",
    "list",
    "show 1",
    "logs 1",
    "logs run-1",
    "logs 1 --follow",
    "why 1",
    "graph",
    "events",
    "lock",
    "pool",
    "reservation",
    "breaker",
    "schedule",
    "schedule show x",
    "schedule next x",
    "template",
    "template show x",
    "webhook",
    "webhook show 1",
    "webhook deliveries",
    "group",
    "group show x",
    "artifact",
    "artifact show file:x",
    "tick --dry-run",
    "gc --dry-run",
]


@pytest.mark.parametrize("line", READS)
def test_reading_reports_a_stopped_scheduler_and_starts_none(
    line: str, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"rota: the scheduler in {home.directory} is stopped; `rota up` starts it\n")
    assert list(home.root.iterdir()) == []


@pytest.fixture
def stored(home: Home) -> Home:
    """Provide a home with the files of job 7, which ended in its second run."""
    directory = home.jobs / "7"
    earlier = directory / "runs" / "3"
    earlier.mkdir(parents=True)
    (earlier / "stdout.log").write_text("first try\n")
    (directory / "stdout.log").write_text("one\ntwo\nthree\n")
    (directory / "stderr.log").write_text("trouble\n")
    record = {"id": "job-7", "status": "FAILED", "name": "tests", "command": ["false"], "run": {"id": "run-9"}}
    (directory / "job.json").write_text(json.dumps(record))
    return home


def test_show_reads_the_files_of_the_job(stored: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "7", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "FAILED"
    assert "is stopped; `rota up` starts it" in captured.err
    assert main(["show", "7"]) == 0
    assert "FAILED" in capsys.readouterr().out


def test_show_reports_the_unknown_end_of_a_running_job(stored: Home, capsys: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    path = stored.jobs / "7" / "job.json"
    record = {**json.loads(path.read_text()), "status": "RUNNING", "pid": ended.pid}
    path.write_text(json.dumps(record))
    output = "job-7 was RUNNING when the scheduler stopped; its end is not known yet"
    gone = f"{output}; its process (pid {ended.pid}) is gone; `rota up` starts the scheduler"
    assert main(["show", "7"]) == 0
    captured = capsys.readouterr()
    assert "status             RUNNING (when the scheduler stopped; its end is not known yet)\n" in captured.out
    assert gone in captured.err
    assert main(["show", "7", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == record
    assert gone in captured.err
    path.write_text(json.dumps({**record, "pid": os.getpid()}))
    assert main(["show", "7"]) == 0
    assert f"{output}; `rota up`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "out", "err"),
    [
        ([], "one\ntwo\nthree\n", "trouble\n"),
        (["--stream", "stdout", "--tail", "1"], "three\n", ""),
        (["--stream", "stdout", "--bytes", "4"], "ree\n", ""),
        (["--stream", "stdout", "--run", "run-3"], "first try\n", ""),
        (["--stream", "stdout", "--run", "run-9"], "one\ntwo\nthree\n", ""),
    ],
)
def test_logs_reads_the_files_of_the_job(
    options: list[str], out: str, err: str, stored: Home, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["logs", "7", *options]) == 0
    captured = capfdbinary.readouterr()
    stopped = f"rota: the scheduler in {stored.directory} is stopped; `rota up` starts it"
    note = f"{stopped}; this is the content of {stored.jobs}/7\n"
    assert (captured.out.decode(), captured.err.decode()) == (out, err + note)


def test_logs_of_a_run_without_files_exits_with_3(stored: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "7", "--run", "run-4"]) == 3
    assert "has no files of run-4" in capsys.readouterr().err


def test_log_that_is_not_a_regular_file_is_ignored(stored: Home, capsys: pytest.CaptureFixture[str]) -> None:
    log = stored.jobs / "7" / "stdout.log"
    log.unlink()
    log.mkdir()
    assert main(["logs", "7", "--stream", "stdout"]) == 0
    assert capsys.readouterr().out == ""


def test_change_starts_the_scheduler_and_reports_it(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(autostart, "start", lambda _: True)
    with pytest.raises(NotRunning):  # the stub starts no scheduler that listens
        SchedulerSession(home).request_json(tick())
    assert capsys.readouterr().err == f"rota: started the scheduler in {home.directory}; `rota down` stops it\n"


def test_reading_reports_a_running_scheduler_without_socket(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is at the path of the socket."""
    monkeypatch.setattr(autostart.wait_until_running, "__kwdefaults__", {"timeout": 0.1, "notify": None})
    monkeypatch.setattr(autostart, "_NOTICE_DELAY", 0.0)
    home.socket.mkdir(parents=True)
    home.lock.write_text("4711\n")
    with home.lock.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["list"]) == 1
    output = capsys.readouterr().err
    assert f"the scheduler (pid 4711) does not listen on {home.socket}; waiting for it" in output
    assert f"the scheduler (pid 4711) is running, but its socket {home.socket} cannot be reached" in output
    assert "is stopped" not in output
