"""The live view on a real pseudo-terminal, and colours."""

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

from rota.cli.live import Screen
from rota.cli.terminal import has_colour, paint, width_of

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Terminal:
    def __init__(self, columns: int, lines: int) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream: TextIO = io.TextIOWrapper(io.FileIO(theirs, "w"), encoding="utf-8")

    def shown(self) -> str:
        self.stream.flush()
        return os.read(self._ours, 65536).decode().replace("\r\n", "\n")

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    made = Terminal(60, 5)
    yield made
    made.close()


def job(status: str, **fields: Any) -> dict[str, Any]:
    return {"status": status, "name": "build", "created_at": "2026-03-01T11:59:30Z", **fields}


def test_the_view_is_redrawn_where_it_stands(terminal: Terminal) -> None:
    screen = Screen(terminal.stream, lambda: NOW)
    waiting = job("QUEUED", wait={"kind": "capacity", "detail": "waiting on pool global (1/1)"})
    screen.draw({"job-1": waiting, "job-2": job("RUNNING", started_at="2026-03-01T11:58:00Z")})
    assert terminal.shown() == (
        "\rjob-1    QUEUED                   30s  build  waiting on p…\033[K\n"
        "job-2    RUNNING                2m00s  build\033[K\n\033[J"
    )
    screen.draw({"job-1": job("RUNNING", started_at="2026-03-01T11:59:59Z")})
    assert terminal.shown() == "\r\033[2Ajob-1    RUNNING                   1s  build\033[K\n\033[J"


def test_a_low_terminal_shows_what_has_not_ended(terminal: Terminal) -> None:
    screen = Screen(terminal.stream, lambda: NOW)
    screen.draw({f"job-{number}": job("RUNNING" if number > 3 else "COMPLETED") for number in range(1, 6)})
    shown = terminal.shown().split("\033[K\n")
    assert [line.strip("\r")[:5] for line in shown[:3]] == ["job-4", "job-5", "job-1"]
    assert shown[3:] == ["… and 2 more", "\033[J"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({"NO_COLOR": "", "TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": "", "TERM": "dumb"}, False)],
)
def test_when_there_is_colour(
    variables: dict[str, str], expected: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_colour(terminal.stream) is expected


def test_no_terminal_no_colour_no_width() -> None:
    assert not has_colour(io.StringIO())
    assert width_of(io.StringIO()) is None


def test_paint() -> None:
    assert paint("x", "FAILED", colour=True) == "\033[31mx\033[0m"
    assert paint("x", "FAILED", colour=False) == "x"
    assert paint("x", "unheard of", colour=True) == "x"
