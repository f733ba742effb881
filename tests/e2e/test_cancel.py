"""§5 Cancel: the whole tree, and CANCELLED only when it is gone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from e2e.rig import Rota, Stage, ends_within, kill, lives

TREE = """
import os, signal, sys
pipe, gate, stubborn = sys.argv[1:]
heard, spoken = os.pipe()

def act(name):
    if "stubborn" in stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(pipe, "w") as told:
        told.write(f"{name} {os.getpid()}\\n")
    os.write(spoken, b".")
    with open(gate) as waiting:
        waiting.read()

if os.fork() == 0:
    act("child")
elif os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        act("grandchild")
elif "alone" not in stubborn:
    act("main")
else:
    for _ in range(2):
        os.read(heard, 1)
"""
"""Three processes: main, child, and a grandchild that left the session and lost its parent. `alone`, main just ends,
once both have spoken."""


def _tree(rota: Rota, stage: Stage, kind: str) -> tuple[str, dict[str, int]]:
    """A job with three processes: main, child, and a grandchild that left the session and lost its parent."""
    gate = stage.gate(kind)
    job = rota.post([sys.executable, "-c", TREE, str(stage.pipe), str(gate), kind])
    return job, {name: int(pid) for name, pid in (line.split() for line in stage.hear(3))}


def test_the_whole_tree_ends(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: cancel signalled one pid; 142 orphans held 56 GB; 116 leaked processes."""
    rota.start()
    job, tree = _tree(rota, stage, "willing")
    assert rota.running(job)["pid"] == tree["main"]
    said = rota.ask("cancel", job)
    assert said.out == f"{job} CANCELLED\n"
    assert not [name for name, pid in tree.items() if lives(pid)]
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"]) == ("CANCELLED", 143)
    assert (shown["run"]["status"], shown["run"]["exit_code"]) == ("CANCELLED", 143)
    assert shown["reason"].startswith("cancelled by ")
    rota.wait(job, code=143)


