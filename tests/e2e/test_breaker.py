"""A type of work that keeps failing is held, everything else goes on, and it heals by itself or by hand."""

from __future__ import annotations

import re
from functools import partial

from e2e.rig import Rota, Stage, eventually

FAIL = ["sh", "-c", "echo quota exceeded >&2; exit 3"]


def configure(rota: Rota, cool_down: str) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(
        f'[pools]\nglobal = 4\n\n[breaker]\nfailures = 2\nwindow = "1h"\ncool_down = "{cool_down}"\n'
    )
    rota.start()


def dispatch_failures(rota: Rota, job: str) -> int:
    """While it waits for its next try."""
    shown = rota.show(job)
    return int(shown["dispatch_failures"]) if shown["status"] == "QUEUED" else 0


def test_it_opens_says_so_everywhere_outlives_kill_9_and_is_reset_by_hand(rota: Rota) -> None:
    """LESSONS Retry: 3,612 failures in 70 hours; three strikes and never healed."""
    configure(rota, "1h")
    for _ in range(2):
        assert rota.ended(rota.post(FAIL, type="flaky"))["exit_code"] == 3
    held = rota.submit("--type", "flaky", "--", "true")
    locked = rota.submit("--type", "flaky", "--lock", "repo", "--", "true")
    rota.wait(rota.submit("--type", "solid", "--lock", "repo", "--", "true"), rota.submit("--", "true"))

    text = r"breaker open for type/flaky until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
    said = rota.ask("why", held).out
    assert re.fullmatch(rf"{held} is QUEUED: {text}\n", said), said
    assert rota.json("why", locked)["wait"]["kind"] == "paused"
    until = rota.show(held)["wait"]["detail"].removeprefix("breaker open for type/flaky until ")
    assert f"breaker        type/flaky open until {until}\n" in rota.ask("status").out
    status = rota.json("status")
    assert [(each["key"], each["state"]) for each in status["breakers"]] == [("type/flaky", "open")]
    assert status["waiting"] == {"paused": 2}
    assert re.fullmatch(rf"{held}: {text}", status["idle_because"])
    assert rota.ask("breaker").out.splitlines()[1].split() == ["type/flaky", "open", "2", until]

    rota.crash()
    rota.start()
    assert rota.show(held)["wait"]["detail"] == f"breaker open for type/flaky until {until}"
    refused = rota.ask("breaker", "reset", "type/flakey", code=3)
    assert (refused.out, refused.err) == ("", "rota: no such breaker: type/flakey; there are type/flaky\n")
    assert rota.ask("breaker", "reset", "type/flaky").out == "type/flaky closed\n"
    rota.wait(held, locked)
    assert rota.json("breaker", "list") == {"breakers": []}
    assert "breaker" not in rota.ask("status").out


def test_after_its_cool_down_one_job_tries_and_its_end_decides(rota: Rota, stage: Stage) -> None:
    configure(rota, "300ms")
    for _ in range(2):
        rota.ended(rota.post(FAIL, target="web"))
    jobs = {name: rota.post(stage.actor(name), target="web") for name in "abc"}
    assert stage.hear() == ["a begins"]
    assert stage.heard() == []
    assert rota.show(jobs["b"])["wait"]["detail"] == f"breaker open for target/web until {jobs['a']} has ended"
    assert f"breaker        target/web half-open, {jobs['a']} tries\n" in rota.ask("status").out
    stage.release("a", 1)
    assert stage.hear(2) == ["a ends", "b begins"], "a failed: it opened, cooled down, and let the next one try"
    rota.crash()
    rota.start()
    assert rota.json("breaker", "list")["breakers"][0]["probe"] == jobs["b"]
    assert stage.heard() == []
    stage.release("b")
    assert stage.hear(2) == ["b ends", "c begins"]
    assert rota.json("breaker", "list") == {"breakers": []}
    stage.release("c")
    rota.wait(jobs["c"])


def test_a_job_whose_start_fails_is_let_go_at_once_when_the_cause_is_gone(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text("[breaker]\ndispatch_failures = 9\n")
    rota.start()
    tool = rota.cwd / "tool"
    job = rota.post([str(tool)])
    failures = partial(dispatch_failures, rota, job)
    eventually(lambda: failures() >= 3, what="the next try is 4 s away, or more")
    rota.ask("pause")  # or it may fail once more before it is asked
    seen = eventually(failures, what="back in the queue")
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    said = rota.ask("breaker", "reset", job)
    assert said.out == f"{job} QUEUED\n"
    assert said.err == f"rota: failed starts forgotten: {seen}; it goes at once\n"
    rota.ask("resume")
    assert rota.ended(job)["exit_code"] == 7
    assert rota.ask("breaker", "reset", job, code=4).err == (
        f"rota: {job} has no failed start to forget (FAILED); nothing was changed\n"
    )
    assert rota.ask("breaker", "reset", "99", code=3).err.startswith("rota: no such job: job-99")


def test_the_figures_are_checked_and_taken_up_while_running(rota: Rota) -> None:
    configure(rota, "1h")
    for _ in range(2):
        rota.ended(rota.post(FAIL, type="flaky"))
    held = rota.post(["true"], type="flaky")
    assert rota.show(held)["wait"]["kind"] == "paused"
    assert rota.ask("config", "set", "breaker.failures", "0", code=2).err == (
        'rota: breaker.failures cannot be "0"; it takes a whole number from 1 to 2147483647, or "off"\n'
    )
    rota.ask("config", "set", "breaker.failures", "off")
    rota.wait(held)
    for _ in range(3):
        rota.ended(rota.post(FAIL, type="flaky"))
    assert rota.json("breaker", "list") == {"breakers": []}
    assert rota.ask("breaker").err == "rota: all breakers are closed, and nothing has failed lately\n"
