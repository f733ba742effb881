"""A scheduler and a supervisor of different versions: after an upgrade the old supervisor still has children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rota.supervisor.protocol import PROTOCOL
from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive

pytestmark = pytest.mark.executable

_STAND_IN = """
import sys
from rota.supervisor import protocol
protocol.ACCEPTED_PROTOCOLS = range({oldest}, {newest} + 1)
protocol.PROTOCOL = {newest}
from rota.supervisor import main
sys.exit(main.main(sys.argv[1]))
"""
"""The real supervisor code with another protocol version."""


@pytest.fixture
def supervise(rota: Rota, tmp_path: Path) -> Iterator[Callable[[int, int], int]]:
    """Start a supervisor with protocols `oldest` to `newest` before any scheduler; return its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(oldest: int, newest: int) -> int:
        program = tmp_path / "stand_in.py"
        program.write_text(_STAND_IN.format(oldest=oldest, newest=newest))
        rota.home.mkdir(mode=0o700)
        with (rota.home / "supervisor.log").open("wb") as log:
            command = [sys.executable, "-P", str(program), str(rota.home)]
            started.append(subprocess.Popen(command, env=rota.env, stdout=log, stderr=log, start_new_session=True))
        eventually((rota.home / "supervisor.sock").exists, description="its socket")
        return started[-1].pid

    yield start
    rota.close()
    for process in started:
        process.wait(20)


def test_scheduler_works_with_newer_supervisor_that_accepts_its_protocol(
    rota: Rota, children: ChildControl, supervise: Callable[[int, int], int]
) -> None:
    pid = supervise(PROTOCOL, PROTOCOL + 1)
    rota.start()
    assert rota.supervisor_pid == pid
    rota.set_global_size(3)
    long, stuck = rota.post_job(children.gated("long")), rota.post_job(children.gated("stuck"))
    assert sorted(children.read_lines(2)) == ["long begins", "stuck begins"]
    failing = rota.post_job(["sh", "-c", "echo oh >&2; exit 4"])
    assert rota.wait_for_end(failing)["run"]["error"] == "exit code 4\noh\n"
    assert rota.wait_for_end(rota.post_job(["no-such-program-here"], skip_if="true"))["status"] == "SKIPPED"
    rota.run("cancel", stuck)
    rota.run("down", "--grace", "0s")
    assert "running jobs adopted: 1" in rota.run("up").out
    assert rota.supervisor_pid == pid
    rota.crash()
    children.release("long", 5)
    rota.wait(long, code=5)
    assert rota.status()["errors"] == []


def test_incompatible_supervisor_is_reported_and_waited_for(
    rota: Rota, children: ChildControl, supervise: Callable[[int, int], int]
) -> None:
    pid = supervise(PROTOCOL + 1, PROTOCOL + 2)
    output = rota.run("up")
    assert "the running supervisor belongs to another version of Rota" in output.err
    assert f"protocol {PROTOCOL} is not supported" in output.err
    assert "wait for that, or go back to the version that started it" in output.err
    job = rota.submit(*children.immediate("one"))
    assert "another version of Rota" in str(rota.status()["idle_reason"])
    assert rota.show(job)["status"] == "QUEUED"
    assert is_alive(pid), "the old supervisor keeps its children"
    assert children.read_available() == []
    scheduler = rota.scheduler_pid
    os.kill(pid, signal.SIGTERM)  # the way it exits without work
    os.waitpid(pid, 0)
    assert exits_within(pid)
    rota.wait(job)
    assert children.read_available() == ["one begins", "one ends"]
    assert (rota.scheduler_pid, rota.status()["errors"]) == (scheduler, [])
