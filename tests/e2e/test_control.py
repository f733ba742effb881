"""Pause, resume, clear and the hold file as a person uses them: real daemon, real children, `kill -9`."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.rig import Rota, Stage, eventually


def configure(rota: Rota, text: str) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(text)
    rota.start()


def test_a_pause_outlives_kill_9_and_running_jobs_go_on(rota: Rota, stage: Stage) -> None:
    configure(rota, "[pools]\nglobal = 4\n")
    running = rota.post(stage.actor("a"))
    assert stage.hear() == ["a begins"]
    said = rota.ask("pause")
    match = re.fullmatch(r"everything is paused by (\S+) since (\S+)\n", said.out)
    assert match
    who, when = match.groups()
    held = rota.submit(*stage.walk_on("b"))
    locked = rota.submit("--lock", "repo", *stage.walk_on("c"))
    assert rota.ask("why", held).out == f"{held} is QUEUED: paused by {who}\n"

    rota.crash()
    rota.start()
    stage.release("a")
    assert rota.ended(running)["status"] == "COMPLETED"
    again = rota.ask("pause")
    assert (again.out, again.err) == (said.out, "rota: it was paused already; nothing was changed\n")
    status = rota.json("status")
    assert (status["paused"], status["paused_by"], status["paused_at"]) == (True, who, when)
    assert status["pauses"] == [{"scope": "global", "by": who, "at": when}]
    assert (status["idle_because"], status["waiting"]) == (f"{held}: paused by {who}", {"paused": 2})
    assert f"paused         by {who} since {when}\n" in rota.ask("status").out
    assert stage.heard() == ["a ends"]

    assert rota.ask("resume").out == f"everything goes on; {who} had paused it at {when}\n"
    rota.wait(held, locked)
    nothing = rota.ask("resume")
    assert (nothing.out, nothing.err) == (
        "",
        "rota: everything is not paused; nothing was changed (`rota status` shows what is)\n",
    )
    assert rota.json("resume")["result"] is False


def test_twenty_pausers_of_different_scopes_lose_none(rota: Rota) -> None:
    """LESSONS Store: 20 writers, about half the writes silently lost."""
    rota.start()
    scopes = [f"flow/f{number}" for number in range(20)]
    begun = threading.Barrier(20)

    def pause(scope: str) -> int:
        begun.wait()
        return rota.api("POST", "/api/scheduler/pause", {"scope": scope}).status

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(pause, scopes)) == [200] * 20
    assert {each["scope"] for each in rota.status()["pauses"]} == set(scopes)

    def resume(scope: str) -> int:
        begun.wait()
        return rota.api("POST", "/api/scheduler/resume", {"scope": scope}).status

    kept = scopes[::2]
    begun = threading.Barrier(10)
    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(resume, scopes[1::2])) == [200] * 10
    assert {each["scope"] for each in rota.status()["pauses"]} == set(kept)
    rota.crash()
    rota.start()
    assert {each["scope"] for each in rota.status()["pauses"]} == set(kept)


def test_scopes_on_the_command_line(rota: Rota, stage: Stage) -> None:
    configure(rota, '[pools]\nglobal = -1\n"flow/*" = -1\n')
    for words in (["--flow", "review"], ["--target", "web"], ["--pool", "resource/gpu"]):
        rota.ask("pause", *words)
    held = [
        rota.submit("--flow", "review", *stage.walk_on("a")),
        rota.submit("--target", "web", *stage.walk_on("b")),
        rota.submit("--pool", "resource/gpu", *stage.walk_on("c")),
    ]
    rota.wait(rota.submit("--flow", "other", *stage.walk_on("d")))
    assert stage.heard() == ["d begins", "d ends"]
    refused = rota.ask("pause", "--pool", "gpu", code=2)
    assert refused.err.startswith("rota: unknown scope 'gpu'; it is global (everything), or type/…")
    assert rota.api("POST", "/api/scheduler/pause", {"scop": "x"}).status == 422
    for words in (["--flow", "review"], ["--target", "web"], ["--pool", "resource/gpu"]):
        rota.ask("resume", *words)
    rota.wait(*held)


def test_a_hold_file_is_made_and_removed(rota: Rota, stage: Stage, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    configure(rota, f'[pools]\nglobal = 2\n\n[scheduler]\nhold_file = "{hold}"\n')
    running = rota.post(stage.actor("a"))
    assert stage.hear() == ["a begins"]
    hold.write_text("disk swap until noon\nand more\n")
    held = rota.submit(*stage.walk_on("b"))  # a submit looks
    assert rota.ask("why", held).out == f"{held} is QUEUED: held: disk swap until noon\n"
    stage.release("a")
    rota.wait(running)
    status = rota.json("status")
    assert (status["held"], status["idle_because"]) == (
        "disk swap until noon",
        f"{held}: held: disk swap until noon",
    )
    assert "held           disk swap until noon\n" in rota.ask("status").out

    rota.crash()
    rota.start()  # and it is looked at before the first dispatch
    assert rota.show(held)["wait"]["detail"] == "held: disk swap until noon"
    assert stage.heard() == ["a ends"]
    hold.write_text("")
    rota.ask("tick")
    assert rota.show(held)["wait"]["detail"] == f"held: the file {hold} exists"
    hold.unlink()
    assert rota.json("tick")["dispatched"] == [held]
    rota.wait(held)


def test_a_hold_file_is_noticed_by_itself_and_is_relative_to_the_home(rota: Rota) -> None:
    configure(rota, '[scheduler]\nhold_file = "hold"\n')
    (rota.home / "hold").mkdir()
    eventually(lambda: rota.status()["held"] == f"the file {rota.home / 'hold'} exists", what="held")
    held = rota.post(["true"])
    (rota.home / "hold").rmdir()
    assert rota.ended(held)["status"] == "COMPLETED"
    (rota.home / "hold").touch()
    held = rota.post(["true"])
    rota.ask("config", "set", "scheduler.hold_file", "elsewhere")
    assert rota.ended(held)["status"] == "COMPLETED"


def test_clear_under_load_holds_up_no_submit(rota: Rota, stage: Stage) -> None:
    """4,000 jobs, a tenth of them after another; somebody submits meanwhile, and his jobs stay."""
    rota.start()
    running = rota.post(stage.actor("a"))
    assert stage.hear() == ["a begins"]
    batch = [{"command": ["true"], "flow": "bulk"} for _ in range(3600)]
    root = rota.api("POST", "/api/jobs/batch", {"jobs": batch}).json()["jobs"][0]
    following = [{"command": ["true"], "flow": "bulk", "after": [{"job": root}]} for _ in range(400)]
    rota.api("POST", "/api/jobs/batch", {"jobs": following})
    outside = rota.post(["true"], after=[{"job": root}])
    clearing = rota.begin("clear", "--flow", "bulk", "--json")
    eventually(lambda: rota.status()["pauses"] or rota.show(root)["status"] == "CANCELLED", what="begun")
    kept = [rota.post(["true"], flow="bulk") for _ in range(5)]
    assert rota.end(clearing).json() == {"scope": "flow/bulk", "cleared": 4000}
    found = rota.show(root)
    assert (found["status"], found["reason"], found["exit_code"], found["run"]) == ("CANCELLED", "cleared", 143, None)
    counts = rota.api("GET", "/api/jobs?limit=1").json()["counts"]
    assert (counts["CANCELLED"], counts["BLOCKED_BY_DEPENDENCY"]) == (4000, 1)
    assert rota.show(outside)["reason"] == f"dependency failed for job {root} (CANCELLED)"
    assert {rota.show(job)["status"] for job in kept} == {"QUEUED"}
    assert rota.show(running)["status"] == "RUNNING"
    stage.release("a")
    rota.wait(running, *kept)


def test_a_clear_that_kill_9_cuts_off_is_carried_to_its_end(rota: Rota) -> None:
    configure(rota, "[pools]\nglobal = 0\n")
    batch = [{"command": ["true"], "flow": "bulk"} for _ in range(3000)]
    rota.api("POST", "/api/jobs/batch", {"jobs": batch})
    clearing = rota.begin("clear")
    eventually(lambda: rota.api("GET", "/api/jobs?limit=1").json()["counts"].get("CANCELLED"), what="begun")
    rota.crash()
    rota.end(clearing)
    rota.start()
    newer = rota.post(["true"])

    def over() -> bool:
        counts = rota.api("GET", "/api/jobs?limit=1").json()["counts"]
        return bool(counts == {"CANCELLED": 3000, "QUEUED": 1})

    eventually(over, what="the rest cleared, and nothing else")
    assert rota.show(newer)["status"] == "QUEUED"


def test_depths_are_logged_while_something_waits(rota: Rota) -> None:
    configure(rota, '[pools]\nglobal = 0\n\n[log]\ndepth_interval = "50ms"\n')
    assert "depth:" not in (rota.home / "rota.log").read_text()
    waits = [rota.post(["true"], flow="review") for _ in range(2)]
    log = rota.home / "rota.log"
    eventually(lambda: "depth: 2 ready (flow review 2), 0 running" in log.read_text(), what="the depth in the log")
    rota.set_global(1)
    for job in waits:
        rota.ended(job)
    rota.ask("config", "set", "log.depth_interval", "off")
