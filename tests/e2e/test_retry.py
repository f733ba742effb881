"""Retry chains with real processes."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.e2e.rig import ChildControl, Rota, eventually

FLAKY = """#!/bin/sh
# Succeeds at its third run.
echo run >> runs
count=$(grep -c run runs)
echo "this is run $count"
echo "error $count" >&2
[ "$count" -ge 3 ]
"""


def flaky_command(rota: Rota, base: str = "200ms") -> list[str]:
    script = Path(rota.cwd / "flaky")
    script.write_text(FLAKY)
    script.chmod(0o755)
    rota.run("config", "set", "retry.base", base)
    return ["--", "./flaky"]


def flaky_jobs(rota: Rota) -> list[dict[str, object]]:
    return [job for job in rota.jobs() if job["command"] == ["./flaky"]]


def wait_for_attempt(rota: Rota, number: int) -> dict[str, Any]:
    """Wait for the job with this attempt number."""
    return eventually(lambda: next((job for job in rota.jobs() if job["attempt"] == number), None))


def parse_time(text: object) -> datetime:
    return datetime.fromisoformat(str(text))


def test_dependent_waits_for_the_retries_of_a_flaky_job(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky_command(rota))
    after = rota.submit("--after", job, "--", "wc", "-l", "runs")
    handler = rota.submit("--after", f"{job}:failed", "--", "true")
    rota.wait(job, after)
    first, second, third = flaky_jobs(rota)
    assert [member["status"] for member in (first, second, third)] == ["FAILED", "FAILED", "COMPLETED"]
    assert [member["attempt"] for member in (first, second, third)] == [1, 2, 3]
    assert {member["chain"] for member in (first, second, third)} == {job}
    assert (second["retry_of"], third["retry_of"]) == (first["id"], second["id"])
    assert not any(member["permanently_failed"] for member in (first, second, third))
    for before, following, delay in ((first, second, 0.18), (second, third, 0.36)):
        waited = parse_time(following["started_at"]) - parse_time(before["finished_at"])
        assert waited.total_seconds() >= delay, "the delay was applied"
    assert rota.run("logs", after).out == "3 runs\n", "a dependent waits for the chain"
    assert rota.wait_for_end(handler)["reason"] == f"not needed: {third['id']} COMPLETED"
    assert rota.run("logs", job).out == "this is run 1\n", "without --follow, the log of that job only"
    assert rota.show(job)["run"]["error"] == "exit code 1\nerror 1\n"


def test_follow_continues_with_retries_and_returns_the_last_code(rota: Rota) -> None:
    output = rota.run("submit", "--follow", "--retries", "3", *flaky_command(rota))
    assert output.out == "this is run 1\nthis is run 2\nthis is run 3\n"
    assert "job-1 FAILED: exit code 1; following job-2" in output.err
    assert re.findall(r"following job-3, (retry \d of \d)", output.err) in (["retry 2 of 3"], []), (
        "shown only while the retry waits"
    )
    assert output.err.count("following") == 2
    late = rota.run("logs", "--follow", "job-1")
    assert late.out == output.out


def test_wait_returns_the_code_of_the_last_retry(rota: Rota) -> None:
    rota.run("config", "set", "retry.base", "50ms")
    script = "echo x >> codes; exit $(wc -l < codes)"
    job = rota.submit("--retries", "2", "--", "sh", "-c", script)
    waited = rota.json("wait", job, code=3)
    (last,) = waited["jobs"]
    assert (last["id"], last["exit_code"], last["permanently_failed"]) == ("job-3", 3, True)
    rota.wait("job-2", code=3)


def test_backoff_survives_a_crash(rota: Rota) -> None:
    """The delay and the count are in the store. LESSONS Retry: backoff computed, logged, never applied."""
    job = rota.submit("--retries", "3", *flaky_command(rota, base="1h"))
    waiting = wait_for_attempt(rota, 2)
    until = waiting["not_before"]
    for _ in range(2):
        rota.crash()
        rota.start()
        shown = rota.show(waiting["id"])
        assert (shown["not_before"], shown["attempt"], len(rota.jobs())) == (until, 2, 2)
        assert not any(rota.status()["recovery"].values())
    assert "retry 1 of 3, not before" in rota.run("list").out
    for number in (2, 3):
        output = rota.run("retry", wait_for_attempt(rota, number)["id"])
        assert output.err.endswith("is already waiting; cleared: its delay, its count of retries\n")
    rota.wait(job)
    members = flaky_jobs(rota)
    assert [member["status"] for member in members] == ["FAILED", "FAILED", "COMPLETED"]
    assert (rota.cwd / "runs").read_text() == "run\n" * 3, "no run was lost or repeated"


def test_retry_due_while_down_runs_after_restart(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky_command(rota, base="300ms"))
    eventually(lambda: len(rota.jobs()) > 1)
    rota.crash()
    rota.wait(job)
    assert (rota.cwd / "runs").read_text() == "run\n" * 3


def test_cancel_ends_a_chain_during_backoff(rota: Rota) -> None:
    job = rota.submit("--retries", "3", *flaky_command(rota, base="1h"))
    after = rota.submit("--after", job, "--", "true")
    eventually(lambda: len(flaky_jobs(rota)) > 1)
    output = rota.run("cancel", job)
    member = flaky_jobs(rota)[-1]["id"]
    assert output.out == f"{member} CANCELLED\n"
    assert rota.wait_for_end(after)["status"] == "BLOCKED_BY_DEPENDENCY"
    rota.wait(job, code=143)
    again = rota.run("retry", job)
    assert (
        f"rota: {after} stays BLOCKED_BY_DEPENDENCY; `rota rewind {after}` lets it follow the chain again" in again.err
    )


def test_manual_retry(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("work"))
    children.read_lines()
    running = rota.api("POST", "/api/job-runs/run-1/retry")
    assert (running.status, running.json()["code"]) == (409, "conflict")
    assert rota.run("retry", job, code=4).err == (
        "rota: job-1 is running; `rota wait job-1` for its end, or `rota cancel job-1` first\n"
    )
    children.release("work", 3)
    rota.wait(job, code=3)
    response = rota.api("POST", "/api/job-runs/run-1/retry")
    assert response.status == 201
    body = response.json()
    assert (body["job"]["retry_of"], body["job"]["attempt"], body["blocked"], body["warning"]) == (job, 2, [], None)
    assert body["message"] == "job-2 retries job-1 (FAILED)"
    children.release("work", 0)
    rota.wait(job)
    assert "job-2 ended COMPLETED" in rota.run("retry", job, code=4).err
    assert rota.run("retry", "job-9", code=3).err == "rota: no such job: job-9; `rota list --all` lists all jobs\n"
    assert "not a job or run id" in rota.run("retry", "nothing", code=2).err


def test_wait_started_before_the_retry_sees_its_end(rota: Rota, children: ChildControl) -> None:
    """The waiting command learns of the retry at once, not at the end of its poll."""
    rota.start()
    rota.run("config", "set", "retry.base", "10ms")
    job = rota.post_job(children.gated("work"), retries=1)
    started = time.monotonic()
    waiting = rota.spawn("wait", job)
    children.read_lines()
    children.release("work", 1)
    assert children.read_lines(2) == ["work ends", "work begins"]
    children.release("work", 5)
    assert rota.finish(waiting).code == 5
    assert time.monotonic() - started < 25, "a poll lasts 30 s"


def test_named_retry_policies(rota: Rota) -> None:
    rota.run("config", "set", "retry.quota.exit_codes", "75")
    rota.run("config", "set", "retry.quota.base", "10ms")
    assert rota.json("config", "get", "retry.quota.exit_codes") == {"retry.quota.exit_codes": [75]}
    quota_job = rota.submit("--retry", "quota", "--", "sh", "-c", "exit 75")
    rota.wait(quota_job, code=75)
    assert len(rota.jobs()) == 4
    failing_job = rota.submit("--retry", "quota", "--", "sh", "-c", "exit 1")
    rota.wait(failing_job, code=1)
    assert rota.run("why", failing_job).out == f"{failing_job} is FAILED: exit code 1; only exit codes 75 are retried\n"
    refused = rota.run("submit", "--retry", "qouta", "--", "true", code=2)
    assert "unknown retry policy: 'qouta'; known policies: default, fleet, quota" in refused.err
    refused = rota.run("submit", "--retry", "3", "--", "true", code=2)
    assert refused.err.endswith("; to retry up to 3 times, set --retries to 3\n")
    body = {"command": ["true"], "retries": "many"}
    assert rota.api("POST", "/api/jobs", body).status == 422
