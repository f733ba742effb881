"""Circuit breaker: a failing job type is held, other jobs continue, and it recovers by itself or by a manual reset."""

from __future__ import annotations

import re
from functools import partial

from tests.e2e.rig import ChildControl, Rota, eventually

FAIL = ["sh", "-c", "echo quota exceeded >&2; exit 3"]


def configure(rota: Rota, cool_down: str) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(
        f'[pools]\nglobal = 4\n\n[breaker]\nfailures = 2\nwindow = "1h"\ncool_down = "{cool_down}"\n'
    )
    rota.start()


def dispatch_failures(rota: Rota, job: str) -> int:
    """Return the failed starts of a job that waits for its next start, otherwise 0."""
    shown = rota.show(job)
    return int(shown["dispatch_failures"]) if shown["status"] == "QUEUED" else 0


def test_failing_type_is_held_over_a_crash_until_a_manual_reset(rota: Rota) -> None:
    """LESSONS Retry: 3,612 failures in 70 hours; three strikes and never healed."""
    configure(rota, "1h")
    for _ in range(2):
        assert rota.wait_for_end(rota.post_job(FAIL, type="flaky"))["exit_code"] == 3
    held = rota.submit("--type", "flaky", "--", "true")
    locked = rota.submit("--type", "flaky", "--lock", "repo", "--", "true")
    rota.wait(rota.submit("--type", "solid", "--lock", "repo", "--", "true"), rota.submit("--", "true"))

    text = r"breaker open for type/flaky until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"
    output = rota.run("why", held).out
    assert re.fullmatch(rf"{held} is QUEUED: {text}\n", output), output
    assert rota.json("why", locked)["wait"]["kind"] == "paused"
    until = rota.show(held)["wait"]["detail"].removeprefix("breaker open for type/flaky until ")
    assert f"breaker        type/flaky open until {until}\n" in rota.run("status").out
    status = rota.json("status")
    assert [(breaker["key"], breaker["state"]) for breaker in status["breakers"]] == [("type/flaky", "open")]
    assert status["waiting"] == {"paused": 2}
    assert re.fullmatch(rf"{held}: {text}", status["idle_reason"])
    assert rota.run("breaker").out.splitlines()[1].split() == ["type/flaky", "open", "2", until]

    rota.crash()
    rota.start()
    assert rota.show(held)["wait"]["detail"] == f"breaker open for type/flaky until {until}"
    refused = rota.run("breaker", "reset", "type/flakey", code=3)
    assert (refused.out, refused.err) == ("", "rota: no such breaker: type/flakey; known breakers: type/flaky\n")
    assert rota.run("breaker", "reset", "type/flaky").out == "type/flaky closed\n"
    rota.wait(held, locked)
    assert rota.json("breaker", "list") == {"breakers": []}
    assert not any(line.startswith("breaker ") for line in rota.run("status").lines)


def test_probe_job_after_the_cool_down_decides(rota: Rota, children: ChildControl) -> None:
    configure(rota, "300ms")
    for _ in range(2):
        rota.wait_for_end(rota.post_job(FAIL, target="web"))
    jobs = {name: rota.post_job(children.gated(name), target="web") for name in "abc"}
    assert children.read_lines() == ["a begins"]
    assert children.read_available() == []
    assert rota.show(jobs["b"])["wait"]["detail"] == f"breaker open for target/web until {jobs['a']} has ended"
    assert f"breaker        target/web half-open, {jobs['a']} is the probe\n" in rota.run("status").out
    children.release("a", 1)
    assert children.read_lines(2) == ["a ends", "b begins"], (
        "after a failed, the breaker opened, cooled down and probed with the next job"
    )
    rota.crash()
    rota.start()
    assert rota.json("breaker", "list")["breakers"][0]["probe_job"] == jobs["b"]
    assert children.read_available() == []
    children.release("b")
    assert children.read_lines(2) == ["b ends", "c begins"]
    assert rota.json("breaker", "list") == {"breakers": []}
    children.release("c")
    rota.wait(jobs["c"])


def test_reset_starts_a_job_with_failed_starts_immediately(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text('[breaker]\ndispatch_failures = 9\nstart_delays = ["10ms", "10ms", "1h"]\n')
    rota.start()
    tool = rota.cwd / "tool"
    job = rota.post_job([str(tool)])
    failures = partial(dispatch_failures, rota, job)
    eventually(lambda: failures() >= 3, description="three failed starts; the next attempt is an hour away")
    rota.run("pause")
    failure_count = eventually(failures, description="back in the queue")
    tool.write_text("#!/bin/sh\nexit 7\n")
    tool.chmod(0o755)
    output = rota.run("breaker", "reset", job)
    assert output.out == f"{job} QUEUED\n"
    assert output.err == f"rota: failed starts cleared: {failure_count}; the job starts immediately\n"
    rota.run("resume")
    assert rota.wait_for_end(job)["exit_code"] == 7
    assert rota.run("breaker", "reset", job, code=4).err == (
        f"rota: {job} has no failed starts to clear (FAILED); nothing was changed\n"
    )
    assert rota.run("breaker", "reset", "99", code=3).err.startswith("rota: no such job: job-99")


def test_breaker_configuration_is_validated_and_takes_effect_while_running(rota: Rota) -> None:
    configure(rota, "1h")
    for _ in range(2):
        rota.wait_for_end(rota.post_job(FAIL, type="flaky"))
    held = rota.post_job(["true"], type="flaky")
    assert rota.show(held)["wait"]["kind"] == "paused"
    assert rota.run("config", "set", "breaker.failures", "0", code=2).err == (
        'rota: breaker.failures cannot be "0"; it takes a whole number from 1 to 2147483647, or "off"\n'
    )
    rota.run("config", "set", "breaker.failures", "off")
    rota.wait(held)
    for _ in range(3):
        rota.wait_for_end(rota.post_job(FAIL, type="flaky"))
    assert rota.json("breaker", "list") == {"breakers": []}
    assert rota.run("breaker").err == "rota: all breakers are closed, without recent failures\n"
