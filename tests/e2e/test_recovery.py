"""§6 Recovery with real processes: what is found after a crash, that it is said, and that once is enough."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from e2e.rig import Rota, Stage, ends_within, eventually, kill, lives


def recovered(rota: Rota) -> dict[str, int]:
    return {what: count for what, count in rota.status()["recovery"].items() if count}


def crash_both(rota: Rota) -> None:
    """The scheduler first: a living one would start a new supervisor at once."""
    supervisor = rota.supervisor
    rota.crash()
    kill(supervisor)


def recover_again(rota: Rota, *, adopted: int = 0) -> None:
    """Twice more, with and without the supervisor: nothing changes but who watches."""
    before = rota.jobs()
    for crash in (rota.crash, lambda: crash_both(rota)):
        crash()
        rota.start()
        assert recovered(rota) == ({"running_jobs_adopted": adopted} if adopted else {})
        assert rota.jobs() == before


def reports(rota: Rota) -> list[dict[str, int]]:
    with closing(sqlite3.connect(rota.home / "rota.db")) as database:
        rows = database.execute("SELECT data FROM event WHERE kind = 'scheduler.recovered' ORDER BY seq").fetchall()
    return [json.loads(data) for (data,) in rows]


def test_up_says_what_was_recovered_and_nothing_where_nothing_was(rota: Rota, stage: Stage) -> None:
    assert "recovered" not in rota.ask("up").out
    rota.set_global(-1)
    stays, goes = rota.post(stage.actor("stays")), rota.post(stage.actor("goes"))
    stage.hear(2)
    rota.running(stays)
    rota.running(goes)
    rota.crash()
    stage.release("goes", 3)
    assert stage.hear() == ["goes ends"]
    said = rota.ask("up")
    assert [line for line in said.lines if line.startswith("recovered")] == [
        "recovered  running jobs adopted: 1",
        "recovered  finished while away: 1",
    ]
    assert said.err == ""
    status = rota.json("up")
    assert status["recovery"] == {
        "running_jobs_adopted": 1, "running_jobs_recovered": 0, "finished_while_away": 1, "requeued": 0,
        "slots_expired": 0, "retries_created": 0, "groups_recovered": 0, "errors": 0,
    }  # fmt: skip
    assert rota.ended(goes)["exit_code"] == 3
    stage.release("stays")
    rota.ended(stays)
    rota.ask("down")
    assert "recovered" not in rota.ask("up").out
    assert reports(rota) == [{"running_jobs_adopted": 1, "finished_while_away": 1}]


def test_what_was_recovered_once_is_not_recovered_again(rota: Rota, stage: Stage) -> None:
    """LESSONS Retry: every restart "recovered" all of history. Alive, ended unseen, queued: twice changes nothing."""
    rota.start()
    rota.set_global(2)
    survivor, lost = rota.post(stage.actor("survivor")), rota.post(stage.actor("lost"))
    stage.hear(2)
    pid, gone = rota.running(survivor)["pid"], rota.running(lost)["pid"]
    held = rota.post(stage.walk_on("held"), delay="1h")
    crash_both(rota)
    kill(gone)
    rota.start()
    assert recovered(rota) == {"running_jobs_adopted": 1, "running_jobs_recovered": 1}
    assert rota.ended(lost)["reason"] == "Scheduler crash recovery"
    recover_again(rota, adopted=1)
    shown = rota.show(survivor)
    assert (shown["status"], shown["pid"], rota.show(held)["status"]) == ("RUNNING", pid, "QUEUED")
    assert lives(pid)
    stage.release("survivor")
    assert rota.ended(survivor)["reason"] == "exit status unknown"
    recover_again(rota)
    assert stage.heard() == ["survivor ends"]


@pytest.mark.parametrize("kept", [0, 0.5, -1], ids=["lost", "half", "all but its end"])
def test_a_journal_torn_in_its_last_line(rota: Rota, stage: Stage, kept: float) -> None:
    """The supervisor was killed while it wrote the pid down: the child is found by its tag."""
    rota.start()
    job = rota.post(stage.actor("torn"))
    assert stage.hear() == ["torn begins"]
    pid = rota.running(job)["pid"]
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
    assert recovered(rota) == {"running_jobs_adopted": 1}
    recover_again(rota, adopted=1)
    stage.release("torn", 3)
    assert rota.ended(job)["reason"] == "exit status unknown"
    assert stage.heard() == ["torn ends"]


def test_a_process_that_the_store_does_not_know_is_ended(rota: Rota, stage: Stage) -> None:
    """An older copy of the database was put back while a job ran: nobody would ever book its end."""
    rota.start()
    before = rota.post(stage.walk_on("before"))
    rota.ended(before)
    rota.ask("down")
    database = rota.home / "rota.db"
    shutil.copy(database, rota.home.parent / "older.db")
    rota.start()
    job = rota.post(stage.actor("unknown"))
    stage.hear(3)
    pid, supervisor = rota.running(job)["pid"], rota.supervisor
    rota.crash()
    for path in rota.home.glob("rota.db*"):
        path.unlink()
    shutil.copy(rota.home.parent / "older.db", database)
    with closing(sqlite3.connect(database)) as older:
        older.execute("UPDATE meta SET value = '1000' WHERE key = 'epoch'")  # later than whoever the supervisor knew
        older.commit()
    rota.start()
    assert ends_within(pid)
    assert rota.supervisor == supervisor
    assert [shown["id"] for shown in rota.jobs()] == [before]
    assert "run-2" in (rota.home / "rota.log").read_text(), "it is said"
    recover_again(rota)
    assert rota.ended(rota.post(stage.walk_on("after")))["status"] == "COMPLETED"


def files(rota: Rota, job: str) -> dict[str, Any]:
    folder = rota.home / "jobs" / job.removeprefix("job-")
    found = {}
    for path in folder.glob("*.*"):
        try:
            found[path.name] = json.loads(path.read_bytes()) if path.suffix == ".json" else None
        except ValueError:
            found[path.name] = "not whole"
    return found


def test_files_that_a_crash_left_by_half(rota: Rota, stage: Stage) -> None:
    """They are for people: nobody recovers from them, and they are whole again after the next start."""
    rota.start()
    job = rota.post(stage.walk_on("done", 3))
    shown = rota.ended(job)
    eventually(lambda: files(rota, job).get("outcome.json"), what="outcome.json")
    rota.crash()
    folder = rota.home / "jobs" / job.removeprefix("job-")
    for name in ("job", "outcome"):
        half = (folder / f"{name}.json").read_bytes()[:40]
        (folder / f"{name}.json").write_bytes(half)
        (folder / f"{name}.tmp").write_bytes(half)
    for _ in range(2):
        rota.start()
        assert rota.show(job) == shown
        assert recovered(rota) == {}
        eventually(lambda: files(rota, job).get("outcome.json") == shown, what="outcome.json whole again")
        assert files(rota, job) == {
            "job.json": shown, "outcome.json": shown, "stdout.log": None, "stderr.log": None,
        }  # fmt: skip
        rota.crash()


def test_a_supervisor_whose_socket_was_removed_is_found_again(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("job"))
    assert stage.hear() == ["job begins"]
    rota.running(job)
    supervisor = rota.supervisor
    (rota.home / "supervisor.sock").unlink()
    rota.crash()
    rota.start()
    eventually(lambda: rota.status()["supervisor_pid"] == supervisor, what="the same supervisor")
    stage.release("job", 3)
    assert rota.ended(job)["exit_code"] == 3
    log = (rota.home / "supervisor.log").read_text()
    assert log.count("the socket was removed; it is made anew") == 1
    rota.ask("down")
    assert ends_within(supervisor)
    # One that was started while there was none may have waited for its lock: it leaves too, having nothing to do.
    eventually(lambda: not (rota.home / "supervisor.sock").exists(), what="its own going with it")
