"""A backup of a home at work, and a home made of it."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.client import Client, slot
from e2e.rig import Rota, Stage, ends_within, eventually, lives


class Flow:
    """Jobs that come and go, as fast as they are taken."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.accepted: list[str] = []

    def _run(self) -> None:
        while not self._stopping.is_set():
            body = {"jobs": [{"command": ["true"]}] * 5}
            self.accepted += self._rota.api("POST", "/api/jobs/batch", body).json()["jobs"]

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()


def a_backup_under_load(rota: Rota, other: Rota, stage: Stage, file: Path) -> None:
    rota.start()
    rota.set_global(3)
    long = rota.post(stage.actor("long"), name="long")
    assert stage.hear() == ["long begins"]
    rota.running(long)
    waiting = rota.post(stage.walk_on("waiting"), after=[{"job": long, "policy": "finished"}])
    flow = Flow(rota)
    with flow.flowing():
        eventually(lambda: len(flow.accepted) >= 30, what="some jobs")
        accepted = list(flow.accepted)
        made = rota.json("backup", str(file))
        since = len(flow.accepted)
        eventually(lambda: len(flow.accepted) > since, what="more jobs: nobody was held up")
    assert made["jobs"] >= len(accepted) + 2
    assert rota.status()["trouble"] == []

    back = other.json("restore", str(file))
    assert (back["jobs"], back["runs"]) == (made["jobs"], made["runs"])
    other.start()
    assert other.status()["recovery"]["running_jobs_recovered"] >= 1
    assert set(accepted) | {long, waiting} <= {f"job-{number}" for number in range(1, made["jobs"] + 1)}
    shown = [other.ended(f"job-{number}") for number in range(1, made["jobs"] + 1)]
    assert len(shown) == made["jobs"], "every one that was accepted before, and every one has ended"
    assert other.ended(long)["reason"] == "Scheduler crash recovery"
    assert {job["status"] for job in shown} <= {"COMPLETED", "FAILED"}
    unlucky = [job for job in shown if job["status"] == "FAILED"]
    assert {job["reason"] for job in unlucky} == {"Scheduler crash recovery"}
    assert len(unlucky) <= 3, "no more than ran at that moment"
    assert stage.heard() == ["waiting begins", "waiting ends"]
    other.wait(other.submit("--", "true"))

    assert rota.show(long)["status"] == "RUNNING", "the original has not noticed"
    stage.release("long")
    rota.ended(waiting)


@pytest.fixture
def other(make_rota: Callable[..., Rota], tmp_path: Path) -> Rota:
    return make_rota(tmp_path / "other")


def test_a_backup_under_load(rota: Rota, other: Rota, stage: Stage, tmp_path: Path) -> None:
    a_backup_under_load(rota, other, stage, tmp_path / "backup.db")


def test_a_backup_under_load_on_postgres(
    rota: Rota, other: Rota, stage: Stage, tmp_path: Path, postgres_url: str
) -> None:
    rota.ask("config", "set", "store.url", postgres_url)
    a_backup_under_load(rota, other, stage, tmp_path / "backup.db")
    assert other.status()["store"] == str(other.home / "rota.db")
    assert rota.status()["store"].startswith("postgresql://")


