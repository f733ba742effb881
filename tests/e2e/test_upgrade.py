"""A scheduler and a supervisor of different versions: after an upgrade the old one still has children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage, ends_within, eventually, lives
from rota.executor.supervisor.protocol import AHEAD, PROTOCOL

_STAND_IN = """
import sys
from rota.executor.supervisor import protocol
protocol.ACCEPTED = range({oldest}, {newest} + 1)
protocol.PROTOCOL = {newest}
from rota.executor.supervisor import main
sys.exit(main.main(sys.argv[1]))
"""
"""The supervisor's own code, in another version of its language."""


@pytest.fixture
def supervise(rota: Rota, tmp_path: Path) -> Iterator[Callable[[int, int], int]]:
    """Puts a supervisor that speaks `oldest` to `newest` into the home, before any scheduler; its pid."""
    made: list[subprocess.Popen[bytes]] = []

    def start(oldest: int, newest: int) -> int:
        program = tmp_path / "stand_in.py"
        program.write_text(_STAND_IN.format(oldest=oldest, newest=newest))
        rota.home.mkdir(mode=0o700)
        with (rota.home / "supervisor.log").open("wb") as log:
            command = [sys.executable, "-P", str(program), str(rota.home)]
            made.append(subprocess.Popen(command, env=rota.env, stdout=log, stderr=log, start_new_session=True))
        eventually((rota.home / "supervisor.sock").exists, what="its socket")
        return made[-1].pid

    yield start
    rota.close()
    for each in made:
        each.wait(20)


@pytest.mark.parametrize(
    ("oldest", "newest"),
    [(PROTOCOL - 1, PROTOCOL - 1), (PROTOCOL, PROTOCOL + 1)],
    ids=["an older supervisor", "a newer supervisor"],
)
def test_neighbouring_versions_work_together(
    rota: Rota, stage: Stage, supervise: Callable[[int, int], int], oldest: int, newest: int
) -> None:
    pid = supervise(oldest, newest)
    rota.start()
    assert rota.supervisor == pid
    rota.set_global(3)
    long, stuck = rota.post(stage.actor("long")), rota.post(stage.actor("stuck"))
    assert sorted(stage.hear(2)) == ["long begins", "stuck begins"]
    failing = rota.post(["sh", "-c", "echo oh >&2; exit 4"])
    assert rota.ended(failing)["run"]["error"] == "exit code 4\noh\n"
    assert rota.ended(rota.post(["no-such-program-here"], skip_if="true"))["status"] == "SKIPPED"
    rota.ask("cancel", stuck)
    rota.ask("down", "--grace", "0s")
    assert "running jobs adopted: 1" in rota.ask("up").out
    assert rota.supervisor == pid
    rota.crash()
    stage.release("long", 5)
    rota.wait(long, code=5)
    assert rota.status()["trouble"] == []


def test_a_supervisor_that_starts_nothing_by_itself_is_told_of_each(
    rota: Rota, supervise: Callable[[int, int], int]
) -> None:
    supervise(AHEAD - 1, AHEAD - 1)
    rota.start()
    jobs = [rota.post(["true"]) for _ in range(12)]
    rota.wait(jobs[-1])
    assert {rota.show(job)["status"] for job in jobs} == {"COMPLETED"}
    assert rota.status()["trouble"] == []


def test_versions_that_do_not_fit_are_said_and_waited_for(
    rota: Rota, stage: Stage, supervise: Callable[[int, int], int]
) -> None:
    pid = supervise(PROTOCOL + 1, PROTOCOL + 2)
    said = rota.ask("up")
    assert "the running supervisor is of another version of Rota" in said.err
    assert f"protocol {PROTOCOL} is not spoken here" in said.err
    assert "wait for that, or go back to the version that started it" in said.err
    job = rota.submit(*stage.walk_on("one"))
    assert "another version of Rota" in str(rota.status()["idle_because"])
    assert rota.show(job)["status"] == "QUEUED"
    assert lives(pid), "nobody's children are taken away"
    assert stage.heard() == []
    scheduler = rota.scheduler
    os.kill(pid, signal.SIGTERM)  # as it leaves when it has nothing left to do
    os.waitpid(pid, 0)
    assert ends_within(pid)
    rota.wait(job)
    assert stage.heard() == ["one begins", "one ends"]
    assert (rota.scheduler, rota.status()["trouble"]) == (scheduler, [])
