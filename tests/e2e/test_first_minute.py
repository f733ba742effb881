"""First commands of a new user, with every exit code."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.e2e.rig import ChildControl, Rota

pytestmark = pytest.mark.executable

JOB_FIELDS = """
    id name type status command params priority position created_at queued_at started_at finished_at exit_code reason
    after needs produces missing_products locks pools pinned_head
    wait waited_on flow phase target unique group sequence template schedule work
    retry_of chain attempt permanently_failed dispatch_failures last_failure not_before cwd worktree pid session_path
    outcome_path run unreadable policies
""".split()  # noqa: SIM905
RUN_FIELDS = "id job worker status started_at finished_at exit_code error artifacts log_paths superseded".split()  # noqa: SIM905
STATUS_FIELDS = (
    "mode paused paused_by paused_at depth queued ready waiting running pools last_dispatch_at idle_reason".split()  # noqa: SIM905
)


def test_first_submit_starts_the_scheduler_and_prints_only_the_id(rota: Rota) -> None:
    assert not rota.home.exists()
    output = rota.run("submit", "--", "sh", "-c", "echo out; echo err >&2")
    assert output.out == "job-1\n"
    assert output.err == f"rota: started the scheduler in {rota.home}; `rota down` stops it\n"
    assert rota.wait("job-1").out == ""
    logs = rota.run("logs", "job-1")
    assert (logs.out, logs.err) == ("out\n", "err\n")
    assert rota.run("logs", "job-1", "--stream", "stderr").err == "err\n"


def test_list_why_status_and_show_describe_a_job(rota: Rota, children: ChildControl) -> None:
    first = rota.submit("--name", "first", *children.gated("first"))
    second = rota.submit("--name", "second", *children.immediate("second"))
    rota.wait_for_start(first)
    assert [line.split()[:3] for line in rota.run("list").lines] == [
        ["ID", "STATUS", "NAME/COMMAND"],
        ["job-1", "RUNNING", "first"],
        ["job-2", "QUEUED", "second"],
    ]
    assert rota.run("why", second).out == "job-2 is QUEUED: waiting on pool global (1/1), used by job-1\n"
    assert rota.run("why", "1").out.startswith("job-1 is RUNNING: it runs as pid ")
    assert "1 running, 1 queued (1 ready)" in rota.run("status").out
    children.release("first")
    rota.wait(first, second)
    empty = rota.run("list")
    hidden = "rota: 2 ended jobs hidden (2 COMPLETED); --all lists them\n"
    assert (empty.out, empty.err) == ("", f"rota: no active jobs\n{hidden}")
    assert len(rota.run("list", "--all").lines) == 3
    assert [job["id"] for job in rota.json("list", "--status", "completed")["jobs"]] == ["job-2", "job-1"]
    shown = rota.run("show", second).out
    assert "status             COMPLETED\n" in shown
    assert "  id                 run-2\n" in shown


def test_wait_returns_the_exit_code_of_the_job(rota: Rota) -> None:
    os.mkfifo(rota.cwd / "gate")
    for options, script, code, status, reason in (
        ([], "exit 0", 0, "COMPLETED", None),
        ([], "exit 7", 7, "FAILED", "exit code 7"),
        ([], "kill -9 $$", 128 + 9, "FAILED", "killed by SIGKILL"),
        (["--timeout", "200ms"], "read x < gate", 124, "FAILED", "timed out after 200ms"),
        (["--skip-if", "echo nothing to do"], "exit 7", 0, "SKIPPED", "nothing to do"),
    ):
        job = rota.submit(*options, "--", "sh", "-c", script)
        rota.wait(job, code=code)
        shown = rota.show(job)
        assert (shown["status"], shown["exit_code"], shown["reason"]) == (status, code, reason)
        assert (shown["run"]["status"], shown["run"]["exit_code"]) == (status, code)


def test_wait_returns_the_first_nonzero_exit_code(rota: Rota, children: ChildControl) -> None:
    good = rota.submit(*children.immediate("good"))
    bad = rota.submit(*children.immediate("bad", 5))
    blocked = rota.submit("--after", bad, *children.immediate("never"))
    held = rota.submit(*children.gated("held"))
    assert rota.run("cancel", held).out == f"{held} CANCELLED\n"
    rota.wait(blocked, code=1)
    rota.wait(held, code=143)
    rota.wait(good, bad, held, code=5)
    rota.wait(held, bad, code=143)
    rota.wait(good, good)


def test_wait_timeout_does_not_end_the_job(rota: Rota, children: ChildControl) -> None:
    job = rota.submit(*children.gated("slow"))
    output = rota.run("wait", job, "--timeout", "100ms", code=124)
    assert "stopped waiting after 100ms; not ended: job-1" in output.err
    children.release("slow")
    rota.wait(job)


def test_missing_objects_exit_with_3_and_invalid_input_with_2(read_only_rota: Rota) -> None:
    for verb in ("show", "why", "logs", "wait", "cancel"):
        output = read_only_rota.run(verb, "job-99", code=3)
        assert (output.out, output.err) == ("", "rota: no such job: job-99; `rota list --all` lists all jobs\n")
    for verb in ("show", "why", "logs"):
        assert "a job id looks like job-24" in read_only_rota.run(verb, "nonsense", code=2).err
    for verb in ("wait", "cancel"):
        assert "no such group: nonsense" in read_only_rota.run(verb, "nonsense", code=3).err
    assert (
        read_only_rota.run("submit", "--after", "job-9", "--", "true", code=3).err
        == "rota: no such job: job-9 (--after); `rota list --all` lists all jobs\n"
    )
    self_dependency = read_only_rota.run("submit", "--after", "job-1", "--", "true", code=2)
    assert self_dependency.err == "rota: invalid --after self dependency: job-1\n"
    for words in (
        ["submit"],
        ["submit", "--"],
        ["submit", "--", ""],
        ["submit", "--timeout", "3x", "--", "true"],
        ["submit", "--delay", "soon", "--", "true"],
        ["submit", "--after", "job-1:perhaps", "--", "true"],
        ["submit", "--pool", "everything", "--", "true"],
        ["submit", "--nonsense", "--", "true"],
        ["list", "--status", "happy"],
        ["submitt"],
        [],
    ):
        output = read_only_rota.run(*words, code=2)
        assert output.out == "", words
        assert output.err != "", words
    assert read_only_rota.jobs() == [], "refused submits store nothing"


def test_second_scheduler_exits_with_4(rota: Rota) -> None:
    """LESSONS Dispatch: two dispatcher threads after stop and start."""
    pid = rota.start()
    output = rota.run("serve", code=4)
    assert output.err == f"rota: another scheduler (pid {pid}) uses {rota.home}; use it, or run `rota down` first\n"
    assert rota.scheduler_pid == pid


def test_json_output_equals_the_api_response(rota: Rota, children: ChildControl) -> None:
    before = rota.json("submit", "--name", "one", "--param", "n:=1", *children.gated("one"))
    assert set(before) == {"result", "job", "warning"}
    assert (before["result"], before["warning"]) == ("submitted", None)
    job = before["job"]["id"]
    running = rota.wait_for_start(job)
    assert rota.json("show", job) == running
    children.release("one")
    after = rota.wait_for_end(job)
    assert rota.json("show", job) == after
    assert rota.json("list", "--all")["jobs"] == [{**after, "policies": None}]
    assert rota.json("wait", job)["jobs"] == [after]
    for record in (before["job"], running, after):
        assert list(record) == JOB_FIELDS
    for record in (running, after):
        assert list(record["run"]) == RUN_FIELDS
    assert after["params"] == {"n": 1}
    status = rota.json("status")
    assert status == rota.status()
    assert set(STATUS_FIELDS) <= set(status)
    assert set(status["depth"]) == {"total", "soft", "hard", "by_flow"}
    assert all(set(pool) == {"size", "used"} for pool in status["pools"].values())
    assert rota.json("why", job) == rota.api("GET", f"/api/jobs/{job}/why").json()
    assert rota.json("pool", "list") == rota.api("GET", "/api/pools").json()


def test_times_are_ordered_and_rfc_3339_in_utc(rota: Rota) -> None:
    job = rota.submit("--", "true")
    rota.wait(job)
    shown = rota.show(job)
    times = [shown[name] for name in ("created_at", "queued_at", "started_at", "finished_at")]
    assert all(time.endswith("Z") for time in times)
    assert times == sorted(times)


def test_job_files_equal_the_api_response(rota: Rota) -> None:
    job = rota.submit("--", "sh", "-c", "exit 3")
    shown = {**rota.wait_for_end(job), "policies": None}
    rota.run("down")
    assert json.loads((rota.home / "jobs/1/job.json").read_text()) == shown
    assert shown["outcome_path"] == str(rota.home / "jobs/1/outcome.json")
    assert json.loads((rota.home / "jobs/1/outcome.json").read_text()) == shown
    assert shown["run"]["log_paths"] == {
        "stdout": str(rota.home / "jobs/1/stdout.log"),
        "stderr": str(rota.home / "jobs/1/stderr.log"),
    }


def test_submit_follow_prints_the_output_and_returns_the_exit_code(rota: Rota) -> None:
    rota.start()
    output = rota.run("submit", "--follow", "--", "sh", "-c", "echo out; echo err >&2; exit 9", code=9)
    assert output.out == "out\n"
    assert output.err == "rota: job-1\nerr\n"


def test_doctor_passes_and_starts_no_scheduler(rota: Rota) -> None:
    assert "fail" not in rota.run("doctor").out
    assert not rota.home.exists()
    pid = rota.start()
    assert f"running, pid {pid}" in rota.run("doctor").out


def test_refusals_over_http_are_problem_documents(read_only_rota: Rota) -> None:
    for method, target, body, status, code in (
        ("GET", "/api/jobs/job-9", None, 404, "not-found"),
        ("GET", "/api/nothing", None, 404, "not-found"),
        ("POST", "/api/jobs", {"command": []}, 422, "invalid-input"),
        ("POST", "/api/jobs", {"command": ["true"], "colour": "red"}, 422, "invalid-input"),
        ("GET", "/api/jobs?status=happy", None, 422, "invalid-input"),
    ):
        response = read_only_rota.api(method, target, body)
        assert response.status == status, response
        problem = response.json()
        assert (problem["status"], problem["code"]) == (status, code)
        assert problem["detail"]


def test_commands_run_with_a_closed_standard_stream(rota: Rota) -> None:
    """A parent process may start a command without standard input, output or error."""
    rota.start()
    for closing, words in ((">&-", ["submit", "--", "true"]), ("2>&-", ["list", "--all"]), ("<&-", ["status"])):
        result = subprocess.run(
            ["sh", "-c", f'exec "$@" {closing}', "sh", *rota.argv(*words)],
            env=rota.env,
            cwd=rota.cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode, "Traceback" in result.stderr) == (0, False), (words, result)
    assert [job["id"] for job in rota.jobs()] == ["job-1"]