def test_in_place_with_jobs_that_the_backup_does_not_know(rota: Rota, stage: Stage, tmp_path: Path) -> None:
    """§6 recovery, "process without run row": it is ended, and its job's number is never used again."""
    file = tmp_path / "backup.db"
    rota.start()
    rota.set_global(2)
    known = rota.post(stage.actor("known"))
    assert stage.hear() == ["known begins"]
    child = rota.running(known)["pid"]
    assert "what the jobs wrote is not in it" in rota.ask("backup", str(file)).err
    unknown = rota.post(["sh", "-c", f"echo $$ > {stage.pipe}; exec sleep 1000"])
    (stray,) = map(int, stage.hear())
    rota.running(unknown)
    refused = rota.ask("restore", str(file), "--force", code=4)
    assert "another scheduler" in refused.err
    rota.ask("down", "--grace", "0s")
    assert "has a database already" in rota.ask("restore", str(file), code=4).err
    said = rota.ask("restore", str(file), "--force")
    assert "if jobs of this home still run" in said.err
    assert "what was there before is in" in said.err
    assert lives(stray)
    said = rota.ask("up")
    assert "running jobs adopted: 1" in said.out
    assert ends_within(stray)
    assert rota.running(known)["pid"] == child
    assert rota.api("GET", f"/api/jobs/{unknown}").status == 404
    stage.release("known", 5)
    rota.wait(known, code=5)
    assert rota.submit("--", "true") == "job-3"


def test_a_direct_execution_that_had_not_begun_does_not_begin_after_a_restore(
    rota: Rota, stage: Stage, tmp_path: Path
) -> None:
    """Who asked for it is not there any more; and its number is not given out again."""
    rota.start()
    rota.set_global(0)
    direct = Client(rota, "--lock", "repo", *stage.walk_on("direct"))
    direct.says("slot-1: waiting on pool global")
    rota.ask("backup", str(tmp_path / "b.db"))
    rota.set_global(1)
    direct.end(0)
    assert stage.hear(2) == ["direct begins", "direct ends"]
    rota.ask("run", "--", "true")
    rota.ask("down")
    (rota.home / "rota.db").write_bytes(b"lost")
    rota.ask("restore", str(tmp_path / "b.db"), "--force")
    rota.ask("config", "set", "pools.global", "1")
    rota.start()
    assert rota.ended(rota.post(["true"], locks=[{"key": "repo"}]))["status"] == "COMPLETED"
    shown = slot(rota, "slot-1")
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "restored from a backup, without its client")
    assert stage.heard() == []
    assert rota.json("run", "--", "true")["id"] == "slot-3"


def test_without_a_scheduler_and_after_a_crash(rota: Rota, other: Rota, stage: Stage, tmp_path: Path) -> None:
    assert "nothing to back up" in rota.ask("backup", str(tmp_path / "b.db"), code=3).err
    rota.start()
    job = rota.post(["sh", "-c", "echo out; exit 3"])
    rota.ended(job)
    rota.crash()  # the newest records are in rota.db-wal
    made = rota.json("backup", str(tmp_path / "b.db"), "--logs")
    assert (made["jobs"], made["runs"], made["has_logs"]) == (1, 1, True)
    assert rota.schedulers() == [], "it asks nothing of anybody"
    said = rota.ask("backup", str(tmp_path / "c.db"))
    assert said.out.startswith(f"{tmp_path}/c.db: 1 jobs, 1 runs, ")
    assert "is there already" in rota.ask("backup", str(tmp_path / "b.db"), code=4).err
    rota.ask("backup", "../relative.db", "--force")
    assert (tmp_path / "relative.db").exists()
    other.ask("restore", str(tmp_path / "b.db"))
    assert other.ask("logs", job).out == "out\n"
    assert other.ended(job)["exit_code"] == 3
    eventually((other.home / "jobs/1/outcome.json").exists, what="the files for people")


def test_no_room_for_it(rota: Rota, tmp_path: Path) -> None:
    rota.start()
    rota.ended(rota.post(["true"]))

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))

    said = rota.ask("backup", str(tmp_path / "b.db"), code=1, preexec_fn=little_room)
    assert said.err.count("\n") == 1, "a line, not a traceback"
    assert list(tmp_path.glob("*b.db*")) == []
    assert rota.status()["trouble"] == []


def test_what_is_not_a_backup(rota: Rota, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "is not a backup of Rota" in rota.ask("restore", str(tmp_path / "notes.txt"), code=2).err
    assert "there is no file" in rota.ask("restore", str(tmp_path / "none"), code=3).err
    assert not rota.home.exists()
