"""§6 Shutdown: one stop that works, and what runs is kept."""

from __future__ import annotations

import json
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


def test_kill_ends_what_runs_and_waits_until_it_is_gone(rota: Rota, stage: Stage) -> None:
    """§6: FAILED `stopped by shutdown`, on disk before the scheduler leaves."""
    rota.ask("config", "set", "scheduler.kill_after", "300ms")
    rota.start()
    rota.set_global(2)
    gate = stage.gate("never")
    script = f"sh -c 'trap : TERM; echo deep > {stage.pipe}; while :; do read x < {gate}; done' & wait"
    deep = rota.post(["sh", "-c", script], name="deep")
    job, queued = rota.post(stage.actor("long"), name="long one"), rota.post(stage.walk_on("queued"))
    assert sorted(stage.hear(2)) == ["deep", "long begins"]
    pids = [rota.running(each)["pid"] for each in (deep, job)]
    scheduler, supervisor = rota.scheduler, rota.supervisor
    said = rota.ask("down", "--kill", "--grace", "0s")
    assert "left running" not in said.err
    assert said.err.endswith("rota: stopped\n")
    assert not any(map(lives, (scheduler, *pids)))
    assert ends_within(supervisor)
    assert rota.processes() == {}, "its whole tree"
    outcome = json.loads((rota.home / "jobs/2/outcome.json").read_text())
    assert (outcome["status"], outcome["run"]["error"]) == ("FAILED", "stopped by shutdown")
    assert stage.heard() == []
    rota.start()
    assert rota.status()["recovery"] == dict.fromkeys(rota.status()["recovery"], 0), "nothing was left to recover"
    for each in (deep, job):
        shown = rota.ended(each)
        assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 143, "stopped by shutdown")
    rota.wait(queued)


def test_kill_gives_the_grace_first(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("last"))
    assert stage.hear() == ["last begins"]
    stopping = rota.begin("down", "--kill", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], what="stopping")
    stage.release("last", 4)
    assert rota.end(stopping).code == 0
    rota.start()
    assert rota.ended(job)["exit_code"] == 4


def test_kill_may_be_asked_for_later_and_a_second_signal_does_not_wait(rota: Rota, stage: Stage) -> None:
    """Who will not go keeps nobody from leaving: it is named, kept, and its end is still the shutdown's."""
    rota.ask("config", "set", "scheduler.kill_after", "1h")
    pid = rota.start()
    gate = stage.gate("gate")
    script = f"trap 'echo told > {stage.pipe}' TERM; echo up > {stage.pipe}; read x < {gate} || read x < {gate}"
    job = rota.post(["sh", "-c", script])
    assert stage.hear() == ["up"]
    child = rota.running(job)["pid"]
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: rota.status()["stopping"], what="stopping")
    stopping = rota.begin("down", "--kill", "--grace", "0s")
    assert stage.hear() == ["told"]
    assert lives(pid)
    os.kill(pid, signal.SIGTERM)
    assert ends_within(pid, 20)
    assert f"rota: left running: {job}" in rota.end(stopping).err
    assert lives(child)
    assert "running jobs adopted: 1" in rota.ask("up").out
    stage.release("gate")
    shown = rota.ended(job)
    assert (shown["status"], shown["reason"]) == ("FAILED", "stopped by shutdown")


def test_up_and_down_of_a_home_with_nothing_in_it(rota: Rota) -> None:
    for _ in range(2):
        pid = rota.start()
        assert rota.start() == pid
        for stopped in (True, False):
            assert rota.json("down", "--kill") == {"stopped": stopped, "left_running": []}
    assert rota.processes() == {} or ends_within(next(iter(rota.processes())))
