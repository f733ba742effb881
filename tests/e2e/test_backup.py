"""Backup of a busy home, and restore of the backup into another home or in place."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.direct_client import DirectClient, get_reservation
from tests.e2e.rig import ChildControl, Rota, eventually, exits_within, is_alive


class Load:
    """Thread that submits batches of short jobs as fast as possible."""

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
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()


def back_up_under_load(rota: Rota, other: Rota, children: ChildControl, backup_path: Path) -> None:
    rota.start()
    rota.set_global_size(3)
    long = rota.post_job(children.gated("long"), name="long")
    assert children.read_lines() == ["long begins"]
    rota.wait_for_start(long)
    waiting = rota.post_job(children.immediate("waiting"), after=[{"job": long, "policy": "finished"}])
    load = Load(rota)
    with load.running():
        eventually(lambda: len(load.accepted) >= 30, description="some jobs")
        accepted = list(load.accepted)
        backup = rota.json("backup", str(backup_path))
        since = len(load.accepted)
        eventually(lambda: len(load.accepted) > since, description="more jobs: the backup blocks no submit")
    assert backup["jobs"] >= len(accepted) + 2
    assert rota.status()["errors"] == []

    restored = other.json("restore", str(backup_path))
    assert (restored["jobs"], restored["runs"]) == (backup["jobs"], backup["runs"])
    other.start()
    assert other.status()["recovery"]["running_jobs_recovered"] >= 1
    assert set(accepted) | {long, waiting} <= {f"job-{number}" for number in range(1, backup["jobs"] + 1)}
    shown = [other.wait_for_end(f"job-{number}") for number in range(1, backup["jobs"] + 1)]
    assert len(shown) == backup["jobs"], "the backup contains every accepted job, and each has ended"
    assert other.wait_for_end(long)["reason"] == "Scheduler crash recovery"
    assert {job["status"] for job in shown} <= {"COMPLETED", "FAILED"}
    failed = [job for job in shown if job["status"] == "FAILED"]
    assert {job["reason"] for job in failed} == {"Scheduler crash recovery"}
    assert len(failed) <= 3, "at most the jobs that ran during the backup"
    assert children.read_available() == ["waiting begins", "waiting ends"]
    other.wait(other.submit("--", "true"))

    assert rota.show(long)["status"] == "RUNNING", "the original home is not affected"
    children.release("long")
    rota.wait_for_end(waiting)


@pytest.fixture
def other(make_rota: Callable[..., Rota], tmp_path: Path) -> Rota:
    return make_rota(tmp_path / "other")


def test_backup_under_load(rota: Rota, other: Rota, children: ChildControl, tmp_path: Path) -> None:
    back_up_under_load(rota, other, children, tmp_path / "backup.db")


def test_backup_under_load_on_postgres(
    rota: Rota, other: Rota, children: ChildControl, tmp_path: Path, postgres_url: str
) -> None:
    rota.run("config", "set", "store.url", postgres_url)
    back_up_under_load(rota, other, children, tmp_path / "backup.db")
    assert other.status()["store"] == str(other.home / "rota.db")
    assert rota.status()["store"].startswith("postgresql://")


def test_restore_in_place_stops_jobs_missing_from_the_backup(
    rota: Rota, children: ChildControl, tmp_path: Path
) -> None:
    """A process without a stored run: the process is stopped, and neither its run id nor its job id is used again."""
    backup_path = tmp_path / "backup.db"
    rota.start()
    rota.set_global_size(2)
    known = rota.post_job(children.gated("known"))
    assert children.read_lines() == ["known begins"]
    child = rota.wait_for_start(known)["pid"]
    assert "the output of jobs is not included" in rota.run("backup", str(backup_path)).err
    unknown = rota.post_job(["sh", "-c", f"echo $$ > {children.pipe}; exec sleep 1000"])
    (stray,) = map(int, children.read_lines())
    rota.wait_for_start(unknown)
    refused = rota.run("restore", str(backup_path), "--force", code=4)
    assert "another scheduler" in refused.err
    rota.run("down", "--grace", "0s")
    assert "already has a database" in rota.run("restore", str(backup_path), code=4).err
    output = rota.run("restore", str(backup_path), "--force")
    assert "jobs of this home that still run" in output.err
    assert "the previous data is in" in output.err
    assert is_alive(stray)
    output = rota.run("up")
    assert "running jobs adopted: 1" in output.out
    assert exits_within(stray)
    assert rota.wait_for_start(known)["pid"] == child
    assert rota.api("GET", f"/api/jobs/{unknown}").status == 404
    children.release("known", 5)
    rota.wait(known, code=5)
    assert rota.submit("--", "true") == "job-3"


def test_restore_cancels_waiting_direct_executions(rota: Rota, children: ChildControl, tmp_path: Path) -> None:
    """The client of the execution is gone, and no reservation id is used again."""
    rota.start()
    rota.set_global_size(0)
    direct = DirectClient(rota, "--lock", "repo", *children.immediate("direct"))
    direct.wait_for_stderr("reservation-1: waiting on pool global")
    rota.run("backup", str(tmp_path / "b.db"))
    rota.set_global_size(1)
    direct.finish(0)
    assert children.read_lines(2) == ["direct begins", "direct ends"]
    rota.run("run", "--", "true")
    rota.run("down")
    (rota.home / "rota.db").write_bytes(b"lost")
    rota.run("restore", str(tmp_path / "b.db"), "--force")
    rota.run("config", "set", "pools.global", "1")
    rota.start()
    assert rota.wait_for_end(rota.post_job(["true"], locks=[{"key": "repo"}]))["status"] == "COMPLETED"
    shown = get_reservation(rota, "reservation-1")
    assert (shown["status"], shown["reason"]) == ("CANCELLED", "restored from a backup, without its client")
    assert children.read_available() == []
    assert rota.json("run", "--", "true")["id"] == "reservation-3"


def test_backup_without_a_scheduler_contains_all_records(
    rota: Rota, other: Rota, children: ChildControl, tmp_path: Path
) -> None:
    assert "nothing to back up" in rota.run("backup", str(tmp_path / "b.db"), code=3).err
    rota.start()
    job = rota.post_job(["sh", "-c", "echo out; exit 3"])
    rota.wait_for_end(job)
    rota.crash()  # the newest records are in rota.db-wal
    backup = rota.json("backup", str(tmp_path / "b.db"), "--logs")
    assert (backup["jobs"], backup["runs"], backup["has_logs"]) == (1, 1, True)
    assert rota.schedulers() == [], "a backup needs no scheduler"
    output = rota.run("backup", str(tmp_path / "c.db"))
    assert output.out.startswith(f"{tmp_path}/c.db: 1 job, 1 run, ")
    assert "already exists" in rota.run("backup", str(tmp_path / "b.db"), code=4).err
    rota.run("backup", "../relative.db", "--force")
    assert (tmp_path / "relative.db").exists()
    other.run("restore", str(tmp_path / "b.db"))
    assert other.run("logs", job).out == "out\n"
    other.start()
    assert other.wait_for_end(job)["exit_code"] == 3
    eventually((other.home / "jobs/1/outcome.json").exists, description="the mirrored job files")


def test_backup_without_space_leaves_no_file(rota: Rota, tmp_path: Path) -> None:
    rota.start()
    rota.wait_for_end(rota.post_job(["true"]))

    def limit_file_size() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))

    output = rota.run("backup", str(tmp_path / "b.db"), code=1, preexec_fn=limit_file_size)
    assert output.err.count("\n") == 1, "one line instead of a traceback"
    assert list(tmp_path.glob("*b.db*")) == []
    assert rota.status()["errors"] == []


def test_restore_refuses_other_files(rota: Rota, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "is not a backup of Rota" in rota.run("restore", str(tmp_path / "notes.txt"), code=2).err
    assert "there is no file" in rota.run("restore", str(tmp_path / "none"), code=3).err
    assert not rota.home.exists()
