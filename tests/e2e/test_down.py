"""Shutdown: `rota down` stops the scheduler, and running jobs are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from rota.home import is_held
from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive, kill

pytestmark = pytest.mark.executable

SLOW = 2.0
"""Additional seconds for a busy machine."""


def test_running_jobs_are_named_kept_and_adopted(rota: Rota, children: ChildControl) -> None:
    """CON-003. LESSONS Processes: could not be shut down; daemon restart marked running work killed."""
    rota.start()
    job = rota.post_job(children.gated("long"), name="long one")
    queued = rota.post_job(children.immediate("queued"))
    assert children.read_lines() == ["long begins"]
    pid, supervisor, scheduler = rota.wait_for_start(job)["pid"], rota.supervisor_pid, rota.scheduler_pid
    output = rota.run("down", "--grace", "200ms")
    assert output.out == ""
    assert f"rota: the scheduler has stopped\nrota: left running: {job} (long one), pid {pid};" in output.err
    assert "rota: stopped" not in output.err
    assert not is_alive(scheduler)
    assert is_alive(pid)
    assert is_alive(supervisor)
    assert not rota.socket.exists()
    assert f"adopted at the next start: {job}" in (rota.home / "rota.log").read_text()
    output = rota.run("up")
    assert "recovered  running jobs adopted: 1" in output.out
    assert (rota.show(job)["status"], rota.show(job)["pid"], rota.supervisor_pid) == ("RUNNING", pid, supervisor)
    children.release("long", 5)
    rota.wait(job, queued, code=5)
    assert children.read_available() == ["long ends", "queued begins", "queued ends"]


def test_running_jobs_may_finish_and_nothing_new_starts(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job, queued = rota.post_job(children.gated("last")), rota.post_job(children.immediate("queued"))
    assert children.read_lines() == ["last begins"]
    down_process = rota.spawn("down", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], description="stopping")
    children.release("last", 4)
    output = rota.finish(down_process)
    assert output.code == 0
    assert output.err.endswith("rota: stopped\n")
    assert "left running" not in output.err
    assert children.read_available() == ["last ends"]
    rota.start()
    assert rota.wait_for_end(job)["exit_code"] == 4
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"


def test_up_and_down_are_idempotent(rota: Rota) -> None:
    """LESSONS Processes: one stop that works, twice is fine."""
    assert rota.run("down").err == "rota: not running\n"
    assert not rota.home.exists()
    pid = rota.start()
    assert rota.start() == pid
    assert rota.json("down") == {"stopped": True, "left_running": []}
    assert rota.json("down") == {"stopped": False, "left_running": []}
    assert rota.start() != pid
    first, second = rota.spawn("down"), rota.spawn("down")
    assert (rota.finish(first).code, rota.finish(second).code) == (0, 0)
    assert rota.schedulers() == []


def test_second_sigterm_skips_the_grace_period(rota: Rota, children: ChildControl) -> None:
    pid = rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: rota.status()["stopping"], description="stopping")
    assert is_alive(pid), "30 s of grace unless configured"
    os.kill(pid, signal.SIGTERM)
    assert exits_within(pid, 20)
    assert not rota.socket.exists()
    children.release("long", 3)
    rota.wait(job, code=3)


def test_supervisor_exits_after_its_last_job(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    supervisor = rota.supervisor_pid
    rota.run("down", "--grace", "0s")
    assert not exits_within(supervisor, 3), "the supervisor still has a job"
    children.release("long", 6)
    assert exits_within(supervisor, 20)
    assert not (rota.home / "supervisor.sock").exists()
    assert rota.processes() == {}
    rota.wait(job, code=6)


def test_wait_reports_that_the_scheduler_was_stopped(rota: Rota, children: ChildControl) -> None:
    """`rota wait` in another terminal does not restart a scheduler that was stopped on purpose."""
    rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    waiting = rota.spawn("wait", job)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(b"rota: job-1 RUNNING")
    rota.run("down", "--grace", "0s")
    output = rota.finish(waiting)
    assert output.code == 1
    assert "the scheduler was stopped meanwhile" in output.err
    assert rota.schedulers() == []


def test_wait_survives_a_crash(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    waiting = rota.spawn("wait", job)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(b"rota: job-1 RUNNING")
    rota.crash()
    children.release("long", 8)
    assert rota.finish(waiting).code == 8


def test_down_with_kill_waits_until_all_processes_have_ended(rota: Rota, children: ChildControl) -> None:
    """FAILED `stopped by shutdown` is on disk before the scheduler exits."""
    rota.run("config", "set", "scheduler.kill_after", "300ms")
    rota.start()
    rota.set_global_size(2)
    gate = children.make_gate("never")
    script = f"sh -c 'trap : TERM; echo deep > {children.pipe}; while :; do read x < {gate}; done' & wait"
    nested = rota.post_job(["sh", "-c", script], name="deep")
    job, queued = rota.post_job(children.gated("long"), name="long one"), rota.post_job(children.immediate("queued"))
    assert sorted(children.read_lines(2)) == ["deep", "long begins"]
    pids = [rota.wait_for_start(running)["pid"] for running in (nested, job)]
    scheduler, supervisor = rota.scheduler_pid, rota.supervisor_pid
    output = rota.run("down", "--kill", "--grace", "0s")
    assert "left running" not in output.err
    assert output.err.endswith("rota: stopped\n")
    assert not any(map(is_alive, (scheduler, supervisor, *pids)))
    assert rota.processes() == {}, "the whole process tree has ended"
    outcome = json.loads((rota.home / "jobs/2/outcome.json").read_text())
    assert (outcome["status"], outcome["run"]["error"]) == ("FAILED", "stopped by shutdown")
    assert children.read_available() == []
    rota.start()
    assert rota.status()["recovery"] == dict.fromkeys(rota.status()["recovery"], 0), "there is nothing to recover"
    for running in (nested, job):
        shown = rota.wait_for_end(running)
        assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 143, "stopped by shutdown")
    rota.wait(queued)


def test_down_with_kill_grants_the_grace_period(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("last"))
    assert children.read_lines() == ["last begins"]
    down_process = rota.spawn("down", "--kill", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], description="stopping")
    children.release("last", 4)
    assert rota.finish(down_process).code == 0
    rota.start()
    assert rota.wait_for_end(job)["exit_code"] == 4


def test_kill_during_shutdown_and_a_second_signal_skip_the_grace_period(rota: Rota, children: ChildControl) -> None:
    """A job that ignores SIGTERM does not block the exit. It is named, kept and counted as stopped by the shutdown."""
    rota.run("config", "set", "scheduler.kill_after", "1h")
    pid = rota.start()
    gate = children.make_gate("gate")
    script = (
        f"trap 'echo signaled > {children.pipe}' TERM; echo up > {children.pipe}; read x < {gate} || read x < {gate}"
    )
    job = rota.post_job(["sh", "-c", script])
    assert children.read_lines() == ["up"]
    child = rota.wait_for_start(job)["pid"]
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: rota.status()["stopping"], description="stopping")
    down_process = rota.spawn("down", "--kill", "--grace", "0s")
    assert children.read_lines() == ["signaled"]
    assert is_alive(pid)
    os.kill(pid, signal.SIGTERM)
    assert exits_within(pid, 20)
    assert f"rota: left running: {job}" in rota.finish(down_process).err
    assert is_alive(child)
    assert "running jobs adopted: 1" in rota.run("up").out
    children.release("gate")
    shown = rota.wait_for_end(job)
    assert (shown["status"], shown["reason"]) == ("FAILED", "stopped by shutdown")


def test_removed_socket_is_recreated_within_a_second(rota: Rota, children: ChildControl) -> None:
    pid = rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    waiting = rota.spawn("wait", job)
    assert waiting.stderr is not None
    assert waiting.stderr.readline().startswith(b"rota: job-1 RUNNING")
    rota.socket.unlink()
    removed_at = time.monotonic()
    eventually(rota.socket.exists, description="the socket")
    assert time.monotonic() - removed_at < 1.0 + SLOW
    assert rota.socket.stat().st_mode & 0o777 == 0o600
    assert rota.status()["pid"] == pid
    children.release("long", 3)
    assert rota.finish(waiting).code == 3, "existing connections are kept"
    rota.socket.unlink()
    assert rota.run("list").code == 0
    assert rota.schedulers() == [pid]


@pytest.mark.parametrize("options", [[], ["--kill"]])
def test_down_with_removed_socket_stops_scheduler_and_supervisor(rota: Rota, options: list[str]) -> None:
    pid = rota.start()
    supervisor = rota.supervisor_pid
    rota.socket.unlink()
    assert rota.run("down", *options).err == "rota: stopped\n"
    assert not is_alive(pid)
    assert not is_alive(supervisor)
    assert not rota.socket.exists()


@pytest.mark.parametrize("options", [[], ["--kill", "--grace", "1s"]])
def test_down_stops_a_scheduler_with_a_directory_in_place_of_its_socket(rota: Rota, options: list[str]) -> None:
    pid = rota.start()
    rota.socket.unlink()
    rota.socket.mkdir()
    output = rota.run("down", *options)
    lost = "; --grace and --kill have no effect" if options else ""
    assert output.err == (
        f"rota: the scheduler (pid {pid}) cannot be reached: {rota.socket} is not its socket; sending SIGTERM{lost}\n"
        "rota: stopped\n"
    )
    assert rota.processes() == {}


def test_lock_holder_that_is_no_scheduler_is_not_stopped(rota: Rota) -> None:
    """This takes ten seconds, because a scheduler that starts holds the lock before it listens."""
    rota.start()
    rota.run("down")
    rota.socket.mkdir()
    with subprocess.Popen(["flock", rota.home / "scheduler.lock", "sleep", "60"]) as holder:
        try:
            eventually(lambda: is_held(rota.home / "scheduler.lock"), description="the lock")
            (rota.home / "scheduler.lock").write_text(f"{holder.pid}\n")
            output = rota.run("down", code=1)
            assert f"pid {holder.pid} holds" in output.err
            assert holder.poll() is None
        finally:
            holder.kill()


def test_down_names_a_suspended_scheduler_and_kill_resumes_it(rota: Rota) -> None:
    pid = rota.start()
    os.kill(pid, signal.SIGSTOP)
    assert rota.run("down", code=1).err == (
        f"rota: the scheduler (pid {pid}) is suspended by a signal and cannot stop; resume it with `kill -CONT {pid}`,"
        " or use `rota down --kill`, which also kills its jobs\n"
    )
    output = rota.run("down", "--kill")
    assert (output.code, output.err.splitlines()) == (
        0,
        [f"rota: resuming the scheduler (pid {pid}), which was suspended by a signal", "rota: stopped"],
    )
    assert rota.processes() == {}


LOCKS_AND_SOCKETS = ("scheduler.lock", "supervisor.lock", "rota.sock", "supervisor.sock")


def test_removed_lock_is_restored_before_the_socket(rota: Rota, children: ChildControl) -> None:
    pid = rota.start()
    rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    lock = rota.home / "scheduler.lock"
    lock.unlink()
    eventually(lambda: lock.exists() and lock.read_text() == f"{pid}\n", description="the lock")
    rota.socket.unlink()
    eventually(rota.socket.exists, description="the socket")
    assert rota.start() == pid
    assert rota.run("down", "--kill", "--grace", "0s").err.endswith("rota: stopped\n")
    assert rota.processes() == {}


@pytest.mark.parametrize("command", [["up"], ["down", "--kill", "--grace", "0s"]])
def test_command_reaches_the_scheduler_after_locks_and_sockets_were_removed(
    rota: Rota, children: ChildControl, command: list[str]
) -> None:
    pid = rota.start()
    rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    for name in LOCKS_AND_SOCKETS:
        (rota.home / name).unlink()
    output = rota.run(*command)
    if command == ["up"]:
        assert f"pid     {pid}\n" in output.out
        assert rota.schedulers() == [pid]
    else:
        assert output.err.endswith("rota: stopped\n")
        assert rota.processes() == {}


def test_supervisor_without_lock_and_socket_is_found_after_a_crash(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    supervisor, scheduler = rota.supervisor_pid, rota.scheduler_pid
    for name in LOCKS_AND_SOCKETS:
        (rota.home / name).unlink()
    kill(scheduler)
    rota.start()
    assert rota.supervisor_pid == supervisor
    children.release("long", 5)
    rota.wait(job, code=5)


def test_suspended_scheduler_stops_after_another_took_its_home(rota: Rota, children: ChildControl) -> None:
    """Takes seconds: a starter waits for a scheduler that might put its lock back."""
    rota.expects_defects = True
    pid = rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    os.kill(pid, signal.SIGSTOP)
    (rota.home / "scheduler.lock").unlink()
    rota.socket.unlink()
    other = rota.start()
    assert other != pid
    os.kill(pid, signal.SIGCONT)
    assert exits_within(pid, 20)
    assert rota.scheduler_pid == other
    children.release("long", 5)
    rota.wait(job, code=5)


def test_down_without_scheduler_names_the_jobs_of_the_supervisor(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(job)
    rota.crash()
    assert (
        f"rota: no scheduler is running; its supervisor still runs {job}: `rota up` adopts it\n"
        in rota.run("down", "--dry-run").err
    )
    assert rota.json("down", "--dry-run")["running"] == [job]
    output = rota.run("down", "--kill", code=1)
    assert f"no scheduler is running\nrota: its supervisor still runs {job}: `rota up` adopts it, then" in output.err
    rota.start()
    assert rota.run("down", "--kill", "--grace", "0s").err.endswith("rota: stopped\n")
    assert rota.processes() == {}


def test_up_and_down_of_an_empty_home(rota: Rota) -> None:
    for _ in range(2):
        pid = rota.start()
        assert rota.start() == pid
        for stopped in (True, False):
            assert rota.json("down", "--kill") == {"stopped": stopped, "left_running": []}
        assert rota.processes() == {}
