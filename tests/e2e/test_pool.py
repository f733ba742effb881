"""Pool capacity, observed from the children that share it."""

from __future__ import annotations

from tests.e2e.rig import ChildControl, Rota


def _max_concurrent(lines: list[str]) -> int:
    maximum = running_count = 0
    for line in lines:
        running_count += 1 if line.endswith("begins") else -1
        maximum = max(maximum, running_count)
    return maximum


def test_one_job_at_a_time_by_default(rota: Rota, children: ChildControl) -> None:
    """DEC-011. LESSONS Dispatch: awaiting between dequeue and registration exceeded the cap."""
    jobs = [rota.submit(*children.immediate(f"job{number}")) for number in range(8)]
    rota.wait(*jobs)
    lines = children.read_available()
    assert len(lines) == 16
    assert _max_concurrent(lines) == 1
    assert lines == [f"job{number} {act}" for number in range(8) for act in ("begins", "ends")]


def test_raised_limit_starts_jobs_and_lowered_limit_drains(rota: Rota, children: ChildControl) -> None:
    """LESSONS Store: cap lowered mid-run was ignored."""
    names = "abcdef"
    jobs = dict(zip(names, [rota.submit(*children.gated(name)) for name in names], strict=True))
    assert children.read_lines() == ["a begins"]
    rota.run("pool", "set", "global", "3")
    assert sorted(children.read_lines(2)) == ["b begins", "c begins"]
    assert rota.status()["pools"]["global"] == {"size": 3, "used": 3}
    rota.run("pool", "set", "global", "2")
    assert rota.show(jobs["d"])["wait"]["detail"] == "waiting on pool global (3/2)"
    children.release("a")
    rota.wait(jobs["a"])
    assert rota.show(jobs["d"])["status"] == "QUEUED", "two jobs still run, and the limit is two"
    children.release("b")
    assert children.read_lines(3) == ["a ends", "b ends", "d begins"]
    rota.run("pool", "set", "global", "-1")
    assert sorted(children.read_lines(2)) == ["e begins", "f begins"]
    assert rota.status()["mode"] == "direct"
    for name in "cdef":
        children.release(name)
    rota.wait(*jobs.values())
    assert "global = -1" in (rota.home / "rota.toml").read_text()


