"""Recovery with real processes: complete, reported, and done once."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive, kill


def recovery_counts(rota: Rota) -> dict[str, int]:
    return {name: count for name, count in rota.status()["recovery"].items() if count}


def crash_both(rota: Rota) -> None:
    """Kill the scheduler first: a running one would start a new supervisor."""
    supervisor = rota.supervisor_pid
    rota.crash()
    kill(supervisor)


def assert_second_recovery_changes_nothing(rota: Rota, *, adopted: int = 0) -> None:
    """Crash and recover twice, without and with the supervisor, and check that no job changes."""
    before = rota.jobs()
    for crash in (rota.crash, lambda: crash_both(rota)):
        crash()
        rota.start()
        assert recovery_counts(rota) == ({"running_jobs_adopted": adopted} if adopted else {})
        assert rota.jobs() == before


def recovery_events(rota: Rota) -> list[dict[str, int]]:
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        rows = database.execute("SELECT data FROM event WHERE kind = 'scheduler.recovered' ORDER BY seq").fetchall()
    return [json.loads(data) for (data,) in rows]


def test_up_reports_recovery_only_after_a_crash(rota: Rota, children: ChildControl) -> None:
    assert "recovered" not in rota.run("up").out
    rota.set_global_size(-1)
    kept, finishing = rota.post_job(children.gated("stays")), rota.post_job(children.gated("goes"))
    children.read_lines(2)
    rota.wait_for_start(kept)
    rota.wait_for_start(finishing)
    rota.crash()
    children.release("goes", 3)
    assert children.read_lines() == ["goes ends"]
    output = rota.run("up")
    assert [line for line in output.lines if line.startswith("recovered")] == [
        "recovered  running jobs adopted: 1",
        "recovered  finished while down: 1",
    ]
    assert output.err == f"rota: started the scheduler in {rota.home}; `rota down` stops it\n"
    status = rota.json("up")
    assert status["recovery"] == {
        "running_jobs_adopted": 1,
        "running_jobs_recovered": 0,
        "finished_while_down": 1,
        "requeued": 0,
        "reservations_expired": 0,
        "retries_created": 0,
        "groups_recovered": 0,
        "unknown_runs_ended": 0,
        "errors": 0,
    }
    assert rota.wait_for_end(finishing)["exit_code"] == 3
    children.release("stays")
    rota.wait_for_end(kept)
    rota.run("down")
    assert "recovered" not in rota.run("up").out
    assert recovery_events(rota) == [{"running_jobs_adopted": 1, "finished_while_down": 1}]


def test_recovered_jobs_are_not_recovered_again(rota: Rota, children: ChildControl) -> None:
    """LESSONS Retry: every restart "recovered" all of history. Running, lost and queued jobs are recovered once."""
    rota.start()
    rota.set_global_size(2)
    survivor, lost = rota.post_job(children.gated("survivor")), rota.post_job(children.gated("lost"))
    children.read_lines(2)
    pid, lost_pid = rota.wait_for_start(survivor)["pid"], rota.wait_for_start(lost)["pid"]
    held = rota.post_job(children.immediate("held"), delay="1h")
    crash_both(rota)
    kill(lost_pid)
    rota.start()
    assert recovery_counts(rota) == {"running_jobs_adopted": 1, "running_jobs_recovered": 1}
    assert rota.wait_for_end(lost)["reason"] == "Scheduler crash recovery"
    assert_second_recovery_changes_nothing(rota, adopted=1)
    shown = rota.show(survivor)
    assert (shown["status"], shown["pid"], rota.show(held)["status"]) == ("RUNNING", pid, "QUEUED")
    assert is_alive(pid)
    children.release("survivor")
    assert rota.wait_for_end(survivor)["reason"] == "exit status unknown"
    assert_second_recovery_changes_nothing(rota)
    assert children.read_available() == ["survivor ends"]


@pytest.mark.parametrize("kept", [0, 0.5, -1], ids=["lost", "half", "without newline"])
def test_journal_with_a_torn_last_line(rota: Rota, children: ChildControl, kept: float) -> None:
    """The supervisor was killed while it recorded the pid. The child is found by its tag."""
    rota.start()
    job = rota.post_job(children.gated("torn"))
    assert children.read_lines() == ["torn begins"]
    pid = rota.wait_for_start(job)["pid"]
    crash_both(rota)
    journal = rota.home / "supervisor.journal"
    data = journal.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    assert b'"started"' in data[last:]
    length = len(data) - last
    journal.write_bytes(data[: last + int(kept * length) if kept >= 0 else -1])
    (rota.home / "supervisor.journal.new").write_bytes(data[:last])
    rota.start()
    shown = rota.show(job)
    assert (shown["status"], shown["pid"]) == ("RUNNING", pid)
    assert recovery_counts(rota) == {"running_jobs_adopted": 1}
    assert_second_recovery_changes_nothing(rota, adopted=1)
    children.release("torn", 3)
    assert rota.wait_for_end(job)["reason"] == "exit status unknown"
    assert children.read_available() == ["torn ends"]


def test_process_unknown_to_the_store_is_ended(rota: Rota, children: ChildControl) -> None:
    """An older copy of the database was restored while a job ran. It has no run for the process."""
    rota.start()
    before = rota.post_job(children.immediate("before"))
    rota.wait_for_end(before)
    rota.run("down")
    database = rota.home / "rota.db"
    shutil.copy(database, rota.home.parent / "older.db")
    rota.start()
    job = rota.post_job(children.gated("unknown"))
    children.read_lines(3)
    pid, supervisor = rota.wait_for_start(job)["pid"], rota.supervisor_pid
    rota.crash()
    for path in rota.home.glob("rota.db*"):
        path.unlink()
    shutil.copy(rota.home.parent / "older.db", database)
    with closing(sqlite3.connect(database)) as older:
        older.execute("UPDATE meta SET value = '1000' WHERE key = 'epoch'")  # newer than the last scheduler
        older.commit()
    assert "has lost records" in rota.run("up", code=1).err
    output = rota.run("up", "--accept-loss")
    assert "recovered  unknown runs ended: 1" in output.out
    assert f"rota: started the scheduler in {rota.home}" in output.err
    assert "rota: the next job is job-3" in output.err
    assert exits_within(pid)
    assert rota.supervisor_pid == supervisor
    assert [shown["id"] for shown in rota.jobs()] == [before]
    assert "run-2" in (rota.home / "rota.log").read_text(), "the log names the run"
    assert_second_recovery_changes_nothing(rota)
    assert rota.wait_for_end(rota.post_job(children.immediate("after")))["status"] == "COMPLETED"


def job_files(rota: Rota, job: str) -> dict[str, Any]:
    folder = rota.home / "jobs" / job.removeprefix("job-")
    contents = {}
    for path in folder.glob("*.*"):
        try:
            contents[path.name] = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        except ValueError:
            contents[path.name] = "incomplete"
    return contents


def test_half_written_job_files_are_rewritten(rota: Rota, children: ChildControl) -> None:
    """Recovery does not read job files. The next start writes them again."""
    rota.start()
    job = rota.post_job(children.immediate("done", 3))
    shown = rota.wait_for_end(job)
    stored = {**shown, "policies": None}
    eventually(lambda: job_files(rota, job).get("outcome.json"), description="outcome.json")
    rota.crash()
    folder = rota.home / "jobs" / job.removeprefix("job-")
    for name in ("job", "outcome"):
        truncated = (folder / f"{name}.json").read_bytes()[:40]
        (folder / f"{name}.json").write_bytes(truncated)
        (folder / f"{name}.tmp").write_bytes(truncated)
    for _ in range(2):
        rota.start()
        assert rota.show(job) == shown
        assert recovery_counts(rota) == {}
        eventually(lambda: job_files(rota, job).get("outcome.json") == stored, description="a complete outcome.json")
        assert job_files(rota, job) == {
            "job.json": stored,
            "outcome.json": stored,
            "stdout.log": None,
            "stderr.log": None,
        }
        rota.crash()


def test_supervisor_recreates_its_removed_socket(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("job"))
    assert children.read_lines() == ["job begins"]
    rota.wait_for_start(job)
    supervisor = rota.supervisor_pid
    (rota.home / "supervisor.sock").unlink()
    rota.crash()
    rota.start()
    eventually(lambda: rota.status()["supervisor_pid"] == supervisor, description="the same supervisor")
    children.release("job", 3)
    assert rota.wait_for_end(job)["exit_code"] == 3
    log = (rota.home / "supervisor.log").read_text()
    assert log.count("the socket was removed; created a new one") == 1
    rota.run("down")
    assert exits_within(supervisor)
    # A second supervisor may have waited for the lock; it exits because it has no work.
    eventually(lambda: not (rota.home / "supervisor.sock").exists(), description="supervisor.sock removed")
