"""Retention: `rota gc`, automatic collections, and collections that are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually, kill
from tests.e2e.test_home import _drop_mode_override

KILLED_COLLECTOR = Path(__file__).with_name("killed_collector.py")


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """URL of the store; empty for the SQLite database of the home."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture
def home(make_rota: Callable[..., Rota], store_url: str) -> Rota:
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(f"[store]\nurl = {json.dumps(store_url)}\n" if store_url else "")
    rota.start()
    return rota


def jobs_with_files(rota: Rota) -> list[str]:
    """Return the jobs that have a directory, oldest first."""
    numbers = sorted(int(path.name) for path in (rota.home / "jobs").iterdir() if path.name.isdecimal())
    return [f"job-{number}" for number in numbers]


def run_jobs(rota: Rota, count: int) -> list[str]:
    jobs = [rota.post_job(["sh", "-c", "echo out; echo err >&2"]) for _ in range(count)]
    for job in jobs:
        assert rota.wait_for_end(job)["status"] == "COMPLETED"
    return jobs


def test_gc_removes_ended_jobs_and_keeps_referenced_ones(home: Rota, children: ChildControl) -> None:
    first, second = run_jobs(home, 2)
    running = home.post_job(children.gated("one"), after=[{"job": second}])
    children.read_lines()
    assert home.run("gc").err == "rota: removed 0 jobs (0 runs, 0 events, 0 bytes of files)\n"
    output = home.run("gc", "--days", "0", "--dry-run")
    assert output.out == ""
    assert output.err.startswith("rota: would remove 1 job (1 run, 4 events, ")
    assert output.err.endswith(" kB of files); kept 1 that others refer to\n")
    assert jobs_with_files(home) == [first, second, running]
    result = home.json("gc", "--days", "0")
    assert result["jobs"] == [first]
    assert {name: result["removed"][name] for name in ("jobs", "runs", "events")} == {"jobs": 1, "runs": 1, "events": 4}
    assert result["removed"]["bytes"] > 0
    assert result["kept_counts"] == {"referenced": 1, "worktree": 0, "files": 0}
    assert jobs_with_files(home) == [second, running]
    for verb in ("show", "why", "logs", "wait", "cancel", "retry"):
        output = home.run(verb, first, code=3)
        assert output.err == (
            f"rota: no such job: {first}; retention may have removed it; `rota config get gc.days`"
            " shows after how many days jobs are removed\n"
        )
    assert home.show(running)["after"] == [{"job": second, "policy": "success"}]
    children.release("one")
    home.wait_for_end(running)
    assert home.json("gc", "--days", "0")["jobs"] == [running, second]
    assert home.run("list", "--all", "--json").json()["jobs"] == []
    assert home.post_job(["true"]) == "job-4", "job numbers are not used again"
    assert home.status()["last_gc"]["jobs"] == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["move_in", "sync", "commit", "delete"])
def test_rows_and_files_agree_after_a_kill_at_any_step(home: Rota, store_url: str, step: str, when: str) -> None:
    jobs = run_jobs(home, 5)
    home.run("down")
    collector = subprocess.run(
        [sys.executable, str(KILLED_COLLECTOR), str(home.home), store_url, step, when], check=False
    )
    assert collector.returncode == -signal.SIGKILL
    home.start()
    remaining = [job["id"] for job in home.jobs()]
    assert jobs_with_files(home) == remaining
    assert len(remaining) == (3 if step == "delete" or (step, when) == ("commit", "after") else 5)
    for job in remaining:
        assert home.api("GET", f"/api/jobs/{job}/logs/stdout").body == b"out\n"
    assert home.api("POST", "/api/scheduler/gc", {"days": 0}).json()["removed"]["jobs"] == len(remaining)
    assert jobs_with_files(home) == []
    assert not (home.home / "jobs" / ".removed").exists()
    assert home.post_job(["true"]) == f"job-{len(jobs) + 1}"


