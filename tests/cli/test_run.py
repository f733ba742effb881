"""Notices of `rota run` about the state of its reservation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.cli.main import main
from tests.cli.fake_scheduler import Server, chunked


def frame(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def reservation(status: str, **fields: Any) -> bytes:
    record = {
        "id": "reservation-1",
        "status": status,
        "command": ["true"],
        "pid": None,
        "explanation": None,
        "reason": None,
        "exit_code": None,
        "finished_at": None,
    }
    return frame(reservation={**record, **fields})


ACCEPTED = frame(id="reservation-1", wait=None, warning=None)
HELD = reservation("WAITING", explanation="reservations/ cannot be used")
ORDERED = reservation("RUNNING")
ENDED = reservation("COMPLETED", exit_code=0, finished_at="2026-03-01T12:00:00Z")


@pytest.mark.parametrize(
    "frames",
    [
        [reservation("RUNNING", pid=7)],
        [reservation("RUNNING", command=None)],
        [frame(stream="stdout", size=3) + b"hi\n", reservation("RUNNING", pid=7)],
        [],
    ],
)
def test_start_is_printed_once_and_only_when_it_succeeded(
    server: Server, capfd: pytest.CaptureFixture[str], frames: list[bytes]
) -> None:
    server.replies = [chunked(ACCEPTED, HELD, ORDERED, HELD, ORDERED, HELD, ORDERED, *frames, ENDED)]
    assert main(["run", "--", "true"]) == 0
    assert capfd.readouterr().err.splitlines() == [
        "rota: reservation-1: reservations/ cannot be used",
        "rota: reservation-1 starts",
    ]


def test_start_without_a_wait_is_not_printed(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    server.replies = [chunked(ACCEPTED, ORDERED, reservation("RUNNING", pid=7), ENDED)]
    assert main(["run", "--", "true"]) == 0
    assert capfd.readouterr().err == ""
