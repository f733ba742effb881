"""Chains with real processes: a flaky script, the night it has, and the morning after."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from e2e.rig import Rota, Stage, eventually

FLAKY = """#!/bin/sh
# Succeeds at its third run.
echo run >> runs
count=$(grep -c run runs)
echo "this is run $count"
echo "trouble $count" >&2
[ "$count" -ge 3 ]
"""


def flaky(rota: Rota, base: str = "200ms") -> list[str]:
    script = Path(rota.cwd / "flaky")
    script.write_text(FLAKY)
    script.chmod(0o755)
    rota.ask("config", "set", "retry.base", base)
    return ["--", "./flaky"]


def chain(rota: Rota) -> list[dict[str, object]]:
    return [job for job in rota.jobs() if job["command"] == ["./flaky"]]


def attempt(rota: Rota, number: int) -> dict[str, Any]:
    """The chain's job of this number, as soon as there is one."""
    return eventually(lambda: next((job for job in rota.jobs() if job["attempt"] == number), None))


def moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def test_a_flaky_script_succeeds_at_its_third_run_and_its_dependant_waits_for_it(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky(rota))
    after = rota.submit("--after", job, "--", "wc", "-l", "runs")
    handler = rota.submit("--after", f"{job}:failed", "--", "true")
    rota.wait(job, after)
    first, second, third = chain(rota)
    assert [member["status"] for member in (first, second, third)] == ["FAILED", "FAILED", "COMPLETED"]
    assert [member["attempt"] for member in (first, second, third)] == [1, 2, 3]
    assert {member["chain"] for member in (first, second, third)} == {job}
    assert (second["retry_of"], third["retry_of"]) == (first["id"], second["id"])
    assert not any(member["permanently_failed"] for member in (first, second, third))
    for before, then, delay in ((first, second, 0.18), (second, third, 0.36)):
        waited = moment(then["started_at"]) - moment(before["finished_at"])
        assert waited.total_seconds() >= delay, "backoff is real"
    assert rota.ask("logs", after).out == "3 runs\n", "a dependant follows the chain"
    assert rota.ended(handler)["reason"] == f"not needed: {job} COMPLETED"
    assert rota.ask("logs", job).out == "this is run 1\n", "without --follow it is that member"
    assert rota.show(job)["run"]["error"] == "exit code 1\ntrouble 1\n"


def test_follow_goes_through_the_chain_and_returns_its_code(rota: Rota) -> None:
    said = rota.ask("submit", "--follow", "--retries", "3", *flaky(rota))
    assert said.out == "this is run 1\nthis is run 2\nthis is run 3\n"
    assert "job-1 FAILED: exit code 1; going on with job-2, retry 1 of 3" in said.err
    assert said.err.count("going on with") == 2
    late = rota.ask("logs", "--follow", "job-1")
    assert late.out == said.out


def test_wait_returns_the_code_of_the_chains_last_job(rota: Rota) -> None:
    rota.ask("config", "set", "retry.base", "50ms")
    script = "echo x >> codes; exit $(wc -l < codes)"
    job = rota.submit("--retries", "2", "--", "sh", "-c", script)
    waited = rota.json("wait", job, code=3)
    (last,) = waited["jobs"]
    assert (last["id"], last["exit_code"], last["permanently_failed"]) == ("job-3", 3, True)
    rota.wait("job-2", code=3)


def test_the_scheduler_is_killed_during_backoff(rota: Rota) -> None:
    """The delay and the count are in the store. LESSONS Retry: backoff computed, logged, never applied."""
    job = rota.submit("--retries", "3", *flaky(rota, base="1h"))
    waiting = attempt(rota, 2)
    until = waiting["not_before"]
    for _ in range(2):
        rota.crash()
        rota.start()
        shown = rota.show(waiting["id"])
        assert (shown["not_before"], shown["attempt"], len(rota.jobs())) == (until, 2, 2)
        assert not any(rota.status()["recovery"].values())
    assert "retry 1 of 3, not before" in rota.ask("list").out
    for number in (2, 3):
        said = rota.ask("retry", attempt(rota, number)["id"])
        assert said.err.endswith("waits already; cleared: its delay, its count of retries\n")
    rota.wait(job)
    members = chain(rota)
    assert [member["status"] for member in members] == ["FAILED", "FAILED", "COMPLETED"]
    assert (rota.cwd / "runs").read_text() == "run\n" * 3, "no run was lost, none was done twice"


