"""§4: capacity, seen from the children that share it."""

from __future__ import annotations

from e2e.rig import Rota, Stage


def _most_at_once(lines: list[str]) -> int:
    most = now = 0
    for line in lines:
        now += 1 if line.endswith("begins") else -1
        most = max(most, now)
    return most


def test_one_at_a_time_unless_somebody_says_otherwise(rota: Rota, stage: Stage) -> None:
    """DEC-011. LESSONS Dispatch: awaiting between dequeue and registration exceeded the cap."""
    jobs = [rota.submit(*stage.walk_on(f"job{number}")) for number in range(8)]
    rota.wait(*jobs)
    lines = stage.heard()
    assert len(lines) == 16
    assert _most_at_once(lines) == 1
    assert lines == [f"job{number} {act}" for number in range(8) for act in ("begins", "ends")]


def test_a_raised_limit_starts_jobs_at_once_and_a_lowered_one_drains(rota: Rota, stage: Stage) -> None:
    """LESSONS Store: cap lowered mid-run was ignored."""
    names = "abcdef"
    jobs = dict(zip(names, [rota.submit(*stage.actor(name)) for name in names], strict=True))
    assert stage.hear() == ["a begins"]
    rota.ask("pool", "set", "global", "3")
    assert sorted(stage.hear(2)) == ["b begins", "c begins"]
    assert rota.status()["pools"]["global"] == {"size": 3, "used": 3}
    rota.ask("pool", "set", "global", "2")
    assert rota.show(jobs["d"])["wait"]["detail"] == "waiting on pool global (3/2)"
    stage.release("a")
    rota.wait(jobs["a"])
    assert rota.show(jobs["d"])["status"] == "QUEUED", "two still run, and two is the limit"
    stage.release("b")
    assert stage.hear(3) == ["a ends", "b ends", "d begins"]
    rota.ask("pool", "set", "global", "-1")
    assert sorted(stage.hear(2)) == ["e begins", "f begins"]
    assert rota.status()["mode"] == "direct"
    for name in "cdef":
        stage.release(name)
    rota.wait(*jobs.values())
    assert "global = -1" in (rota.home / "rota.toml").read_text()


