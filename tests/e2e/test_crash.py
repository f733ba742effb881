"""§6: the scheduler, its supervisor or both are killed, and nothing is lost, done twice or made up."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess

from e2e.rig import Rota, Stage, ends_within, kill, lives


def recovered(rota: Rota) -> dict[str, int]:
    """What the last start found to recover."""
    return {what: count for what, count in rota.status()["recovery"].items() if count}


def three_crashes_in_a_row(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: daemon restart marked running work killed; crash → retried while the orphan still ran.
    LESSONS Dispatch: a killed scheduler left its lock file; every later command hung."""
    rota.start()
    rota.set_global(2)
    long = rota.post(stage.actor("long"))
    assert stage.hear() == ["long begins"]
    pid = rota.running(long)["pid"]
    supervisor = rota.supervisor
    for crash in range(3):
        short = rota.post(stage.actor(f"short{crash}"))
        queued = [rota.post(stage.walk_on(f"{name}{crash}")) for name in ("first", "second")]
        behind = rota.post(stage.walk_on(f"behind{crash}"), after=[{"job": short, "policy": "failed"}])
        assert stage.hear() == [f"short{crash} begins"]
        rota.running(short)
        rota.crash()
        stage.release(f"short{crash}", 10 + crash)
        assert stage.hear() == [f"short{crash} ends"]
        assert stage.heard() == [], "without a scheduler nothing starts"
        # The next command of any kind brings it back, with the true exit code of what ended meanwhile.
        rota.wait(short, code=10 + crash)
        shown = rota.show(long)
        assert (shown["status"], shown["pid"], shown["run"]["id"]) == ("RUNNING", pid, "run-1")
        assert lives(pid)
        assert recovered(rota) == {"running_jobs_adopted": 1, "finished_while_away": 1}
        assert rota.supervisor == supervisor
        for job in (*queued, behind):
            assert rota.ended(job)["status"] == "COMPLETED"
        assert stage.heard() == [
            f"{name}{crash} {act}" for name in ("first", "second", "behind") for act in ("begins", "ends")
        ]
    stage.release("long", 42)
    rota.wait(long, code=42)
    assert rota.show(long)["reason"] == "exit code 42"
    assert len(rota.schedulers()) == 1


