"""Waiting jobs are edited and moved while others run and over restarts, and the edit takes effect."""

from __future__ import annotations

import json

from tests.e2e.rig import ChildControl, Rota, eventually, kill


def test_dec_005_moves_while_a_job_runs_survive_a_crash(rota: Rota, children: ChildControl) -> None:
    """LESSONS Waiting: urgent work waited behind the rest and could not be moved."""
    running = rota.submit(*children.gated("running"))
    jobs = {name: rota.submit("--name", name, *children.immediate(name)) for name in "abcd"}
    assert children.read_lines() == ["running begins"]
    assert rota.run("move", jobs["d"], "--first").out == f"{jobs['d']} place 1 of priority 0\n"
    kill(rota.run("status", "--json").json()["pid"])
    assert rota.run("move", jobs["a"], "--last").out == f"{jobs['a']} place 4 of priority 0\n"
    refused = rota.run("move", running, "--last", code=4)
    assert refused.err == f"rota: {running} is RUNNING; only waiting jobs can be moved\n"
    late = rota.submit("--name", "late", *children.immediate("late"))
    rota.run("move", jobs["c"], jobs["b"], "--reorder")
    assert [job["name"] for job in rota.run("list", "--json").json()["jobs"]] == [None, "d", "c", "b", "a", "late"]
    queue = rota.api("GET", "/api/queue").json()
    expected_order = ["d", "c", "b", "a", "late"]
    assert [(job["name"], job["place"]) for job in queue["jobs"]] == [
        (name, n) for n, name in enumerate(expected_order, 1)
    ]
    first = rota.api("GET", "/api/queue?limit=3").json()
    rest = rota.api("GET", f"/api/queue?limit=3&cursor={first['next']}").json()
    assert [*first["jobs"], *rest["jobs"]] == queue["jobs"]
    assert rest["next"] is None
    children.release("running")
    rota.wait(*jobs.values(), late)
    output = [line for line in children.read_available() if line.endswith("begins")]
    assert output == [f"{name} begins" for name in expected_order]


def test_inv_001_waiting_jobs_are_edited_and_dispatched_jobs_are_not(rota: Rota, children: ChildControl) -> None:
    running = rota.submit(*children.gated("running"))
    job = rota.submit("--param", "a=1", "--param", "b=2", "--", "false")
    assert children.read_lines() == ["running begins"]
    words = ("--param", "a=9", "--unset-param", "b", "--priority", "3", "--name", "new", "--timeout", "1m")
    result = rota.run("edit", job, *words, "--", "sh", "-c", 'echo "$ROTA_PARAMS"')
    assert result.out == f"{job} command, name, params, priority, timeout\n"
    refused = rota.run("edit", running, "--param", "a=2", code=4)
    text = f"Cannot modify params after dispatch: {running} is RUNNING; only waiting jobs can be changed"
    assert refused.err == f"rota: {text}\n"
    response = rota.api("PATCH", f"/api/jobs/{running}", {"params": {}})
    assert (response.status, response.json()["code"]) == (409, "conflict")
    response = rota.api("PATCH", f"/api/jobs/{job}", {"after": [], "name": "x"})
    assert (response.status, rota.show(job)["name"]) == (422, "new")
    assert (response.json()["path"], "submit it again" in response.json()["detail"]) == ("$.after", True)
    response = rota.api("PATCH", f"/api/jobs/{job}", {"priority": "high"})
    assert (response.status, response.json()["path"]) == (422, "$.priority")
    assert rota.api("PATCH", f"/api/jobs/{job}", {}).json()["detail"].startswith("the edit is empty")
    children.release("running")
    rota.wait(job)
    assert json.loads(rota.run("logs", job, "--stream", "stdout").out) == {"a": "9"}
    assert rota.show(job)["command"][:2] == ["sh", "-c"]


def test_removing_the_delay_starts_the_job(rota: Rota) -> None:
    job = rota.submit("--delay", "1h", "--", "true")
    assert rota.run("edit", job, "--delay", "none").out == f"{job} not_before\n"
    rota.wait(job)


def test_job_file_is_updated_after_an_edit(rota: Rota) -> None:
    job = rota.submit("--", "true")
    rota.wait(job)
    rota.run("pool", "set", "global", "0")
    rota.run("rewind", job)
    rota.run("edit", job, "--name", "again", "--priority", "4")
    path = rota.home / "jobs" / job.removeprefix("job-") / "job.json"

    def is_updated() -> bool:
        if not path.exists():  # the rewind removed the files of the old run; this one is written after the turn
            return False
        record = json.loads(path.read_text())
        return (record["name"], record["priority"], record["status"]) == ("again", 4, "QUEUED")

    eventually(is_updated, description="job.json with the new name")


def test_lock_list_shows_holders_and_waiters(rota: Rota, children: ChildControl) -> None:
    rota.run("pool", "set", "global", "-1")
    holder = rota.submit("--lock", "repo", *children.gated("holder"))
    readers = [rota.submit("--lock", "repo:shared", *children.immediate(name)) for name in ("one", "two")]
    assert children.read_lines() == ["holder begins"]
    rota.run("move", readers[1], "--first")
    assert rota.run("lock", "list").lines[1].split(None, 3) == [
        "repo",
        "exclusive",
        holder,
        f"{readers[1]}:shared, {readers[0]}:shared",
    ]
    assert rota.run("lock", "list", "repo", "--json").json()["locks"][0]["waiting"] == 2
    children.release("holder")
    rota.wait(*readers)
    assert rota.run("lock", "list").err == "rota: no lock is held or waited for\n"