def test_nought_lets_nothing_start_and_status_says_so(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: nothing ran for 4 h 27 m, for 12 h, and nothing was logged."""
    running = rota.submit(*stage.actor("running"))
    assert stage.hear() == ["running begins"]
    rota.ask("pool", "set", "global", "0")
    waiting = rota.submit(*stage.walk_on("waiting"))
    stage.release("running")
    rota.wait(running)
    status = rota.json("status")
    assert (status["running"], status["queued"], status["ready"]) == (0, 1, 1)
    assert status["idle_because"] == f"{waiting}: waiting on pool global (0/0)"
    assert f"idle because   {waiting}: waiting on pool global (0/0)" in rota.ask("status").out
    assert rota.ask("why", waiting).lines[0] == f"{waiting} is QUEUED: waiting on pool global (0/0)"
    assert stage.heard() == ["running ends"]
    rota.ask("pool", "set", "global", "1")
    rota.wait(waiting)
    assert rota.status()["idle_because"] is None


def test_direct_mode_starts_a_job_in_the_call_that_submits_it(rota: Rota, stage: Stage) -> None:
    rota.ask("pool", "set", "global", "-1")
    rota.start()
    for number in range(3):
        assert rota.json("submit", *stage.walk_on(f"job{number}"))["job"]["status"] == "RUNNING"
    rota.wait("job-1", "job-2", "job-3")


def test_pools_of_their_own(rota: Rota, stage: Stage) -> None:
    rota.ask("pool", "set", "global", "-1")
    rota.ask("pool", "set", "type/story", "1")
    rota.ask("pool", "set", "resource/gpu", "4")
    story = rota.submit("--type", "story", *stage.actor("story"))
    sequel = rota.submit("--type", "story", *stage.actor("sequel"))
    flow = rota.submit("--flow", "web", *stage.actor("flow"))
    stream = rota.submit("--flow", "web", *stage.actor("stream"))
    heavy = rota.submit("--pool", "resource/gpu=3", *stage.actor("heavy"))
    heavier = rota.submit("--pool", "resource/gpu=2", *stage.actor("heavier"))
    assert sorted(stage.hear(3)) == ["flow begins", "heavy begins", "story begins"]
    assert rota.show(sequel)["wait"]["detail"] == "waiting on pool type/story (1/1)"
    assert rota.show(stream)["wait"]["detail"] == "waiting on pool flow/web (1/1)"
    assert rota.show(heavier)["wait"] == {
        "kind": "capacity",
        "detail": "waiting on pool resource/gpu (3/4)",
        "on": ["pool:resource/gpu"],
    }
    for first, then in (("story", "sequel"), ("flow", "stream"), ("heavy", "heavier")):
        stage.release(first)
        assert stage.hear(2) == [f"{first} ends", f"{then} begins"]
    for then in ("sequel", "stream", "heavier"):
        stage.release(then)
    rota.wait(story, sequel, flow, stream, heavy, heavier)


def test_option_c_of_the_execution_flow_ollama_takes_turns_and_two_are_remote(rota: Rota, stage: Stage) -> None:
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text('[pools]\nglobal = -1\n"resource/ollama" = 1\n"resource/remote" = 2\n')
    wanted = {"j1": "ollama", "j2": "remote", "j3": "ollama", "j4": "remote", "j5": "remote"}
    jobs = [rota.submit("--pool", f"resource/{pool}", *stage.actor(name)) for name, pool in wanted.items()]
    assert sorted(stage.hear(3)) == ["j1 begins", "j2 begins", "j4 begins"]
    for first, then in (("j2", "j5"), ("j1", "j3")):
        stage.release(first)
        assert stage.hear(2) == [f"{first} ends", f"{then} begins"]
    for name in ("j3", "j4", "j5"):
        stage.release(name)
    rota.wait(*jobs)


def test_what_can_never_fit_is_taken_with_a_warning_that_why_repeats(rota: Rota) -> None:
    """LESSONS Dispatch: accepted silently and could never run: 2.5 h, 4 h lost."""
    said = rota.ask("submit", "--pool", "resource/ollama=2", "--", "true")
    assert said.out == "job-1\n"
    assert said.err.startswith("rota: warning: ")
    assert "resource/ollama" in said.err
    assert "resource/ollama" in rota.ask("why", "job-1").lines[-1]
    assert rota.show("job-1")["status"] == "QUEUED"


def test_the_scheduler_answers_while_children_take_their_time(rota: Rota, stage: Stage) -> None:
    """LESSONS Dispatch: synchronous dispatch in the tick: 142 s a tick. Here the tick never waits for a child."""
    rota.ask("pool", "set", "global", "2")
    slow = rota.submit(*stage.actor("slow"))
    assert stage.hear() == ["slow begins"]
    jobs = [rota.submit(*stage.walk_on(f"quick{number}")) for number in range(3)]
    rota.wait(*jobs)
    assert rota.show(slow)["status"] == "RUNNING"
    stage.release("slow")
    rota.wait(slow)


def test_a_child_faster_than_its_own_record(rota: Rota) -> None:
    """LESSONS Dispatch: a very fast child finished before `running` was written and was overwritten."""
    rota.ask("pool", "set", "global", "-1")
    told = [rota.api("POST", "/api/jobs", {"command": ["true"]}).json() for _ in range(60)]
    for each in told:
        shown = rota.ended(each["job"]["id"])
        assert (shown["status"], shown["exit_code"], shown["run"]["status"]) == ("COMPLETED", 0, "COMPLETED")
        assert shown["created_at"] <= shown["started_at"] <= shown["finished_at"]
        assert shown["pid"] is not None
