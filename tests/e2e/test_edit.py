"""§4: what waits is edited and moved while others run, over restarts, and the children see it."""

from __future__ import annotations

import json

from e2e.rig import Rota, Stage, eventually, kill


def test_dec_005_moves_while_a_job_runs_and_the_scheduler_is_killed_in_between(rota: Rota, stage: Stage) -> None:
    """LESSONS Waiting: urgent work stood behind the rest, and nobody could move it."""
    running = rota.submit(*stage.actor("running"))
    jobs = {name: rota.submit("--name", name, *stage.walk_on(name)) for name in "abcd"}
    assert stage.hear() == ["running begins"]
    assert rota.ask("move", jobs["d"], "--first").out == f"{jobs['d']} place 1 of priority 0\n"
    kill(rota.ask("status", "--json").json()["pid"])
    assert rota.ask("move", jobs["a"], "--last").out == f"{jobs['a']} place 4 of priority 0\n"
    refused = rota.ask("move", running, "--last", code=4)
    assert refused.err == f"rota: {running} is RUNNING: only what waits can be moved\n"
    late = rota.submit("--name", "late", *stage.walk_on("late"))
    rota.ask("move", jobs["c"], jobs["b"], "--reorder")
    assert [job["name"] for job in rota.ask("list", "--json").json()["jobs"]] == [None, "d", "c", "b", "a", "late"]
    queue = rota.api("GET", "/api/queue").json()
    order = ["d", "c", "b", "a", "late"]
    assert [(job["name"], job["place"]) for job in queue["jobs"]] == [(name, n) for n, name in enumerate(order, 1)]
    first = rota.api("GET", "/api/queue?limit=3").json()
    rest = rota.api("GET", f"/api/queue?limit=3&cursor={first['next']}").json()
    assert [*first["jobs"], *rest["jobs"]] == queue["jobs"]
    assert rest["next"] is None
    stage.release("running")
    rota.wait(*jobs.values(), late)
    said = [line for line in stage.heard() if line.endswith("begins")]
    assert said == [f"{name} begins" for name in order]


def test_inv_001_what_waits_is_edited_and_what_was_dispatched_is_not(rota: Rota, stage: Stage) -> None:
    running = rota.submit(*stage.actor("running"))
    job = rota.submit("--param", "a=1", "--param", "b=2", "--", "false")
    assert stage.hear() == ["running begins"]
    words = ("--param", "a=9", "--unset-param", "b", "--priority", "3", "--name", "new", "--timeout", "1m")
    told = rota.ask("edit", job, *words, "--", "sh", "-c", 'echo "$ROTA_PARAMS"')
    assert told.out == f"{job} command, name, params, priority, timeout\n"
    refused = rota.ask("edit", running, "--param", "a=2", code=4)
    text = f"Cannot modify params after dispatch: {running} is RUNNING; only what waits can be changed"
    assert refused.err == f"rota: {text}\n"
    answer = rota.api("PATCH", f"/api/jobs/{running}", {"params": {}})
    assert (answer.status, answer.json()["code"]) == (409, "conflict")
    answer = rota.api("PATCH", f"/api/jobs/{job}", {"after": [], "name": "x"})
    assert (answer.status, rota.show(job)["name"]) == (422, "new")
    assert (answer.json()["path"], "submit it anew" in answer.json()["detail"]) == ("$.after", True)
    answer = rota.api("PATCH", f"/api/jobs/{job}", {"priority": "high"})
    assert (answer.status, answer.json()["path"]) == (422, "$.priority")
    assert rota.api("PATCH", f"/api/jobs/{job}", {}).json()["detail"].startswith("nothing is to be changed")
    stage.release("running")
    rota.wait(job)
    assert json.loads(rota.ask("logs", job, "--stream", "stdout").out) == {"a": "9"}
    assert rota.show(job)["command"][:2] == ["sh", "-c"]


def test_a_delay_that_is_taken_back_starts_the_job(rota: Rota) -> None:
    job = rota.submit("--delay", "1h", "--", "true")
    assert rota.ask("edit", job, "--delay", "none").out == f"{job} not_before\n"
    rota.wait(job)


def test_the_file_beside_the_logs_follows_an_edit(rota: Rota) -> None:
    job = rota.submit("--", "true")
    rota.wait(job)
    rota.ask("pool", "set", "global", "0")
    rota.ask("rewind", job)
    rota.ask("edit", job, "--name", "again", "--priority", "4")
    path = rota.home / "jobs" / job.removeprefix("job-") / "job.json"

    def follows() -> bool:
        record = json.loads(path.read_text())
        return (record["name"], record["priority"], record["status"]) == ("again", 4, "QUEUED")

    eventually(follows, what="job.json with the new name")


def test_locks_are_listed_with_who_holds_them_and_who_stands_in_line(rota: Rota, stage: Stage) -> None:
    rota.ask("pool", "set", "global", "-1")
    holder = rota.submit("--lock", "repo", *stage.actor("holder"))
    readers = [rota.submit("--lock", "repo:shared", *stage.walk_on(name)) for name in ("one", "two")]
    assert stage.hear() == ["holder begins"]
    rota.ask("move", readers[1], "--first")
    assert rota.ask("lock", "list").lines[1].split(None, 3) == [
        "repo", "exclusive", holder, f"{readers[1]}:shared, {readers[0]}:shared",
    ]  # fmt: skip
    assert rota.ask("lock", "list", "repo", "--json").json()["locks"][0]["waiting"] == 2
    stage.release("holder")
    rota.wait(*readers)
    assert rota.ask("lock", "list").err == "rota: no lock is held or wanted\n"