def test_size_zero_starts_nothing_and_status_says_so(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: nothing ran for 4 h 27 m, for 12 h, and nothing was logged."""
    running = rota.submit(*children.gated("running"))
    assert children.read_lines() == ["running begins"]
    rota.run("pool", "set", "global", "0")
    waiting = rota.submit(*children.immediate("waiting"))
    children.release("running")
    rota.wait(running)
    status = rota.json("status")
    assert (status["running"], status["queued"], status["ready"]) == (0, 1, 1)
    assert status["idle_reason"] == f"{waiting}: waiting on pool global (0/0)"
    assert f"idle because   {waiting}: waiting on pool global (0/0)" in rota.run("status").out
    assert rota.run("why", waiting).lines[0] == f"{waiting} is QUEUED: waiting on pool global (0/0)"
    assert children.read_available() == ["running ends"]
    rota.run("pool", "set", "global", "1")
    rota.wait(waiting)
    assert rota.status()["idle_reason"] is None


def test_direct_mode_starts_a_job_during_submit(rota: Rota, children: ChildControl) -> None:
    rota.run("pool", "set", "global", "-1")
    rota.start()
    for number in range(3):
        assert rota.json("submit", *children.immediate(f"job{number}"))["job"]["status"] == "RUNNING"
    rota.wait("job-1", "job-2", "job-3")


def test_type_flow_and_resource_pools_limit_independently(rota: Rota, children: ChildControl) -> None:
    rota.run("pool", "set", "global", "-1")
    rota.run("pool", "set", "type/story", "1")
    rota.run("pool", "set", "resource/gpu", "4")
    story = rota.submit("--type", "story", *children.gated("story"))
    sequel = rota.submit("--type", "story", *children.gated("sequel"))
    flow = rota.submit("--flow", "web", *children.gated("flow"))
    stream = rota.submit("--flow", "web", *children.gated("stream"))
    heavy = rota.submit("--pool", "resource/gpu=3", *children.gated("heavy"))
    heavier = rota.submit("--pool", "resource/gpu=2", *children.gated("heavier"))
    assert sorted(children.read_lines(3)) == ["flow begins", "heavy begins", "story begins"]
    assert rota.show(sequel)["wait"]["detail"] == "waiting on pool type/story (1/1)"
    assert rota.show(stream)["wait"]["detail"] == "waiting on pool flow/web (1/1)"
    assert rota.show(heavier)["wait"] == {
        "kind": "capacity",
        "detail": "waiting on pool resource/gpu (3/4)",
        "topics": ["pool:resource/gpu"],
    }
    for first, next_name in (("story", "sequel"), ("flow", "stream"), ("heavy", "heavier")):
        children.release(first)
        assert children.read_lines(2) == [f"{first} ends", f"{next_name} begins"]
    for next_name in ("sequel", "stream", "heavier"):
        children.release(next_name)
    rota.wait(story, sequel, flow, stream, heavy, heavier)


def test_resource_pools_limit_mixed_jobs(rota: Rota, children: ChildControl) -> None:
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text('[pools]\nglobal = -1\n"resource/ollama" = 1\n"resource/remote" = 2\n')
    pools_by_name = {"j1": "ollama", "j2": "remote", "j3": "ollama", "j4": "remote", "j5": "remote"}
    jobs = [rota.submit("--pool", f"resource/{pool}", *children.gated(name)) for name, pool in pools_by_name.items()]
    assert sorted(children.read_lines(3)) == ["j1 begins", "j2 begins", "j4 begins"]
    for first, next_name in (("j2", "j5"), ("j1", "j3")):
        children.release(first)
        assert children.read_lines(2) == [f"{first} ends", f"{next_name} begins"]
    for name in ("j3", "j4", "j5"):
        children.release(name)
    rota.wait(*jobs)


def test_submit_refuses_weight_above_pool_size(rota: Rota) -> None:
    """LESSONS Dispatch: accepted silently and could never run: 2.5 h, 4 h lost."""
    rota.start()
    refused = rota.run("submit", "--pool", "resource/ollama=2", "--", "true", code=2)
    assert "needs 2 of resource/ollama, whose size is 1" in refused.err
    assert rota.json("list", "--all")["jobs"] == []


def test_job_above_shrunk_pool_is_explained_and_passed(rota: Rota) -> None:
    """LESSONS Dispatch: accepted silently and could never run: 2.5 h, 4 h lost."""
    rota.start()
    rota.run("pool", "set", "resource/ollama", "2")
    rota.run("pause")
    heavy = rota.submit("--pool", "resource/ollama=2", "--", "true")
    rota.run("pool", "set", "resource/ollama", "1")
    rota.run("resume")
    rota.wait(rota.submit("--pool", "resource/ollama=1", "--", "true"))
    detail = "needs 2 of resource/ollama, whose size is 1"
    assert rota.show(heavy)["wait"]["detail"] == detail
    for command in ("why", heavy), ("status",):
        assert detail in rota.run(*command).out


def test_scheduler_stays_responsive_while_children_run(rota: Rota, children: ChildControl) -> None:
    """LESSONS Dispatch: synchronous dispatch in the tick: 142 s a tick. Here the tick never waits for a child."""
    rota.run("pool", "set", "global", "2")
    slow = rota.submit(*children.gated("slow"))
    assert children.read_lines() == ["slow begins"]
    jobs = [rota.submit(*children.immediate(f"quick{number}")) for number in range(3)]
    rota.wait(*jobs)
    assert rota.show(slow)["status"] == "RUNNING"
    children.release("slow")
    rota.wait(slow)


def test_very_short_job_is_recorded_correctly(rota: Rota) -> None:
    """LESSONS Dispatch: a very fast child finished before `running` was written and was overwritten."""
    rota.run("pool", "set", "global", "-1")
    responses = [rota.api("POST", "/api/jobs", {"command": ["true"]}).json() for _ in range(60)]
    for response in responses:
        shown = rota.wait_for_end(response["job"]["id"])
        assert (shown["status"], shown["exit_code"], shown["run"]["status"]) == ("COMPLETED", 0, "COMPLETED")
        assert shown["created_at"] <= shown["started_at"] <= shown["finished_at"]
        assert shown["pid"] is None, "the job has ended"
