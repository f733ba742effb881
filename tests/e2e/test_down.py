"""§6 Shutdown: one stop that works, and what runs is kept."""

from __future__ import annotations

import os
import signal

from e2e.rig import Rota, Stage, ends_within, eventually, lives


def test_what_still_runs_is_named_kept_and_adopted(rota: Rota, stage: Stage) -> None:
    """CON-003. LESSONS Processes: could not be shut down; daemon restart marked running work killed."""
    rota.start()
    job = rota.post(stage.actor("long"), name="long one")
    queued = rota.post(stage.walk_on("queued"))
    assert stage.hear() == ["long begins"]
    pid, supervisor, scheduler = rota.running(job)["pid"], rota.supervisor, rota.scheduler
    said = rota.ask("down", "--grace", "200ms")
    assert said.out == ""
    assert f"rota: left running: {job} (long one), pid {pid}; the next start adopts it\n" in said.err
    assert not lives(scheduler)
    assert lives(pid)
    assert lives(supervisor)
    assert not rota.socket.exists()
    assert f"adopted at the next start: {job}" in (rota.home / "rota.log").read_text()
    said = rota.ask("up")
    assert "recovered  running jobs adopted: 1" in said.out
    assert (rota.show(job)["status"], rota.show(job)["pid"], rota.supervisor) == ("RUNNING", pid, supervisor)
    stage.release("long", 5)
    rota.wait(job, queued, code=5)
    assert stage.heard() == ["long ends", "queued begins", "queued ends"]


def test_running_jobs_may_finish_and_nothing_new_starts(rota: Rota, stage: Stage) -> None:
    rota.start()
    job, queued = rota.post(stage.actor("last")), rota.post(stage.walk_on("queued"))
    assert stage.hear() == ["last begins"]
    stopping = rota.begin("down", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], what="stopping")
    stage.release("last", 4)
    said = rota.end(stopping)
    assert said.code == 0
    assert said.err.endswith("rota: stopped\n")
    assert "left running" not in said.err
    assert stage.heard() == ["last ends"]
    rota.start()
    assert rota.ended(job)["exit_code"] == 4
    assert rota.ended(queued)["status"] == "COMPLETED"


def test_twice_is_fine(rota: Rota) -> None:
    """LESSONS Processes: one stop that works, twice is fine."""
    assert rota.ask("down").err == "rota: not running\n"
    assert not rota.home.exists()
    pid = rota.start()
    assert rota.start() == pid
    assert rota.json("down") == {"stopped": True, "left_running": []}
    assert rota.json("down") == {"stopped": False, "left_running": []}
    assert rota.start() != pid
    first, second = rota.begin("down"), rota.begin("down")
    assert (rota.end(first).code, rota.end(second).code) == (0, 0)
    assert rota.schedulers() == []


def test_term_stops_and_a_second_one_does_not_wait(rota: Rota, stage: Stage) -> None:
    pid = rota.start()
    job = rota.post(stage.actor("long"))
    assert stage.hear() == ["long begins"]
    rota.running(job)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: rota.status()["stopping"], what="stopping")
    assert lives(pid), "30 s of grace unless configured"
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid, 20)
    assert not rota.socket.exists()
    stage.release("long", 3)
    rota.wait(job, code=3)


def test_the_supervisor_leaves_when_nothing_is_left_to_do(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("long"))
    assert stage.hear() == ["long begins"]
    rota.running(job)
    supervisor = rota.supervisor
    rota.ask("down", "--grace", "0s")
    assert not ends_within(supervisor, 3), "it has a child"
    stage.release("long", 6)
    assert ends_within(supervisor, 20)
    assert not (rota.home / "supervisor.sock").exists()
    assert rota.processes() == {}
    rota.wait(job, code=6)


def test_who_waits_is_told_that_it_was_stopped(rota: Rota, stage: Stage) -> None:
    """A `rota wait` in another terminal does not bring back what somebody stopped on purpose."""
    rota.start()
    job = rota.post(stage.actor("long"))
    assert stage.hear() == ["long begins"]
    waiting = rota.begin("wait", job)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(b"rota: job-1 RUNNING")
    rota.ask("down", "--grace", "0s")
    said = rota.end(waiting)
    assert said.code == 1
    assert "the scheduler was stopped meanwhile" in said.err
    assert rota.schedulers() == []


def test_who_waits_outlasts_a_crash(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("long"))
    assert stage.hear() == ["long begins"]
    rota.running(job)
    waiting = rota.begin("wait", job)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(b"rota: job-1 RUNNING")
    rota.crash()
    stage.release("long", 8)
    assert rota.end(waiting).code == 8
