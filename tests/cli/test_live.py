"""Live view on a real pseudo-terminal, and colors."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TextIO

import pytest

from rota.cli.terminal import has_color, paint, terminal_width
from rota.jobs.cli.wait import JobLineView, JobScreenView

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Terminal:
    def __init__(self, columns: int, lines: int) -> None:
        self._reader, writer = pty.openpty()
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream: TextIO = io.TextIOWrapper(io.FileIO(writer, "w"), encoding="utf-8")

    def shown(self) -> str:
        self.stream.flush()
        return os.read(self._reader, 65536).decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.stream.close()
        os.close(self._reader)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(60, 5)
    yield terminal
    terminal.close()


def job(status: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "name": "build", "created_at": "2026-03-01T11:59:30Z", **fields}


def test_view_is_redrawn_in_place(terminal: Terminal) -> None:
    screen = JobScreenView(terminal.stream, lambda: NOW)
    waiting = job("QUEUED", wait={"kind": "capacity", "detail": "waiting on pool global (1/1)"})
    screen.draw({"job-1": waiting, "job-2": job("RUNNING", 2, started_at="2026-03-01T11:58:00Z")})
    assert terminal.shown() == (
        "\rjob-1    QUEUED                   30s  build  waiting on p…\033[K\n"
        "job-2    RUNNING                2m00s  build\033[K\n\033[J"
    )
    screen.draw({"job-1": job("RUNNING", started_at="2026-03-01T11:59:59Z")})
    assert terminal.shown() == "\r\033[2Ajob-1    RUNNING                   1s  build\033[K\n\033[J"


@pytest.mark.parametrize("status", ["COMPLETED", "PARTIAL", "CANCELLED"])
def test_ended_group_shows_the_time_that_it_ran(status: str, terminal: Terminal) -> None:
    group = {"id": "group-1", "status": status, "name": "g", "created_at": "2026-03-01T11:00:00Z"}
    screen = JobScreenView(terminal.stream, lambda: NOW)
    screen.draw({"group-1": {**group, "finished_at": "2026-03-01T11:02:05Z"}})
    assert terminal.shown() == f"\rgroup-1  {status:<21}  2m05s  g\033[K\n\033[J"


def test_retry_is_shown_with_both_ids(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    lines = JobLineView()
    for record in (job("RUNNING"), job("RUNNING", 2), job("RUNNING", 2), job("FAILED", 2, reason="exit code 3")):
        lines.draw({"job-1": record})
    assert capsys.readouterr().err.splitlines() == [
        "rota: job-1 RUNNING build",
        "rota: job-2 (retry of job-1) RUNNING build",
        "rota: job-2 (retry of job-1) FAILED build: exit code 3",
    ]
    JobScreenView(terminal.stream, lambda: NOW).draw({"job-1": job("RUNNING", 2, started_at="2026-03-01T11:59:59Z")})
    assert terminal.shown().startswith("\rjob-2 (retry of job-1) RUNNING ")


def test_repeatedly_failing_start_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = JobLineView()
    queued = job("QUEUED", wait={"kind": "paused", "detail": "`jobs/` cannot be used"})
    for record in (queued, job("RUNNING"), queued, job("RUNNING"), queued, job("COMPLETED")):
        lines.draw({"job-1": record})
    assert capsys.readouterr().err.splitlines() == [
        "rota: job-1 QUEUED build: `jobs/` cannot be used",
        "rota: job-1 RUNNING build",
        "rota: job-1 COMPLETED build",
    ]


def test_small_terminal_shows_unended_jobs_first(terminal: Terminal) -> None:
    screen = JobScreenView(terminal.stream, lambda: NOW)
    screen.draw({f"job-{number}": job("RUNNING" if number > 3 else "COMPLETED", number) for number in range(1, 6)})
    shown = terminal.shown().split("\033[K\n")
    assert [line.strip("\r")[:5] for line in shown[:3]] == ["job-4", "job-5", "job-1"]
    assert shown[3:] == ["… and 2 more", "\033[J"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({"NO_COLOR": "", "TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": "", "TERM": "dumb"}, False)],
)
def test_color_depends_on_the_environment(
    variables: dict[str, str], expected: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_color(terminal.stream) is expected


def test_stream_without_terminal_has_no_color_and_width() -> None:
    assert not has_color(io.StringIO())
    assert terminal_width(io.StringIO()) is None


def test_paint_colors_known_statuses() -> None:
    assert paint("x", "FAILED", color=True) == "\033[31mx\033[0m"
    assert paint("x", "FAILED", color=False) == "x"
    assert paint("x", "unheard of", color=True) == "x"
