"""Cancel: the whole process tree ends, and the job is CANCELLED only when the tree is gone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.e2e.rig import ChildControl, Rota, exits_within, is_alive, kill

TREE = """
import os, signal, sys
pipe, gate, mode = sys.argv[1:]
report_reader, report_writer = os.pipe()

def play(name):
    if "stubborn" in mode:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(pipe, "w") as events:
        events.write(f"{name} {os.getpid()}\\n")
    os.write(report_writer, b".")
    with open(gate) as waiting:
        waiting.read()

if os.fork() == 0:
    play("child")
elif os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        play("grandchild")
elif "alone" not in mode:
    play("main")
else:
    for _ in range(2):
        os.read(report_reader, 1)
"""
"""Three processes: main, child, and a grandchild that left the session and lost its parent. With `alone`, main ends as
soon as both have reported."""


def _start_tree(rota: Rota, children: ChildControl, mode: str) -> tuple[str, dict[str, int]]:
    """Start a job with three processes. Return its id and their pids."""
    gate_path = children.make_gate(mode)
    job = rota.post_job([sys.executable, "-c", TREE, str(children.pipe), str(gate_path), mode])
    return job, {name: int(pid) for name, pid in (line.split() for line in children.read_lines(3))}


def test_cancel_ends_the_whole_process_tree(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: a cancel that signaled one pid left 142 orphans, which held 56 GB."""
    rota.start()
    job, tree = _start_tree(rota, children, "willing")
    assert rota.wait_for_start(job)["pid"] == tree["main"]
    output = rota.run("cancel", job)
    assert output.out == f"{job} CANCELLED\n"
    assert not [name for name, pid in tree.items() if is_alive(pid)]
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"]) == ("CANCELLED", 143)
    assert (shown["run"]["status"], shown["run"]["exit_code"]) == ("CANCELLED", 143)
    assert shown["reason"].startswith("cancelled by ")
    rota.wait(job, code=143)