def test_who_ignores_term_is_killed_and_not_before_is_it_cancelled(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: cancelled recorded at once though the child lived on; SIGTERM never escalated."""
    rota.ask("config", "set", "scheduler.kill_after", "700ms")
    rota.start()
    job, tree = _tree(rota, stage, "stubborn")
    waiting = rota.post(stage.walk_on("waiting"))
    cancelling = rota.begin("cancel", job)
    # The first moment at which the job is anything but RUNNING:
    shown = rota.leaves(job, "RUNNING")
    assert shown["status"] == "CANCELLED"
    assert not [name for name, pid in tree.items() if lives(pid)]
    assert rota.end(cancelling).code == 0
    assert rota.ended(waiting)["started_at"] >= shown["finished_at"]


@pytest.mark.parametrize("kind", ["alone", "alone stubborn"])
def test_what_a_job_leaves_behind_ends_with_it(rota: Rota, stage: Stage, kind: str) -> None:
    """LESSONS Processes: 116 leaked processes. The main process ends well; its children are not its heirs, and until
    the last of them is gone the job runs."""
    rota.ask("config", "set", "scheduler.kill_after", "700ms")
    rota.start()
    gate = stage.gate("alone")
    job = rota.post([sys.executable, "-c", TREE, str(stage.pipe), str(gate), kind])
    pids = [int(line.split()[1]) for line in stage.hear(2)]
    shown = rota.leaves(job, "RUNNING")
    assert (shown["status"], shown["exit_code"]) == ("COMPLETED", 0)
    assert not [pid for pid in pids if lives(pid)]


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"timeout": "500ms"}, "timed out after 500ms"),
        ({"idle_timeout": "500ms"}, "timed out after 500ms without output"),
    ],
    ids=["timeout", "idle_timeout"],
)
def test_a_limit_ends_the_whole_tree_and_not_before_has_it_failed(
    rota: Rota, stage: Stage, limit: dict[str, str], reason: str
) -> None:
    """LESSONS Processes: SIGTERM never escalated; alive but stuck for 12.5 h. Child and grandchild are deaf to TERM,
    and one has left the session."""
    rota.ask("config", "set", "scheduler.kill_after", "500ms")
    rota.start()
    gate = stage.gate("deaf")
    job = rota.post([sys.executable, "-c", TREE, str(stage.pipe), str(gate), "stubborn"], **limit)
    waiting = rota.post(stage.walk_on("waiting"))
    tree = {name: int(pid) for name, pid in (line.split() for line in stage.hear(3))}
    shown = rota.leaves(job, "RUNNING")
    assert not [name for name, pid in tree.items() if lives(pid)]
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, reason)
    assert (shown["run"]["status"], shown["run"]["exit_code"]) == ("FAILED", 124)
    assert rota.ended(waiting)["started_at"] >= shown["finished_at"]


def test_a_cancel_and_an_end_that_meet_are_decided_once(rota: Rota, stage: Stage) -> None:
    """LESSONS Retry: a COMPLETED run was overwritten to FAILED; a success later marked failed. Whoever wins, the job,
    its run, its files and the answer to the one who cancelled say the same."""
    rota.start()
    seen = set()
    for turns in (0, 100, 300, 1000, 3000, 10_000, 10_000_000) * 4:
        script = f"echo begins > {stage.pipe}; i=0; while [ $i -lt {turns} ]; do i=$((i+1)); done"
        job = rota.post(["sh", "-c", script])
        assert stage.hear() == ["begins"]
        answer = rota.api("POST", f"/api/jobs/{job}/cancel")
        shown = rota.ended(job)
        outcome = (shown["status"], shown["exit_code"])
        seen.add(outcome)
        assert outcome in {("COMPLETED", 0), ("CANCELLED", 143)}
        assert (shown["run"]["status"], shown["run"]["exit_code"]) == outcome
        assert answer.status in ({200, 202} if shown["status"] == "CANCELLED" else {200, 202, 409})
        assert rota.show(job) == shown
    assert ("CANCELLED", 143) in seen
    rota.ask("down")
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        query = "SELECT job, count(*) FROM event WHERE kind IN ('job.completed', 'job.cancelled') GROUP BY job"
        assert dict(database.execute(query).fetchall()) == dict.fromkeys(range(1, 29), 1)


def test_strangers_survive(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: a foreign process was killed. Other jobs, other homes' children and bystanders live on."""
    rota.start()
    rota.set_global(-1)
    bystander = subprocess.Popen(["sh", "-c", f"read x < {stage.gate('bystander')}"], env=rota.env)
    try:
        other = rota.post(stage.actor("other"))
        job = rota.post(stage.actor("victim"))
        stage.hear(2)
        pid = rota.running(other)["pid"]
        rota.ask("cancel", job)
        assert lives(pid)
        assert bystander.poll() is None
        stage.release("other", 3)
        rota.wait(other, code=3)
        assert bystander.poll() is None, "not even at the end of a job, though it carries the home's name"
    finally:
        kill(bystander.pid)
        bystander.wait()


def test_a_waiting_job_ends_at_once_and_without_a_run(rota: Rota, stage: Stage) -> None:
    rota.start()
    runs = rota.post(stage.actor("runs"))
    queued = rota.post(stage.walk_on("queued"))
    delayed = rota.post(stage.walk_on("delayed"), delay="1h")
    behind = rota.post(stage.walk_on("behind"), after=[{"job": queued}])
    locked = rota.post(stage.walk_on("locked"), after=[{"job": runs}], locks=[{"key": "k"}])
    said = rota.ask("cancel", queued, delayed, locked)
    assert said.lines == [f"{job} CANCELLED" for job in (queued, delayed, locked)]
    for job in (queued, delayed, locked):
        shown = rota.show(job)
        assert (shown["status"], shown["exit_code"], shown["run"], shown["wait"]) == ("CANCELLED", 143, None, None)
    assert rota.ended(behind)["reason"] == f"dependency failed for job {queued} (CANCELLED)"
    stage.release("runs")
    rota.ended(runs)
    assert stage.heard() == ["runs begins", "runs ends"]


def test_what_has_ended_cannot_be_cancelled_and_twice_is_fine(rota: Rota, stage: Stage) -> None:
    """LESSONS Retry: a COMPLETED run was overwritten to FAILED; a success later marked failed."""
    rota.start()
    done, running = rota.post(stage.walk_on("done")), rota.post(stage.actor("running"))
    before = rota.ended(done)
    said = rota.ask("cancel", done, running, code=4)
    assert said.err == f"rota: {done} has already ended (COMPLETED); nothing was changed\n"
    assert said.out == f"{running} CANCELLED\n", "one that has ended does not save the other"
    assert rota.show(done) == before
    assert rota.ask("cancel", running).out == f"{running} CANCELLED\n"
    rota.ask("cancel", running, "job-99", code=3)


def test_a_fork_bomb_of_sleepers_is_outrun(rota: Rota, stage: Stage) -> None:
    """Processes that appear between looking and signalling are found again."""
    rota.ask("config", "set", "scheduler.kill_after", "300ms")
    rota.start()
    one = f"setsid sh -c 'trap \"\" TERM; read x < {stage.gate('many')}' &"
    script = f"trap '' TERM; echo begins > {stage.pipe}; i=0; while [ $i -lt 400 ]; do {one} i=$((i+1)); done; wait"
    job = rota.post(["sh", "-c", script])
    assert stage.hear() == ["begins"]
    pid = rota.running(job)["pid"]
    rota.ask("cancel", job)
    assert ends_within(pid, 0)
    assert not [words for words in rota.processes().values() if str(stage.path) in " ".join(words)]


def test_of_several_those_that_wait_go_first_so_that_none_begins_meanwhile(rota: Rota, stage: Stage) -> None:
    rota.start()
    running = rota.post(stage.actor("running"))
    assert stage.hear() == ["running begins"]
    waiting = [rota.post(stage.walk_on(name)) for name in "ab"]
    said = rota.ask("cancel", running, *waiting)
    assert said.lines == [f"{job} CANCELLED" for job in (*waiting, running)]
    assert stage.heard() == []
    assert [rota.show(job)["run"] for job in waiting] == [None, None]
