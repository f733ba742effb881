"""A scheduler that is there and does not answer: who asks is told whom he waits for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.rig import Rota


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_it_is_said_and_the_command_goes_on_when_it_answers(rota: Rota) -> None:
    pid = rota.start()
    with stopped(pid):
        commands = [rota.begin(*words) for words in (("status",), ("up",), ("submit", "--", "true"))]
        lines = [each.stderr.readline().decode() for each in commands if each.stderr is not None]
        assert lines == [f"rota: the scheduler (pid {pid}) does not answer; waiting for it\n"] * 3
    for each in commands:
        said = rota.end(each)
        assert (said.code, said.err) == (0, "")
    assert said.out == "job-1\n"
