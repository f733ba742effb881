"""`rota tick` from a terminal or cron: as a dry run, and as the only way to start jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from tests.e2e.rig import ChildControl, Rota


def configure(rota: Rota, *lines: str) -> None:
    rota.home.mkdir(exist_ok=True)
    (rota.home / "rota.toml").write_text("\n".join(("[scheduler]", *lines, "[pools]", "global = 4")) + "\n")


def dump(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "rota.db")) as connection:
        return list(connection.iterdump())


def test_tick_starts_the_scheduler_and_jobs(rota: Rota, children: ChildControl) -> None:
    """The command starts the scheduler, and dispatches the job that the dry run named."""
    configure(rota, 'dispatch_interval = "manual"')
    jobs = [rota.submit(*children.immediate(f"job{n}")) for n in range(2)]
    assert rota.run("why", jobs[0]).lines == [f"{jobs[0]} is QUEUED: starts with the next `rota tick`"]
    for n, job in enumerate(jobs):
        rota.start()
        remaining = {"skipped": 1 - n, "reason": "batch", "blocker": None}
        assert rota.json("tick", "--dry-run") == {"dispatched": [], "would_dispatch": [job], **remaining}
        rota.run("down")
        assert rota.json("tick") == {"dispatched": [job], "would_dispatch": [], **remaining}
        rota.wait(job)
    assert rota.json("tick") == {
        "dispatched": [],
        "would_dispatch": [],
        "skipped": 0,
        "reason": "none",
        "blocker": None,
    }
    assert children.read_available() == [f"job{n} {act}" for n in range(2) for act in ("begins", "ends")]


def test_tick_prints_jobs_and_the_reason_to_stop(rota: Rota, children: ChildControl) -> None:
    configure(rota, 'dispatch_interval = "manual"', "batch_size = 2")
    jobs = [rota.submit(*children.immediate(f"job{n}")) for n in range(3)]
    output = rota.run("tick", "--dry-run")
    assert (output.lines, output.err) == (
        jobs[:2],
        "rota: would start 2: the batch limit is reached; ready but not started: 1\n",
    )
    output = rota.run("tick", "--batch", "9")
    assert (output.lines, output.err) == (jobs, "rota: started 3: no more jobs are ready\n")
    rota.wait(*jobs)
    jobs = [rota.submit(*children.immediate(f"more{n}")) for n in range(2)]
    assert rota.run("tick").err == "rota: started 2: no more jobs are ready\n"
    rota.wait(*jobs)
    assert rota.run("tick").err == "rota: started 0: nothing is ready\n"
    assert "--batch" in rota.run("tick", "--batch", "0", code=2).err
    assert "batch" in rota.api("POST", "/api/scheduler/tick", {"batch": 0}).json()["detail"]
    assert rota.api("POST", "/api/scheduler/tick", {"dryrun": True}).status == 422
    assert rota.api("POST", "/api/scheduler/tick").json()["reason"] == "none"


def test_dry_run_does_not_change_the_store(rota: Rota) -> None:
    configure(rota, 'dispatch_interval = "manual"')
    needed_file = rota.cwd / "needed"
    job = rota.submit("--needs", f"file:{needed_file}", "--missing-producer", "wait", "--", "true")
    rota.submit("--lock", "repo", "--", "true")
    before = dump(rota.home)
    assert rota.json("tick", "--dry-run", "--batch", "9")["would_dispatch"] == ["job-2"]
    assert dump(rota.home) == before
    needed_file.touch()
    assert rota.json("tick", "--dry-run", "--batch", "9")["would_dispatch"] == [job, "job-2"]
    assert rota.json("tick", "--batch", "9")["dispatched"] == [job, "job-2"]
    rota.wait(job, "job-2")


def test_dispatch_interval_starts_jobs_without_ticks(rota: Rota) -> None:
    configure(rota, 'dispatch_interval = "200ms"')
    jobs = [rota.submit("--", "true") for _ in range(3)]
    shown = [rota.wait_for_end(job) for job in jobs]
    starts = [datetime.fromisoformat(job["started_at"]) for job in shown]
    assert all(later - earlier >= timedelta(milliseconds=200) for earlier, later in pairwise(starts))


def test_spawn_delay_separates_starts_also_after_a_restart(rota: Rota) -> None:
    configure(rota, 'spawn_delay = "500ms"')
    rota.start()
    jobs = [rota.post_job(["true"]) for _ in range(3)]
    first = rota.wait_for_end(jobs[0])
    assert rota.show(jobs[2])["wait"]["kind"] == "delay"
    rota.crash()
    rota.start()
    starts = [datetime.fromisoformat(rota.wait_for_end(job)["started_at"]) for job in jobs]
    assert starts[0] == datetime.fromisoformat(first["started_at"])
    assert all(later - earlier >= timedelta(milliseconds=500) for earlier, later in pairwise(starts))
    assert rota.run("wait", *jobs).code == 0
