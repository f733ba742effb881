"""After SIGKILL of the scheduler, its supervisor or both, no job is lost, repeated or given an invented result."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess

import pytest

from tests.e2e.rig import ChildControl, Rota, exits_within, is_alive, kill

pytestmark = pytest.mark.executable


def recovered(rota: Rota) -> dict[str, int]:
    """Return the nonzero recovery counts of the last start."""
    return {name: count for name, count in rota.status()["recovery"].items() if count}


def crash_three_times(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: daemon restart marked running work killed; crash → retried while the orphan still ran.
    LESSONS Dispatch: a killed scheduler left its lock file; every later command hung."""
    rota.start()
    rota.set_global_size(2)
    long = rota.post_job(children.gated("long"))
    assert children.read_lines() == ["long begins"]
    pid = rota.wait_for_start(long)["pid"]
    supervisor = rota.supervisor_pid
    for round_number in range(3):
        short = rota.post_job(children.gated(f"short{round_number}"))
        queued = [rota.post_job(children.immediate(f"{name}{round_number}")) for name in ("first", "second")]
        behind = rota.post_job(children.immediate(f"behind{round_number}"), after=[{"job": short, "policy": "failed"}])
        assert children.read_lines() == [f"short{round_number} begins"]
        rota.wait_for_start(short)
        rota.crash()
        children.release(f"short{round_number}", 10 + round_number)
        assert children.read_lines() == [f"short{round_number} ends"]
        assert children.read_available() == [], "no job starts without a scheduler"
        # Any command starts the scheduler, which then reports the real exit code of the ended job.
        rota.wait(short, code=10 + round_number)
        shown = rota.show(long)
        assert (shown["status"], shown["pid"], shown["run"]["id"]) == ("RUNNING", pid, "run-1")
        assert is_alive(pid)
        assert recovered(rota) == {"running_jobs_adopted": 1, "finished_while_down": 1}
        assert rota.supervisor_pid == supervisor
        for job in (*queued, behind):
            assert rota.wait_for_end(job)["status"] == "COMPLETED"
        assert children.read_available() == [
            f"{name}{round_number} {step}" for name in ("first", "second", "behind") for step in ("begins", "ends")
        ]
    children.release("long", 42)
    rota.wait(long, code=42)
    assert rota.show(long)["reason"] == "exit code 42"
    assert len(rota.schedulers()) == 1


