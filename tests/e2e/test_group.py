"""Groups at a terminal: real commands, real children, schedulers that are killed."""

from __future__ import annotations

from typing import Any

from e2e.rig import Rota, Stage, eventually


def batch(rota: Rota, *commands: list[str], members: list[dict[str, Any]] | None = None, **group: Any) -> Any:
    fields = members or [{}] * len(commands)
    jobs = [
        {"command": command[1:] if command[0] == "--" else command, **each}
        for command, each in zip(commands, fields, strict=True)
    ]
    answer = rota.api("POST", "/api/jobs/batch", {"jobs": jobs, "group": group})
    assert answer.status == 201, answer
    return answer.json()


def statuses(rota: Rota) -> list[str]:
    return [job["status"] for job in rota.jobs()]


def test_dec_012_a_sequential_group_stops_at_its_first_failure(rota: Rota, stage: Stage) -> None:
    """DEC-012, at the terminal from beginning to end."""
    rota.start()
    rota.set_global(3)
    names = ["one", "two", "three", "four"]
    codes = [0, 7, 0, 0]
    commands = [stage.walk_on(name, code) for name, code in zip(names, codes, strict=True)]
    told = batch(rota, *commands, mode="sequential", name="nightly")
    assert told["group"] == "group-1"
    said = rota.wait("group-1", code=1)
    assert "group-1 PARTIAL nightly" in said.err
    assert statuses(rota) == ["COMPLETED", "FAILED", "CANCELLED", "CANCELLED"]
    last = rota.show("job-4")
    assert (last["reason"], last["exit_code"], last["run"]) == ("predecessor failed", 143, None)
    assert (last["group"], last["sequence"]) == ("group-1", 4)
    assert "job-2 of group-1 failed, and its policy is stop" in rota.ask("why", "job-4").out
    shown = rota.ask("group", "show", "nightly").out
    assert "status             PARTIAL" in shown
    assert "4 (1 COMPLETED, 1 FAILED, 2 CANCELLED)" in shown
    assert "after:finished -> job-1 COMPLETED" in rota.ask("graph", "--all").out
    refused = rota.ask("submit", "--group", "nightly", "--", "true", code=4)
    assert "is over and takes no further members" in refused.err
    assert rota.ask("group", "list").out == ""
    (listed,) = rota.json("group", "list", "--all")["groups"]
    assert listed["counts"] == {"COMPLETED": 1, "FAILED": 1, "CANCELLED": 2}


def test_inv_006_a_group_ends_with_its_last_member_though_the_scheduler_is_killed(rota: Rota, stage: Stage) -> None:
    """INV-006: killed while members run and while one waits for its retry; what ended meanwhile is booked, the group
    ends once, and not before."""
    rota.start()
    rota.set_global(2)
    told = batch(
        rota, stage.actor("a"), stage.actor("b"), stage.walk_on("c"), members=[{}, {}, {"after": [{"job": "job-1"}]}],
        on_failure="skip",
    )  # fmt: skip
    for job in told["jobs"][:2]:
        rota.running(job)
    rota.crash()
    stage.release("a", 3)
    rota.start()
    assert rota.ended("job-1")["status"] == "FAILED"
    assert rota.show("job-3")["status"] == "SKIPPED"
    group = rota.api("GET", "/api/job-groups/group-1").json()
    assert (group["status"], group["finished_at"]) == ("RUNNING", None)
    waiting = rota.begin("wait", "group-1")
    stage.release("b")
    assert rota.end(waiting).code == 1
    group = rota.api("GET", "/api/job-groups/group-1?wait=30").json()
    assert (group["status"], group["jobs"]) == ("PARTIAL", ["job-1", "job-2", "job-3"])
    rota.crash()
    rota.start()
    again = rota.api("GET", "/api/job-groups/group-1").json()
    assert again == group


def test_a_script_adds_members_one_by_one(rota: Rota) -> None:
    rota.start()
    group = rota.ask("group", "add", "slow", "--mode", "sequential", "--on-failure", "continue").lines[0]
    first = rota.submit("--group", "slow", "--", "false")
    rota.ended(first)
    second = rota.submit("--group", group, "--", "true")
    rota.ended(second)
    assert rota.show(second)["after"] == [{"job": first, "policy": "finished"}]
    assert rota.json("group", "show", "slow")["status"] == "RUNNING"
    assert rota.ask("group", "close", "slow").out == f"{group} PARTIAL\n"
    listed = rota.json("list", "--all", "--group", "slow")["jobs"]
    assert {job["id"] for job in listed} == {first, second}
    assert f"group {group}: 2 jobs" in rota.ask("list", "--all", "--by", "group").out
    assert "a package adds one by an entry point" in rota.ask("group", "add", "--on-failure", "shrug", code=2).err
    assert "no such group" in rota.ask("group", "show", "nobody", code=3).err
    refused = rota.api("POST", "/api/job-groups", {"name": "group-9"})
    assert (refused.status, refused.json()["path"]) == (422, "$.name")


def test_cancelled_as_a_whole_it_is_gone_when_the_command_returns(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(2)
    told = batch(rota, stage.actor("a"), stage.actor("b"), stage.actor("c"), stage.actor("d"))
    pids = [rota.running(job)["pid"] for job in told["jobs"][:2]]
    assert rota.ask("cancel", "group-1").out == "group-1 CANCELLED\n"
    assert statuses(rota) == ["CANCELLED"] * 4
    assert not set(pids) & set(rota.processes())
    assert rota.ask("group", "cancel", "group-1").out == "group-1 CANCELLED\n"
    assert rota.wait("group-1", code=143).code == 143


def test_what_failed_runs_again_with_what_was_left_out(rota: Rota) -> None:
    rota.start()
    gate = rota.cwd / "mended"
    batch(rota, ["true"], ["test", "-e", str(gate)], ["true"], mode="sequential")
    rota.wait("group-1", code=1)
    retried = rota.ask("retry", "job-2")
    assert "job-3 stays as the group's policy left it; `rota group rewind group-1` lets it run too" in retried.err
    rota.wait("group-1", code=1)
    gate.touch()
    assert "reset: job-4, job-3" in rota.ask("group", "rewind", "group-1").out
    assert rota.wait("group-1").code == 0
    assert rota.json("group", "show", "group-1")["counts"] == {"COMPLETED": 3}


def test_a_long_poll_tells_of_each_change(rota: Rota, stage: Stage) -> None:
    rota.start()
    batch(rota, stage.actor("a"), ["true"], mode="sequential")
    rota.running("job-1")
    first = eventually(lambda: _settled(rota), what="the group at rest")
    stage.release("a")
    news = rota.api("GET", f"/api/job-groups/group-1?wait=30&seen={first['tag']}").json()
    assert news["tag"] != first["tag"]
    assert news["counts"] != first["counts"]
    assert rota.api("GET", "/api/job-groups/group-1?wait=30").json()["status"] == "COMPLETED"
    assert rota.api("GET", "/api/job-groups?limit=1").json()["groups"][0]["id"] == "group-1"
    assert rota.api("GET", "/api/jobs?group=group-1&status=COMPLETED").json()["jobs"][0]["group"] == "group-1"


def _settled(rota: Rota) -> dict[str, Any] | None:
    group: dict[str, Any] = rota.api("GET", "/api/job-groups/group-1").json()
    return group if group["counts"] == {"RUNNING": 1, "WAITING_ON_DEPS": 1} else None
