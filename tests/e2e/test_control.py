"""Pause, resume, clear and the hold file with a real daemon, real jobs and `kill -9`."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e.rig import ChildControl, Rota, eventually


def configure(rota: Rota, text: str) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(text)
    rota.start()


def test_pause_survives_a_crash_and_running_jobs_continue(rota: Rota, children: ChildControl) -> None:
    configure(rota, "[pools]\nglobal = 4\n")
    running = rota.post_job(children.gated("a"))
    assert children.read_lines() == ["a begins"]
    output = rota.run("pause")
    match = re.fullmatch(r"everything is paused by (\S+) since (\S+)\n", output.out)
    assert match
    actor, time = match.groups()
    held = rota.submit(*children.immediate("b"))
    locked = rota.submit("--lock", "repo", *children.immediate("c"))
    assert rota.run("why", held).out == f"{held} is QUEUED: paused by {actor}\n"

    rota.crash()
    rota.start()
    children.release("a")
    assert rota.wait_for_end(running)["status"] == "COMPLETED"
    repeated = rota.run("pause")
    assert (repeated.out, repeated.err) == (output.out, "rota: nothing changed: it is already paused\n")
    status = rota.json("status")
    assert (status["paused"], status["paused_by"], status["paused_at"]) == (True, actor, time)
    assert status["pauses"] == [{"scope": "global", "by": actor, "at": time}]
    assert (status["idle_reason"], status["waiting"]) == (f"{held}: paused by {actor}", {"paused": 2})
    assert f"paused         by {actor} since {time}\n" in rota.run("status").out
    assert children.read_available() == ["a ends"]

    assert rota.run("resume").out == f"everything resumed; it was paused by {actor} at {time}\n"
    rota.wait(held, locked)
    unchanged = rota.run("resume")
    assert (unchanged.out, unchanged.err) == (
        "",
        "rota: everything is not paused; nothing was changed (`rota status` lists the pauses)\n",
    )
    assert rota.json("resume")["has_changed"] is False


def test_twenty_concurrent_pauses_are_all_stored(rota: Rota) -> None:
    """LESSONS Store: 20 writers, about half the writes silently lost."""
    rota.start()
    scopes = [f"flow/f{number}" for number in range(20)]
    started = threading.Barrier(20)

    def pause(scope: str) -> int:
        started.wait()
        return rota.api("POST", "/api/scheduler/pause", {"scope": scope}).status

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(pause, scopes)) == [200] * 20
    assert {pause_entry["scope"] for pause_entry in rota.status()["pauses"]} == set(scopes)

    def resume(scope: str) -> int:
        started.wait()
        return rota.api("POST", "/api/scheduler/resume", {"scope": scope}).status

    kept = scopes[::2]
    started = threading.Barrier(10)
    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(resume, scopes[1::2])) == [200] * 10
    assert {pause_entry["scope"] for pause_entry in rota.status()["pauses"]} == set(kept)
    rota.crash()
    rota.start()
    assert {pause_entry["scope"] for pause_entry in rota.status()["pauses"]} == set(kept)


def test_pause_and_resume_take_a_scope(rota: Rota, children: ChildControl) -> None:
    configure(rota, '[pools]\nglobal = -1\n"flow/*" = -1\n')
    for words in (["--flow", "review"], ["--target", "web"], ["--pool", "resource/gpu"]):
        rota.run("pause", *words)
    held = [
        rota.submit("--flow", "review", *children.immediate("a")),
        rota.submit("--target", "web", *children.immediate("b")),
        rota.submit("--pool", "resource/gpu", *children.immediate("c")),
    ]
    rota.wait(rota.submit("--flow", "other", *children.immediate("d")))
    assert children.read_available() == ["d begins", "d ends"]
    refused = rota.run("pause", "--pool", "gpu", code=2)
    assert refused.err.startswith("rota: unknown scope 'gpu'; use global, type/NAME")
    assert rota.api("POST", "/api/scheduler/pause", {"scop": "x"}).status == 422
    for words in (["--flow", "review"], ["--target", "web"], ["--pool", "resource/gpu"]):
        rota.run("resume", *words)
    rota.wait(*held)


def test_hold_file_holds_starts_until_it_is_removed(rota: Rota, children: ChildControl, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    configure(rota, f'[pools]\nglobal = 2\n\n[scheduler]\nhold_file = "{hold}"\n')
    running = rota.post_job(children.gated("a"))
    assert children.read_lines() == ["a begins"]
    hold.write_text("disk swap until noon\nand more\n")
    held = rota.submit(*children.immediate("b"))  # a submit reads the hold file
    assert rota.run("why", held).out == f"{held} is QUEUED: held: disk swap until noon\n"
    children.release("a")
    rota.wait(running)
    status = rota.json("status")
    assert (status["hold_reason"], status["idle_reason"]) == (
        "disk swap until noon",
        f"{held}: held: disk swap until noon",
    )
    assert "held           disk swap until noon\n" in rota.run("status").out

    rota.crash()
    rota.start()  # the scheduler reads the hold file before the first dispatch
    assert rota.show(held)["wait"]["detail"] == "held: disk swap until noon"
    assert children.read_available() == ["a ends"]
    hold.write_text("")
    rota.run("tick")
    assert rota.show(held)["wait"]["detail"] == f"held: the file {hold} exists"
    hold.unlink()
    assert rota.json("tick")["dispatched"] in ([held], [])  # The scheduler may have noticed before.
    rota.wait(held)


def test_hold_file_is_relative_to_the_home_and_noticed_without_a_request(rota: Rota) -> None:
    configure(rota, '[scheduler]\nhold_file = "hold"\n')
    (rota.home / "hold").mkdir()
    eventually(lambda: rota.status()["hold_reason"] == f"the file {rota.home / 'hold'} exists", description="held")
    held = rota.post_job(["true"])
    (rota.home / "hold").rmdir()
    assert rota.wait_for_end(held)["status"] == "COMPLETED"
    (rota.home / "hold").touch()
    held = rota.post_job(["true"])
    rota.run("config", "set", "scheduler.hold_file", "elsewhere")
    assert rota.wait_for_end(held)["status"] == "COMPLETED"


def test_clear_under_load_blocks_no_submit(rota: Rota, children: ChildControl) -> None:
    """Clear 4,000 jobs, a tenth of them dependents. Jobs that are submitted meanwhile are kept."""
    rota.start()
    running = rota.post_job(children.gated("a"))
    assert children.read_lines() == ["a begins"]
    batch = [{"command": ["true"], "flow": "bulk"} for _ in range(3600)]
    root = rota.api("POST", "/api/jobs/batch", {"jobs": batch}).json()["jobs"][0]
    following = [{"command": ["true"], "flow": "bulk", "after": [{"job": root}]} for _ in range(400)]
    rota.api("POST", "/api/jobs/batch", {"jobs": following})
    outside = rota.post_job(["true"], after=[{"job": root}])
    clear_process = rota.spawn("clear", "--flow", "bulk", "--json")
    eventually(
        lambda: rota.status()["pauses"] or rota.show(root)["status"] == "CANCELLED", description="the clear has begun"
    )
    kept = [rota.post_job(["true"], flow="bulk") for _ in range(5)]
    assert rota.finish(clear_process).json() == {"scope": "flow/bulk", "cleared": 4000}
    shown = rota.show(root)
    assert (shown["status"], shown["reason"], shown["exit_code"], shown["run"]) == ("CANCELLED", "cleared", 143, None)
    counts = rota.api("GET", "/api/jobs?limit=1").json()["counts"]
    assert (counts["CANCELLED"], counts["BLOCKED_BY_DEPENDENCY"]) == (4000, 1)
    assert rota.show(outside)["reason"] == f"dependency failed for job {root} (CANCELLED)"
    assert {rota.show(job)["status"] for job in kept} == {"QUEUED"}
    assert rota.show(running)["status"] == "RUNNING"
    children.release("a")
    rota.wait(running, *kept)


def test_clear_interrupted_by_a_crash_is_completed(rota: Rota) -> None:
    configure(rota, "[pools]\nglobal = 0\n")
    batch = [{"command": ["true"], "flow": "bulk"} for _ in range(3000)]
    rota.api("POST", "/api/jobs/batch", {"jobs": batch})
    clear_process = rota.spawn("clear")
    eventually(
        lambda: rota.api("GET", "/api/jobs?limit=1").json()["counts"].get("CANCELLED"),
        description="the clear has begun",
    )
    rota.crash()
    rota.finish(clear_process)
    rota.start()
    newer = rota.post_job(["true"])

    def is_cleared() -> bool:
        counts = rota.api("GET", "/api/jobs?limit=1").json()["counts"]
        return bool(counts == {"CANCELLED": 3000, "QUEUED": 1})

    eventually(is_cleared, description="the rest cleared, and no other job")
    assert rota.show(newer)["status"] == "QUEUED"


def test_queue_depth_is_logged_while_jobs_wait(rota: Rota) -> None:
    configure(rota, '[pools]\nglobal = 0\n\n[log]\ndepth_interval = "50ms"\n')
    assert "depth:" not in (rota.home / "rota.log").read_text()
    waiting = [rota.post_job(["true"], flow="review") for _ in range(2)]
    log = rota.home / "rota.log"
    eventually(
        lambda: "depth: 2 ready (flow review 2), 0 running" in log.read_text(), description="the depth in the log"
    )
    rota.set_global_size(1)
    for job in waiting:
        rota.wait_for_end(job)
    rota.run("config", "set", "log.depth_interval", "off")