def test_jobs_survive_three_scheduler_crashes(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: daemon restart marked running work killed and paused queues.
    LESSONS Dispatch: a killed scheduler left its lock file; every later command hung."""
    crash_three_times(rota, children)


def crash_before_a_claimed_job_starts(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: child started before its claim was durable."""
    scheduler = rota.start()
    supervisor = rota.supervisor_pid
    os.kill(supervisor, signal.SIGSTOP)
    claimed = rota.post_job(children.immediate("claimed"))
    behind = rota.post_job(children.immediate("behind"))
    shown = rota.show(claimed)
    assert (shown["status"], shown["pid"]) == ("RUNNING", None), "claimed, without a confirmed start"
    assert rota.show(behind)["status"] == "QUEUED"
    kill(scheduler)
    kill(supervisor)
    rota.start()
    assert recovered(rota) == {"requeued": 1}
    assert rota.wait_for_end(claimed)["status"] == "COMPLETED"
    assert rota.wait_for_end(behind)["status"] == "COMPLETED"
    assert children.read_available() == ["claimed begins", "claimed ends", "behind begins", "behind ends"]
    assert rota.show(claimed)["dispatch_failures"] == 0


def test_claimed_job_that_never_started_is_requeued_in_place(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: child started before its claim was durable."""
    crash_before_a_claimed_job_starts(rota, children)


def test_start_order_in_progress_is_executed_once(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: 17 workers started for 4 items."""
    scheduler = rota.start()
    supervisor = rota.supervisor_pid
    os.kill(supervisor, signal.SIGSTOP)
    job = rota.post_job(children.immediate("once"))
    kill(scheduler)
    starting = rota.spawn("up")
    os.kill(supervisor, signal.SIGCONT)
    assert rota.finish(starting).code == 0
    assert rota.supervisor_pid == supervisor
    assert rota.wait_for_end(job)["status"] == "COMPLETED"
    assert children.read_available() == ["once begins", "once ends"]


def test_job_of_a_killed_supervisor_runs_on_and_keeps_its_lock(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: crash → retried while the orphan still ran: work done twice.

    The job is RUNNING and keeps its locks as long as its process lives.
    """
    scheduler = rota.start()
    rota.set_global_size(2)
    job = rota.post_job(children.gated("orphan"), locks=[{"key": "repo"}])
    waiting = rota.post_job(children.immediate("waiting"), locks=[{"key": "repo"}])
    assert children.read_lines() == ["orphan begins"]
    pid = rota.wait_for_start(job)["pid"]
    old = rota.supervisor_pid
    kill(old)
    fresh = rota.post_job(children.immediate("fresh"))
    assert rota.wait_for_end(fresh)["status"] == "COMPLETED"
    assert children.read_lines(2) == ["fresh begins", "fresh ends"]
    assert rota.supervisor_pid != old
    assert rota.scheduler_pid == scheduler
    shown = rota.show(job)
    assert (shown["status"], shown["pid"]) == ("RUNNING", pid), "the process lives, so the job is RUNNING"
    assert rota.show(waiting)["status"] == "WAITING_ON_LOCKS", "the job keeps its lock"
    children.release("orphan")
    shown = rota.wait_for_end(job)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", None, "exit status unknown")
    assert shown["run"]["error"].startswith("exit status unknown")
    assert rota.wait_for_end(waiting)["status"] == "COMPLETED"
    assert children.read_available() == ["orphan ends", "waiting begins", "waiting ends"]


def test_crash_of_scheduler_and_supervisor(rota: Rota, children: ChildControl) -> None:
    """A surviving process is adopted. The exit status of a process that ended without a supervisor is unknown."""
    rota.start()
    rota.set_global_size(2)
    survivor, lost = rota.post_job(children.gated("survivor")), rota.post_job(children.gated("lost"))
    queued = rota.post_job(children.immediate("queued"))
    assert sorted(children.read_lines(2)) == ["lost begins", "survivor begins"]
    pid, lost_pid = rota.wait_for_start(survivor)["pid"], rota.wait_for_start(lost)["pid"]
    supervisor = rota.supervisor_pid
    rota.crash()
    kill(supervisor)
    children.release("lost")
    assert children.read_lines() == ["lost ends"]
    assert exits_within(lost_pid)
    rota.start()
    shown = rota.wait_for_end(lost)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", None, "Scheduler crash recovery")
    assert rota.wait_for_end(queued)["status"] == "COMPLETED"
    shown = rota.show(survivor)
    assert (shown["status"], shown["pid"], shown["run"]["id"]) == ("RUNNING", pid, "run-1")
    assert is_alive(pid)
    children.release("survivor")
    assert rota.wait_for_end(survivor)["reason"] == "exit status unknown"
    assert children.read_available() == ["queued begins", "queued ends", "survivor ends"]


def test_orphaned_job_can_be_cancelled(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("orphan"))
    assert children.read_lines() == ["orphan begins"]
    pid = rota.wait_for_start(job)["pid"]
    supervisor = rota.supervisor_pid
    rota.crash()
    kill(supervisor)
    assert is_alive(pid)
    assert rota.run("cancel", job).out == f"{job} CANCELLED\n"
    assert not is_alive(pid)
    rota.wait(job, code=143)


def test_ended_jobs_are_not_recovered_again(rota: Rota, children: ChildControl) -> None:
    """LESSONS Retry: every restart "recovered" all of history. Ended jobs are not recovered again."""
    rota.start()
    jobs = [rota.post_job(children.immediate(f"old{number}", number)) for number in range(3)]
    for job in jobs:
        rota.wait_for_end(job)
    jobs_before = rota.jobs()
    for _ in range(2):
        rota.crash()
        rota.start()
        assert recovered(rota) == {}
    assert rota.jobs() == jobs_before
    assert len(children.read_available()) == 6


def test_delay_and_timeout_survive_a_crash(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(-1)
    limited = rota.post_job(children.gated("limited"), timeout="1500ms")
    delayed = rota.post_job(children.immediate("delayed"), delay="1s")
    assert children.read_lines() == ["limited begins"]
    jobs_before = rota.show(delayed)
    rota.crash()
    rota.start()
    after = rota.show(delayed)
    assert after["not_before"] == jobs_before["not_before"]
    shown = rota.wait_for_end(limited)
    assert (shown["status"], shown["exit_code"], shown["reason"]) == ("FAILED", 124, "timed out after 1.5s")
    assert rota.wait_for_end(delayed)["started_at"] >= jobs_before["not_before"]


def test_cancel_survives_a_crash(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: kill signal survived a requeue. The scheduler dies while the job ignores SIGTERM."""
    rota.run("config", "set", "scheduler.kill_after", "1s")
    rota.start()
    output, gate = children.pipe, children.make_gate("stubborn")
    script = f"trap 'echo asked to end > {output}' TERM; echo begins > {output}; while :; do read x < {gate}; done"
    job = rota.post_job(["sh", "-c", script])
    assert children.read_lines() == ["begins"]
    pid = rota.wait_for_start(job)["pid"]
    cancel_process = rota.spawn("cancel", job)
    assert children.read_lines() == ["asked to end"]
    rota.crash()
    rota.finish(cancel_process)
    rota.wait(job, code=143)
    assert not is_alive(pid)
    shown = rota.show(job)
    assert (shown["status"], shown["run"]["status"]) == ("CANCELLED", "CANCELLED")


def test_suspended_process_survives_recovery(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: a healthy worker was killed for a stale heartbeat during a long call."""
    rota.start()
    job = rota.post_job(children.gated("sleeper"))
    assert children.read_lines() == ["sleeper begins"]
    pid = rota.wait_for_start(job)["pid"]
    os.kill(pid, signal.SIGSTOP)
    rota.crash()
    rota.start()
    assert rota.show(job)["status"] == "RUNNING"
    os.kill(pid, signal.SIGCONT)
    children.release("sleeper")
    assert rota.wait_for_end(job)["status"] == "COMPLETED"


def _rewrite_journal(rota: Rota, **changes: object) -> None:
    """Replace values in the journal of the supervisor. Scheduler and supervisor must be dead."""
    journal = rota.home / "supervisor.journal"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_text(
        "".join(json.dumps({**record, **_existing_fields(record, changes)}) + "\n" for record in records)
    )


def _existing_fields(record: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in changes.items() if name in record}


def test_reused_pid_is_not_adopted_or_killed(rota: Rota, children: ChildControl) -> None:
    """LESSONS Processes: a foreign process was killed (pid reuse). A pid counts only with its start time."""
    rota.start()
    job = rota.post_job(children.gated("old"))
    assert children.read_lines() == ["old begins"]
    pid = rota.wait_for_start(job)["pid"]
    supervisor = rota.supervisor_pid
    rota.crash()
    kill(supervisor)
    kill(pid)
    with subprocess.Popen(
        ["sh", "-c", f"read x < {children.make_gate('bystander')}"], start_new_session=True
    ) as bystander:
        try:
            _rewrite_journal(rota, pid=bystander.pid)
            rota.start()
            shown = rota.wait_for_end(job)
            assert (shown["status"], shown["reason"]) == ("FAILED", "Scheduler crash recovery")
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_no_process_is_adopted_after_a_reboot(rota: Rota, children: ChildControl) -> None:
    """A process is identified by boot id, pid and start time. After a reboot the same pid is another process."""
    rota.start()
    job = rota.post_job(children.gated("before"))
    assert children.read_lines() == ["before begins"]
    pid = rota.wait_for_start(job)["pid"]
    supervisor = rota.supervisor_pid
    rota.crash()
    kill(supervisor)
    _rewrite_journal(rota, boot="00000000-0000-0000-0000-000000000000")
    rota.start()
    assert rota.wait_for_end(job)["reason"] == "Scheduler crash recovery"
    assert recovered(rota) == {"running_jobs_recovered": 1}
    jobs_before = rota.jobs()
    rota.crash()
    rota.start()
    assert (recovered(rota), rota.jobs()) == ({}, jobs_before)
    assert is_alive(pid), "the unknown process is not signaled"
    assert rota.wait_for_end(rota.post_job(children.immediate("after")))["status"] == "COMPLETED"


def test_unreadable_record_fails_alone(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all."""
    rota.start()
    rota.set_global_size(0)
    bad, good = rota.post_job(["true"]), rota.post_job(children.immediate("good"))
    behind = rota.post_job(children.immediate("behind"), after=[{"job": bad, "policy": "failed"}])
    rota.run("down")
    with sqlite3.connect(rota.home / "rota.db") as database:
        assert database.execute("UPDATE spec SET command = 'no JSON' WHERE id = 1").rowcount == 1
    database.close()
    rota.run("config", "set", "pools.global", "1")
    rota.start()
    assert rota.wait_for_end(good)["status"] == "COMPLETED"
    assert rota.wait_for_end(behind)["status"] == "COMPLETED"
    assert children.read_available() == ["good begins", "good ends", "behind begins", "behind ends"]
    output = rota.run("show", bad, code=None)
    assert "scheduler data error" in output.out + output.err
    assert rota.run("list", "--all").code == 0
    rota.expects_defects = True
