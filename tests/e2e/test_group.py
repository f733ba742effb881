"""Groups with real commands, real jobs and scheduler crashes."""

from __future__ import annotations

from typing import Any

from tests.e2e.rig import ChildControl, Rota, eventually


def submit_group(rota: Rota, *commands: list[str], members: list[dict[str, Any]] | None = None, **group: Any) -> Any:
    member_fields = members or [{}] * len(commands)
    jobs = [
        {"command": command[1:] if command[0] == "--" else command, **member}
        for command, member in zip(commands, member_fields, strict=True)
    ]
    response = rota.api("POST", "/api/jobs/batch", {"jobs": jobs, "group": group})
    assert response.status == 201, response
    return response.json()


def job_statuses(rota: Rota) -> list[str]:
    return [job["status"] for job in rota.jobs()]


def test_dec_012_sequential_group_stops_at_its_first_failure(rota: Rota, children: ChildControl) -> None:
    """DEC-012, from the submit to the end of the group."""
    rota.start()
    rota.set_global_size(3)
    names = ["one", "two", "three", "four"]
    codes = [0, 7, 0, 0]
    commands = [children.immediate(name, code) for name, code in zip(names, codes, strict=True)]
    result = submit_group(rota, *commands, mode="sequential", name="nightly")
    assert result["group"] == "group-1"
    output = rota.wait("group-1", code=1)
    assert "group-1 PARTIAL nightly" in output.err
    assert job_statuses(rota) == ["COMPLETED", "FAILED", "CANCELLED", "CANCELLED"]
    last = rota.show("job-4")
    assert (last["reason"], last["exit_code"], last["run"]) == ("predecessor failed", 143, None)
    assert (last["group"], last["sequence"]) == ("group-1", 4)
    assert "job-2 of group-1 failed, and its policy is stop" in rota.run("why", "job-4").out
    shown = rota.run("group", "show", "nightly").out
    assert "status             PARTIAL" in shown
    assert "4 (1 COMPLETED, 1 FAILED, 2 CANCELLED)" in shown
    assert "after:finished -> job-1 COMPLETED" in rota.run("graph", "--all").out
    refused = rota.run("submit", "--group", "nightly", "--", "true", code=4)
    assert "is over and takes no further members" in refused.err
    assert rota.run("group", "list").out == ""
    (listing,) = rota.json("group", "list", "--all")["groups"]
    assert listing["counts"] == {"COMPLETED": 1, "FAILED": 1, "CANCELLED": 2}


def test_inv_006_group_ends_with_its_last_member_despite_crashes(rota: Rota, children: ChildControl) -> None:
    """INV-006: members that ended during a crash are recorded, and the group ends once, after its last member."""
    rota.start()
    rota.set_global_size(2)
    result = submit_group(
        rota,
        children.gated("a"),
        children.gated("b"),
        children.immediate("c"),
        members=[{}, {}, {"after": [{"job": "job-1"}]}],
        on_failure="skip",
    )
    for job in result["jobs"][:2]:
        rota.wait_for_start(job)
    rota.crash()
    children.release("a", 3)
    rota.start()
    assert rota.wait_for_end("job-1")["status"] == "FAILED"
    assert rota.show("job-3")["status"] == "SKIPPED"
    group = rota.api("GET", "/api/job-groups/group-1").json()
    assert (group["status"], group["finished_at"]) == ("RUNNING", None)
    waiting = rota.spawn("wait", "group-1")
    children.release("b")
    assert rota.finish(waiting).code == 1
    group = rota.api("GET", "/api/job-groups/group-1?wait=30").json()
    assert (group["status"], group["jobs"]) == ("PARTIAL", ["job-1", "job-2", "job-3"])
    rota.crash()
    rota.start()
    after_crash = rota.api("GET", "/api/job-groups/group-1").json()
    assert after_crash == group


def test_members_are_added_one_by_one(rota: Rota) -> None:
    rota.start()
    group = rota.run("group", "add", "slow", "--mode", "sequential", "--on-failure", "continue").lines[0]
    first = rota.submit("--group", "slow", "--", "false")
    rota.wait_for_end(first)
    second = rota.submit("--group", group, "--", "true")
    rota.wait_for_end(second)
    assert rota.show(second)["after"] == [{"job": first, "policy": "finished"}]
    assert rota.json("group", "show", "slow")["status"] == "RUNNING"
    assert rota.run("group", "close", "slow").out == f"{group} PARTIAL\n"
    listing = rota.json("list", "--all", "--group", "slow")["jobs"]
    assert {job["id"] for job in listing} == {first, second}
    assert f"group {group}: 2 jobs" in rota.run("list", "--all", "--by", "group").out
    assert (
        "a package adds a policy with an entry point" in rota.run("group", "add", "--on-failure", "shrug", code=2).err
    )
    assert "no such group" in rota.run("group", "show", "missing", code=3).err
    refused = rota.api("POST", "/api/job-groups", {"name": "group-9"})
    assert (refused.status, refused.json()["path"]) == (422, "$.name")


def test_group_cancel_returns_after_all_processes_ended(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(2)
    result = submit_group(rota, children.gated("a"), children.gated("b"), children.gated("c"), children.gated("d"))
    pids = [rota.wait_for_start(job)["pid"] for job in result["jobs"][:2]]
    assert rota.run("cancel", "group-1").out == "group-1 CANCELLED\n"
    assert job_statuses(rota) == ["CANCELLED"] * 4
    assert not set(pids) & set(rota.processes())
    assert rota.run("group", "cancel", "group-1").out == "group-1 CANCELLED\n"
    assert rota.wait("group-1", code=143).code == 143


def test_group_rewind_runs_failed_and_cancelled_members(rota: Rota) -> None:
    rota.start()
    gate = rota.cwd / "repaired"
    submit_group(rota, ["true"], ["test", "-e", str(gate)], ["true"], mode="sequential")
    rota.wait("group-1", code=1)
    retried = rota.run("retry", "job-2")
    assert "job-3 stays as the group's policy left it; `rota group rewind group-1` lets it run too" in retried.err
    rota.wait("group-1", code=1)
    gate.touch()
    assert "reset: job-4, job-3" in rota.run("group", "rewind", "group-1").out
    assert rota.wait("group-1").code == 0
    assert rota.json("group", "show", "group-1")["counts"] == {"COMPLETED": 3}


def test_group_long_poll_returns_on_a_change(rota: Rota, children: ChildControl) -> None:
    rota.start()
    submit_group(rota, children.gated("a"), ["true"], mode="sequential")
    rota.wait_for_start("job-1")
    first = eventually(lambda: _group_with_one_running(rota), description="one member running, one waiting")
    children.release("a")
    changed = rota.api("GET", f"/api/job-groups/group-1?wait=30&last_seen={first['etag']}").json()
    assert changed["etag"] != first["etag"]
    assert changed["counts"] != first["counts"]
    assert rota.api("GET", "/api/job-groups/group-1?wait=30").json()["status"] == "COMPLETED"
    assert rota.api("GET", "/api/job-groups?limit=1").json()["groups"][0]["id"] == "group-1"
    assert rota.api("GET", "/api/jobs?group=group-1&status=COMPLETED").json()["jobs"][0]["group"] == "group-1"


def _group_with_one_running(rota: Rota) -> dict[str, Any] | None:
    group: dict[str, Any] = rota.api("GET", "/api/job-groups/group-1").json()
    return group if group["counts"] == {"RUNNING": 1, "WAITING_ON_DEPS": 1} else None