def _has_begun(trash: Path, gc_process: subprocess.Popen[bytes]) -> bool:
    return trash.exists() or gc_process.poll() is not None


def test_rows_and_files_agree_after_repeated_crashes(home: Rota) -> None:
    """Rows and files agree after the next start, wherever the kill hits."""
    jobs = run_jobs(home, 30)
    trash = home.home / "jobs" / ".removed"
    for _ in range(4):
        scheduler, gc_process = home.scheduler_pid, home.spawn("gc", "--days", "0")
        eventually(partial(_has_begun, trash, gc_process), description="a collection")
        kill(scheduler)
        home.finish(gc_process)
        home.start()
        remaining = [job["id"] for job in home.jobs()]
        assert jobs_with_files(home) == remaining
        assert set(remaining) <= set(jobs)
    home.run("gc", "--days", "0")
    assert jobs_with_files(home) == []


def test_job_is_kept_when_its_files_cannot_be_removed(rota: Rota) -> None:
    rota.run("up", preexec_fn=_drop_mode_override)
    first, second, third = run_jobs(rota, 3)
    directory = rota.home / "jobs" / second.removeprefix("job-")
    directory.chmod(0o500)
    try:
        result = rota.json("gc", "--days", "0")
        output = rota.run("gc", "--days", "0")
    finally:
        directory.chmod(0o700)
    assert result["jobs"] == [third, first]
    assert result["kept_counts"] == {"referenced": 0, "worktree": 0, "files": 1}
    assert output.err.splitlines()[1:] == [
        f"rota: kept {second}: its files cannot be removed: {directory}: no permission to remove its contents"
    ]
    assert [job["id"] for job in rota.jobs()] == jobs_with_files(rota) == [second]
    assert rota.json("gc", "--days", "0")["jobs"] == [second]


def test_job_with_a_worktree_is_kept_and_the_remedy_is_named(rota: Rota) -> None:
    rota.start()
    (job,) = run_jobs(rota, 1)
    worktree = rota.home / "worktrees" / job
    worktree.mkdir(parents=True)
    output = rota.run("gc", "--days", "0")
    assert output.err == (
        "rota: removed 0 jobs (0 runs, 0 events, 0 bytes of files); kept 1 with a worktree\n"
        f"rota: kept {job}: its worktree {worktree} still exists;"
        f" after saving its changes, run: git worktree remove {worktree}\n"
    )


def test_automatic_collection_runs_after_the_interval(rota: Rota) -> None:
    rota.run("config", "set", "gc.days", "0")
    rota.start()
    (job,) = run_jobs(rota, 1)
    assert rota.show(job)["id"] == job, "no collection at the start"
    rota.run("config", "set", "gc.interval", "1s")
    eventually(lambda: rota.api("GET", f"/api/jobs/{job}").status == 404, description="an automatic collection")
    eventually(lambda: rota.status()["last_gc"], description="the collection in status")
    assert jobs_with_files(rota) == []


def test_invalid_gc_options_are_refused(rota: Rota) -> None:
    rota.start()
    for days in ("x", "-1", "1.5", "", "9" * 30):
        output = rota.run("gc", f"--days={days}", code=2)
        assert output.err == f"rota: --days {days}: write a whole number of days; 0 is all ended jobs\n"
    output = rota.run("gc", "--days", "36501", code=2)
    assert output.err == "rota: days 36501 is out of range; use 0 (everything that ended) to 36500\n"
    for body in ({"days": "7"}, {"days": 1.5}, {"dry_run": 1}, {"day": 7}):
        response = rota.api("POST", "/api/scheduler/gc", body)
        assert response.status == 422, body
    response = rota.api("POST", "/api/scheduler/gc", {"days": None, "dry_run": True})
    assert response.json()["dry_run"] is True
    assert rota.api("POST", "/api/scheduler/gc").json()["removed"]["jobs"] == 0
    assert rota.api("GET", "/api/scheduler/gc").json()["in_progress"] is None