def test_process_that_ignores_sigterm_is_killed_before_the_job_is_cancelled(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: a job was recorded as cancelled while its process, which ignored SIGTERM, lived on."""
    rota.run("config", "set", "scheduler.kill_after", "700ms")
    rota.start()
    job, tree = _start_tree(rota, children, "stubborn")
    waiting = rota.post_job(children.immediate("waiting"))
    cancelling = rota.spawn("cancel", job)
    # Returns at the first status other than RUNNING.
    shown = rota.wait_while(job, "RUNNING")
    assert shown["status"] == "CANCELLED"
    assert not [name for name, pid in tree.items() if is_alive(pid)]
    assert rota.finish(cancelling).code == 0
    assert rota.wait_for_end(waiting)["started_at"] >= shown["finished_at"]


@pytest.mark.parametrize("mode", ["alone", "alone stubborn"])
def test_background_processes_end_with_their_job(rota: Rota, children: ChildControl, mode: str) -> None:
    """LESSONS Processes: 116 processes outlived their jobs.

    The main process succeeds; the job runs until its children are gone.
    """
    rota.run("config", "set", "scheduler.kill_after", "700ms")
    rota.start()
    gate_path = children.make_gate("alone")
    job = rota.post_job([sys.executable, "-c", TREE, str(children.pipe), str(gate_path), mode])
    pids = [int(line.split()[1]) for line in children.read_lines(2)]
    shown = rota.wait_while(job, "RUNNING")
    assert (shown["status"], shown["exit_code"]) == ("COMPLETED", 0)
    assert not [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"timeout": "500ms"}, "timed out after 500ms"),
        ({"idle_timeout": "500ms"}, "timed out after 500ms without output"),
    ],
    ids=["timeout", "idle_timeout"],
)
def test_timeout_ends_the_whole_tree_before_the_job_fails(
    rota: Rota, children: ChildControl, limit: dict[str, str], reason: str
) -> None:
    """LESSONS Processes: a stuck process lived on for 12.5 h. Here all processes ignore SIGTERM as well."""
    rota.run("config", "set", "scheduler.kill_after", "500ms")
    rota.start()
    gate_path = children.make_gate("stubborn")
    job = rota.post_job([sys.executable, "-c", TREE, str(children.pipe), str(gate_path), "stubborn"], **limit)
    waiting = rota.post_job(children.immediate("waiting"))
    tree = {name: int(pid) for name, pid in (line.split() for line in children.read_lines(3))}
    shown = rota.wait_while(job, "RUNNING")
    assert not [name for name, pid in tree.items() if is_alive(pid)]
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, reason)
    assert (shown["run"]["status"], shown["run"]["exit_code"]) == ("FAILED", 124)
    assert rota.wait_for_end(waiting)["started_at"] >= shown["finished_at"]


def test_cancel_and_concurrent_exit_give_one_outcome(rota: Rota, children: ChildControl) -> None:
    """LESSONS Retry: a COMPLETED run was overwritten to FAILED; a success later marked failed.

    Job, run, files and the response to the cancel agree, whichever comes first.
    """
    rota.start()
    outcomes = set()
    for iterations in (0, 100, 300, 1000, 3000, 10_000, 10_000_000) * 4:
        script = f"echo begins > {children.pipe}; i=0; while [ $i -lt {iterations} ]; do i=$((i+1)); done"
        job = rota.post_job(["sh", "-c", script])
        assert children.read_lines() == ["begins"]
        response = rota.api("POST", f"/api/jobs/{job}/cancel")
        shown = rota.wait_for_end(job)
        outcome = (shown["status"], shown["exit_code"])
        outcomes.add(outcome)
        assert outcome in {("COMPLETED", 0), ("CANCELLED", 143)}
        assert (shown["run"]["status"], shown["run"]["exit_code"]) == outcome
        assert response.status in ({200, 202} if shown["status"] == "CANCELLED" else {200, 202, 409})
        assert rota.show(job) == shown
    assert ("CANCELLED", 143) in outcomes
    rota.run("down")
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        query = "SELECT job, count(*) FROM event WHERE kind IN ('job.completed', 'job.cancelled') GROUP BY job"
        assert dict(database.execute(query).fetchall()) == dict.fromkeys(range(1, 29), 1)


def test_cancel_spares_unrelated_processes(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: a foreign process was killed. Other jobs and processes outside of Rota survive."""
    rota.start()
    rota.set_global_size(-1)
    bystander = subprocess.Popen(["sh", "-c", f"read x < {children.make_gate('bystander')}"], env=rota.env)
    try:
        other = rota.post_job(children.gated("other"))
        job = rota.post_job(children.gated("victim"))
        children.read_lines(2)
        pid = rota.wait_for_start(other)["pid"]
        rota.run("cancel", job)
        assert is_alive(pid)
        assert bystander.poll() is None
        children.release("other", 3)
        rota.wait(other, code=3)
        assert bystander.poll() is None, "the end of a job does not kill it although its environment names the home"
    finally:
        kill(bystander.pid)
        bystander.wait()


def test_cancelled_waiting_job_ends_immediately_without_a_run(rota: Rota, children: ChildControl) -> None:
    rota.start()
    runs = rota.post_job(children.gated("runs"))
    queued = rota.post_job(children.immediate("queued"))
    delayed = rota.post_job(children.immediate("delayed"), delay="1h")
    behind = rota.post_job(children.immediate("behind"), after=[{"job": queued}])
    locked = rota.post_job(children.immediate("locked"), after=[{"job": runs}], locks=[{"key": "k"}])
    output = rota.run("cancel", queued, delayed, locked)
    assert output.lines == [f"{job} CANCELLED" for job in (queued, delayed, locked)]
    for job in (queued, delayed, locked):
        shown = rota.show(job)
        assert (shown["status"], shown["exit_code"], shown["run"], shown["wait"]) == ("CANCELLED", 143, None, None)
    assert rota.wait_for_end(behind)["reason"] == f"dependency failed for job {queued} (CANCELLED)"
    children.release("runs")
    rota.wait_for_end(runs)
    assert children.read_available() == ["runs begins", "runs ends"]


def test_cancel_refuses_ended_jobs_and_is_idempotent(rota: Rota, children: ChildControl) -> None:
    """LESSONS Retry: a COMPLETED run was overwritten to FAILED; a success later marked failed."""
    rota.start()
    completed, running = rota.post_job(children.immediate("done")), rota.post_job(children.gated("running"))
    before = rota.wait_for_end(completed)
    output = rota.run("cancel", completed, running, code=4)
    assert output.err == f"rota: {completed} has already ended (COMPLETED); nothing was changed\n"
    assert output.out == f"{running} CANCELLED\n", "the ended job does not stop the cancel of the other"
    assert rota.show(completed) == before
    assert output.err.count("\n") == 1
    output = rota.run("cancel", running)
    assert output.out == f"{running} CANCELLED\n"
    assert output.err == f"rota: {running} was already cancelled; nothing was changed\n"
    output = rota.run("cancel", "schedule-1", code=3)
    assert output.err == (
        "rota: schedule-1 is not a job or a group; `rota schedule remove schedule-1` removes a schedule\n"
    )
    rota.run("cancel", running, "job-99", code=3)


def test_cancel_ends_a_fork_bomb(rota: Rota, children: ChildControl) -> None:
    """Processes that are forked between the scan and the signal are signaled too."""
    rota.run("config", "set", "scheduler.kill_after", "300ms")
    rota.start()
    sleeper = f"setsid sh -c 'trap \"\" TERM; read x < {children.make_gate('many')}' &"
    script = (
        f"trap '' TERM; echo begins > {children.pipe}; i=0; while [ $i -lt 400 ]; do {sleeper} i=$((i+1)); done; wait"
    )
    job = rota.post_job(["sh", "-c", script])
    assert children.read_lines() == ["begins"]
    pid = rota.wait_for_start(job)["pid"]
    rota.run("cancel", job)
    assert exits_within(pid, 0)
    assert not [words for words in rota.processes().values() if str(children.path) in " ".join(words)]


def test_cancel_of_several_jobs_cancels_waiting_jobs_first(rota: Rota, children: ChildControl) -> None:
    rota.start()
    running = rota.post_job(children.gated("running"))
    assert children.read_lines() == ["running begins"]
    waiting = [rota.post_job(children.immediate(name)) for name in "ab"]
    output = rota.run("cancel", running, *waiting)
    assert output.lines == [f"{job} CANCELLED" for job in (*waiting, running)]
    assert children.read_available() == []
    assert [rota.show(job)["run"] for job in waiting] == [None, None]
