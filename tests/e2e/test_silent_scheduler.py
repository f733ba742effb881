"""A running scheduler that does not answer: commands name it and wait."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.rig import Rota

pytestmark = pytest.mark.executable


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_command_reports_a_silent_scheduler_and_continues(rota: Rota) -> None:
    pid = rota.start()
    with stopped(pid):
        commands = [rota.spawn(*words) for words in (("status",), ("up",), ("submit", "--", "true"))]
        lines = [command.stderr.readline().decode() for command in commands if command.stderr is not None]
        assert lines == [f"rota: the scheduler (pid {pid}) does not answer; waiting for it\n"] * 3
    for command in commands:
        output = rota.finish(command)
        assert (output.code, output.err) == (0, "")
    assert output.out == "job-1\n"
