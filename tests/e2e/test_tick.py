"""`rota tick` as a person or cron calls it: by hand, for show, and as the only thing that starts jobs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from e2e.rig import Rota, Stage


def configure(rota: Rota, *lines: str) -> None:
    rota.home.mkdir(exist_ok=True)
    (rota.home / "rota.toml").write_text("\n".join(("[scheduler]", *lines, "[pools]", "global = 4")) + "\n")


def dump(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "rota.db")) as connection:
        return list(connection.iterdump())


def test_cron_drives_it_though_no_scheduler_runs(rota: Rota, stage: Stage) -> None:
    """The scheduler is started by that very command, and what it said is what it did."""
    configure(rota, 'heartbeat = "manual"')
    jobs = [rota.submit(*stage.walk_on(f"job{n}")) for n in range(2)]
    assert rota.ask("why", jobs[0]).lines == [
        f"{jobs[0]} is QUEUED: nothing holds it; it starts with the next `rota tick`"
    ]
    for n, job in enumerate(jobs):
        rota.ask("down")
        left = {"skipped": 1 - n, "reason": "batch"}
        assert rota.json("tick", "--dry-run") == {"dispatched": [], "would_dispatch": [job], **left}
        rota.ask("down")
        assert rota.json("tick") == {"dispatched": [job], "would_dispatch": [], **left}
        rota.wait(job)
    assert rota.json("tick") == {"dispatched": [], "would_dispatch": [], "skipped": 0, "reason": "none"}
    assert stage.heard() == [f"job{n} {act}" for n in range(2) for act in ("begins", "ends")]


def test_people_are_told_each_job_and_why_no_more(rota: Rota, stage: Stage) -> None:
    configure(rota, 'heartbeat = "manual"', "batch_size = 2")
    jobs = [rota.submit(*stage.walk_on(f"job{n}")) for n in range(3)]
    said = rota.ask("tick", "--dry-run")
    assert (said.lines, said.err) == (jobs[:2], "rota: would start 2: that is the batch; ready and left: 1\n")
    said = rota.ask("tick", "--batch", "9")
    assert (said.lines, said.err) == (jobs, "rota: started 3: that is all that is ready\n")
    rota.wait(*jobs)
    assert rota.ask("tick").err == "rota: started 0: nothing is ready\n"
    assert "--batch" in rota.ask("tick", "--batch", "0", code=2).err
    assert "batch" in rota.api("POST", "/api/scheduler/tick", {"batch": 0}).json()["detail"]
    assert rota.api("POST", "/api/scheduler/tick", {"dryrun": True}).status == 422
    assert rota.api("POST", "/api/scheduler/tick").json()["reason"] == "none"


def test_a_dry_run_leaves_the_store_as_it_was(rota: Rota) -> None:
    configure(rota, 'heartbeat = "manual"')
    wanted = rota.cwd / "wanted"
    job = rota.submit("--needs", f"file:{wanted}", "--missing-producer", "wait", "--", "true")
    rota.submit("--lock", "repo", "--", "true")
    before = dump(rota.home)
    assert rota.json("tick", "--dry-run", "--batch", "9")["would_dispatch"] == ["job-2"]
    assert dump(rota.home) == before
    wanted.touch()
    assert rota.json("tick", "--dry-run", "--batch", "9")["would_dispatch"] == [job, "job-2"]
    assert rota.json("tick", "--batch", "9")["dispatched"] == [job, "job-2"]
    rota.wait(job, "job-2")


def test_the_heartbeat_needs_nobody(rota: Rota) -> None:
    configure(rota, 'heartbeat = "200ms"')
    jobs = [rota.submit("--", "true") for _ in range(3)]
    shown = [rota.ended(job) for job in jobs]
    starts = [datetime.fromisoformat(job["started_at"]) for job in shown]
    assert all(later - earlier >= timedelta(milliseconds=200) for earlier, later in pairwise(starts))


def test_the_spawn_delay_lies_between_starts_and_a_restart_forgets_nothing(rota: Rota) -> None:
    configure(rota, 'spawn_delay = "500ms"')
    rota.start()
    jobs = [rota.post(["true"]) for _ in range(3)]
    first = rota.ended(jobs[0])
    assert rota.show(jobs[2])["wait"]["kind"] == "delay"
    rota.crash()
    rota.start()
    starts = [datetime.fromisoformat(rota.ended(job)["started_at"]) for job in jobs]
    assert starts[0] == datetime.fromisoformat(first["started_at"])
    assert all(later - earlier >= timedelta(milliseconds=500) for earlier, later in pairwise(starts))
    assert rota.ask("wait", *jobs).code == 0