def test_three_crashes_in_a_row(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: daemon restart marked running work killed and paused queues.
    LESSONS Dispatch: a killed scheduler left its lock file; every later command hung."""
    three_crashes_in_a_row(rota, stage)


def a_claimed_job_that_never_started_returns_to_its_place(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: child started before its claim was durable."""
    scheduler = rota.start()
    supervisor = rota.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    claimed = rota.post(stage.walk_on("claimed"))
    behind = rota.post(stage.walk_on("behind"))
    shown = rota.show(claimed)
    assert (shown["status"], shown["pid"]) == ("RUNNING", None), "claimed, and nobody knows of a child"
    assert rota.show(behind)["status"] == "QUEUED"
    kill(scheduler)
    kill(supervisor)
    rota.start()
    assert recovered(rota) == {"requeued": 1}
    assert rota.ended(claimed)["status"] == "COMPLETED"
    assert rota.ended(behind)["status"] == "COMPLETED"
    assert stage.heard() == ["claimed begins", "claimed ends", "behind begins", "behind ends"]
    assert rota.show(claimed)["dispatch_failures"] == 0


def test_a_claimed_job_that_never_started_returns_to_its_place(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: child started before its claim was durable."""
    a_claimed_job_that_never_started_returns_to_its_place(rota, stage)


def test_a_start_order_under_way_is_carried_out_once(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: 17 workers started for 4 items."""
    scheduler = rota.start()
    supervisor = rota.supervisor
    os.kill(supervisor, signal.SIGSTOP)
    job = rota.post(stage.walk_on("once"))
    kill(scheduler)
    starting = rota.begin("up")
    os.kill(supervisor, signal.SIGCONT)
    assert rota.end(starting).code == 0
    assert rota.supervisor == supervisor
    assert rota.ended(job)["status"] == "COMPLETED"
    assert stage.heard() == ["once begins", "once ends"]


def test_the_supervisor_is_killed_under_a_living_scheduler(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: crash → retried while the orphan still ran: work done twice. Here it is accounted for first:
    while it lives it runs, and holds what it holds."""
    scheduler = rota.start()
    rota.set_global(2)
    job = rota.post(stage.actor("orphan"), locks=[{"key": "repo"}])
    waiting = rota.post(stage.walk_on("waiting"), locks=[{"key": "repo"}])
    assert stage.hear() == ["orphan begins"]
    pid = rota.running(job)["pid"]
    old = rota.supervisor
    kill(old)
    fresh = rota.post(stage.walk_on("fresh"))
    assert rota.ended(fresh)["status"] == "COMPLETED"
    assert stage.hear(2) == ["fresh begins", "fresh ends"]
    assert rota.supervisor != old
    assert rota.scheduler == scheduler
    shown = rota.show(job)
    assert (shown["status"], shown["pid"]) == ("RUNNING", pid), "it lives, so it runs"
    assert rota.show(waiting)["status"] == "WAITING_ON_LOCKS", "and keeps its lock"
    stage.release("orphan")
    shown = rota.ended(job)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 1, "exit status unknown")
    assert shown["run"]["error"].startswith("exit status unknown")
    assert rota.ended(waiting)["status"] == "COMPLETED"
    assert stage.heard() == ["orphan ends", "waiting begins", "waiting ends"]


def test_both_are_killed(rota: Rota, stage: Stage) -> None:
    """What lives is watched; what ended while nobody looked is the one thing that nobody can account for."""
    rota.start()
    rota.set_global(2)
    survivor, lost = rota.post(stage.actor("survivor")), rota.post(stage.actor("lost"))
    queued = rota.post(stage.walk_on("queued"))
    assert sorted(stage.hear(2)) == ["lost begins", "survivor begins"]
    pid, gone = rota.running(survivor)["pid"], rota.running(lost)["pid"]
    supervisor = rota.supervisor
    rota.crash()
    kill(supervisor)
    stage.release("lost")
    assert stage.hear() == ["lost ends"]
    assert ends_within(gone)
    rota.start()
    shown = rota.ended(lost)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 1, "Scheduler crash recovery")
    assert rota.ended(queued)["status"] == "COMPLETED"
    shown = rota.show(survivor)
    assert (shown["status"], shown["pid"], shown["run"]["id"]) == ("RUNNING", pid, "run-1")
    assert lives(pid)
    stage.release("survivor")
    assert rota.ended(survivor)["reason"] == "exit status unknown"
    assert stage.heard() == ["queued begins", "queued ends", "survivor ends"]


def test_an_orphan_can_still_be_cancelled(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("orphan"))
    assert stage.hear() == ["orphan begins"]
    pid = rota.running(job)["pid"]
    supervisor = rota.supervisor
    rota.crash()
    kill(supervisor)
    assert lives(pid)
    assert rota.ask("cancel", job).out == f"{job} CANCELLED\n"
    assert not lives(pid)
    rota.wait(job, code=143)


def test_what_has_ended_stays_ended(rota: Rota, stage: Stage) -> None:
    """LESSONS Retry: every restart "recovered" all of history. Recovery is idempotent, terminal is terminal."""
    rota.start()
    jobs = [rota.post(stage.walk_on(f"old{number}", number)) for number in range(3)]
    for job in jobs:
        rota.ended(job)
    before = rota.jobs()
    for _ in range(2):
        rota.crash()
        rota.start()
        assert recovered(rota) == {}
    assert rota.jobs() == before
    assert len(stage.heard()) == 6


def test_delays_and_limits_outlive_a_crash(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(-1)
    limited = rota.post(stage.actor("limited"), timeout="1500ms")
    delayed = rota.post(stage.walk_on("delayed"), delay="1s")
    assert stage.hear() == ["limited begins"]
    before = rota.show(delayed)
    rota.crash()
    rota.start()
    after = rota.show(delayed)
    assert after["not_before"] == before["not_before"]
    shown = rota.ended(limited)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, "timed out after 1.5s")
    assert rota.ended(delayed)["started_at"] >= before["not_before"]


def test_a_cancel_outlives_a_crash(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: kill signal survived a requeue. It is asked to end, will not, and the scheduler dies."""
    rota.ask("config", "set", "scheduler.kill_after", "1s")
    rota.start()
    said, gate = stage.pipe, stage.gate("stubborn")
    script = f"trap 'echo asked to end > {said}' TERM; echo begins > {said}; while :; do read x < {gate}; done"
    job = rota.post(["sh", "-c", script])
    assert stage.hear() == ["begins"]
    pid = rota.running(job)["pid"]
    cancelling = rota.begin("cancel", job)
    assert stage.hear() == ["asked to end"]
    rota.crash()
    rota.end(cancelling)
    rota.wait(job, code=143)
    assert not lives(pid)
    shown = rota.show(job)
    assert (shown["status"], shown["run"]["status"]) == ("CANCELLED", "CANCELLED")


def test_a_stopped_child_is_not_a_dead_one(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: a healthy worker was killed for a stale heartbeat during a long call."""
    rota.start()
    job = rota.post(stage.actor("sleeper"))
    assert stage.hear() == ["sleeper begins"]
    pid = rota.running(job)["pid"]
    os.kill(pid, signal.SIGSTOP)
    rota.crash()
    rota.start()
    assert rota.show(job)["status"] == "RUNNING"
    os.kill(pid, signal.SIGCONT)
    stage.release("sleeper")
    assert rota.ended(job)["status"] == "COMPLETED"


def _rewrite_journal(rota: Rota, **changes: object) -> None:
    """As if the supervisor had written other values; both it and the scheduler are dead."""
    journal = rota.home / "supervisor.journal"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps({**each, **_known(each, changes)}) + "\n" for each in records))


def _known(record: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in changes.items() if name in record}


def test_a_pid_that_is_somebody_elses_by_now(rota: Rota, stage: Stage) -> None:
    """LESSONS Processes: a foreign process was killed (pid reuse). A pid counts only with its start time."""
    rota.start()
    job = rota.post(stage.actor("old"))
    assert stage.hear() == ["old begins"]
    pid = rota.running(job)["pid"]
    supervisor = rota.supervisor
    rota.crash()
    kill(supervisor)
    kill(pid)
    with subprocess.Popen(["sh", "-c", f"read x < {stage.gate('bystander')}"], start_new_session=True) as bystander:
        try:
            _rewrite_journal(rota, pid=bystander.pid)
            rota.start()
            shown = rota.ended(job)
            assert (shown["status"], shown["reason"]) == ("FAILED", "Scheduler crash recovery")
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_nothing_is_adopted_after_a_reboot(rota: Rota, stage: Stage) -> None:
    """Identity is boot id, pid and start time: after a reboot the same numbers are somebody else."""
    rota.start()
    job = rota.post(stage.actor("before"))
    assert stage.hear() == ["before begins"]
    pid = rota.running(job)["pid"]
    supervisor = rota.supervisor
    rota.crash()
    kill(supervisor)
    _rewrite_journal(rota, boot="00000000-0000-0000-0000-000000000000")
    rota.start()
    assert rota.ended(job)["reason"] == "Scheduler crash recovery"
    assert recovered(rota) == {"running_jobs_recovered": 1}
    before = rota.jobs()
    rota.crash()
    rota.start()
    assert (recovered(rota), rota.jobs()) == ({}, before)
    assert lives(pid), "whoever it is, it is not signalled"
    assert rota.ended(rota.post(stage.walk_on("after")))["status"] == "COMPLETED"


def test_a_record_that_cannot_be_used_fails_alone(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    rota.start()
    rota.set_global(0)
    bad, good = rota.post(["true"]), rota.post(stage.walk_on("good"))
    behind = rota.post(stage.walk_on("behind"), after=[{"job": bad, "policy": "failed"}])
    rota.ask("down")
    with sqlite3.connect(rota.home / "rota.db") as database:
        assert database.execute("UPDATE spec SET command = 'no JSON' WHERE id = 1").rowcount == 1
    database.close()
    rota.ask("config", "set", "pools.global", "1")
    rota.start()
    assert rota.ended(good)["status"] == "COMPLETED"
    assert rota.ended(behind)["status"] == "COMPLETED"
    assert stage.heard() == ["good begins", "good ends", "behind begins", "behind ends"]
    said = rota.ask("show", bad, code=None)
    assert "scheduler data error" in said.out + said.err
    assert rota.ask("list", "--all").code == 0
    rota.expects_defects = True