def test_a_retry_that_comes_due_while_the_scheduler_is_away_runs_at_its_return(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky(rota, base="300ms"))
    eventually(lambda: len(rota.jobs()) > 1)
    rota.crash()
    rota.wait(job)
    assert (rota.cwd / "runs").read_text() == "run\n" * 3


def test_cancel_ends_a_chain_in_its_backoff(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky(rota, base="1h"))
    after = rota.submit("--after", job, "--", "true")
    eventually(lambda: len(chain(rota)) > 1)
    said = rota.ask("cancel", job)
    member = chain(rota)[-1]["id"]
    assert said.out == f"{member} CANCELLED\n"
    assert rota.ended(after)["status"] == "BLOCKED_BY_DEPENDENCY"
    rota.wait(job, code=143)
    again = rota.ask("retry", job)
    assert (
        f"rota: {after} stays BLOCKED_BY_DEPENDENCY; `rota rewind {after}` lets it follow the chain again" in again.err
    )


def test_retry_by_hand(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("work"))
    stage.hear()
    running = rota.api("POST", "/api/job-runs/run-1/retry")
    assert (running.status, running.json()["code"]) == (409, "conflict")
    assert rota.ask("retry", job, code=4).err == (
        "rota: job-1 is running; `rota wait job-1` for its end, or `rota cancel job-1` first\n"
    )
    stage.release("work", 3)
    rota.wait(job, code=3)
    answer = rota.api("POST", "/api/job-runs/run-1/retry")
    assert answer.status == 201
    body = answer.json()
    assert (body["job"]["retry_of"], body["job"]["attempt"], body["blocked"], body["warning"]) == (job, 2, [], None)
    assert body["text"] == "job-2 retries job-1 (FAILED)"
    stage.release("work", 0)
    rota.wait(job)
    assert "job-2 ended COMPLETED" in rota.ask("retry", job, code=4).err
    assert rota.ask("retry", "job-9", code=3).err == "rota: no such job: job-9; `rota list --all` shows what there is\n"
    assert "not a job or run id" in rota.ask("retry", "nothing", code=2).err


def test_a_wait_that_began_before_the_retry_hears_of_its_end(rota: Rota, stage: Stage) -> None:
    """The chain moves on while a command waits: it is told at once, not at the end of its poll."""
    rota.start()
    rota.ask("config", "set", "retry.base", "10ms")
    job = rota.post(stage.actor("work"), retries=1)
    begun = time.monotonic()
    waiting = rota.begin("wait", job)
    stage.hear()
    stage.release("work", 1)
    assert stage.hear(2) == ["work ends", "work begins"]
    stage.release("work", 5)
    assert rota.end(waiting).code == 5
    assert time.monotonic() - begun < 25, "a poll lasts 30 s"


def test_policies_by_name(rota: Rota) -> None:
    rota.ask("config", "set", "retry.quota.exit_codes", "75")
    rota.ask("config", "set", "retry.quota.base", "10ms")
    assert rota.json("config", "get", "retry.quota.exit_codes") == {"retry.quota.exit_codes": [75]}
    wall = rota.submit("--retry", "quota", "--", "sh", "-c", "exit 75")
    rota.wait(wall, code=75)
    assert len(rota.jobs()) == 4
    bug = rota.submit("--retry", "quota", "--", "sh", "-c", "exit 1")
    rota.wait(bug, code=1)
    assert rota.ask("why", bug).out == f"{bug} is FAILED: exit code 1; only exit codes 75 are retried\n"
    refused = rota.ask("submit", "--retry", "qouta", "--", "true", code=2)
    assert "unknown retry policy: 'qouta'; known are default, fleet, quota" in refused.err
    body = {"command": ["true"], "retries": "many"}
    assert rota.api("POST", "/api/jobs", body).status == 422
