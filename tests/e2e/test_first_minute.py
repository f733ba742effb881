"""What a new user does in the first minute, with every exit code that §12 names."""

from __future__ import annotations

import json
import os
import subprocess

from e2e.rig import Rota, Stage

JOB_FIELDS = """
    id name type status command params priority position created_at queued_at started_at finished_at exit_code reason
    after needs produces locks pools pinned_head
    wait waited_on flow phase target unique group sequence template schedule work
    retry_of chain attempt permanently_failed dispatch_failures last_failure not_before cwd worktree pid session_path
    outcome_path run
""".split()  # noqa: SIM905 - as DESIGN §12 writes it
RUN_FIELDS = "id job worker status started_at finished_at exit_code error artifacts log_paths superseded".split()  # noqa: SIM905
STATUS_FIELDS = (
    "mode paused paused_by paused_at depth queued ready waiting running pools last_dispatch_at idle_because".split()  # noqa: SIM905
)


def test_the_first_command_starts_everything_and_prints_only_the_id(rota: Rota) -> None:
    assert not rota.home.exists()
    said = rota.ask("submit", "--", "sh", "-c", "echo out; echo err >&2")
    assert (said.out, said.err) == ("job-1\n", "")
    assert rota.wait("job-1").out == ""
    logs = rota.ask("logs", "job-1")
    assert (logs.out, logs.err) == ("out\n", "err\n")
    assert rota.ask("logs", "job-1", "--stream", "stderr").err == "err\n"


def test_every_look_at_a_job(rota: Rota, stage: Stage) -> None:
    first = rota.submit("--name", "first", *stage.actor("first"))
    second = rota.submit("--name", "second", *stage.walk_on("second"))
    rota.running(first)
    assert [line.split()[:3] for line in rota.ask("list").lines] == [
        ["ID", "STATUS", "NAME/COMMAND"],
        ["job-1", "RUNNING", "first"],
        ["job-2", "QUEUED", "second"],
    ]
    assert rota.ask("why", second).out == "job-2 is QUEUED: waiting on pool global (1/1), used by job-1\n"
    assert rota.ask("why", "1").out.startswith("job-1 is RUNNING: it runs as pid ")
    assert "1 running, 1 queued (1 ready)" in rota.ask("status").out
    stage.release("first")
    rota.wait(first, second)
    empty = rota.ask("list")
    hidden = "rota: 2 finished jobs hidden (2 COMPLETED); --all shows them\n"
    assert (empty.out, empty.err) == ("", f"rota: no active jobs\n{hidden}")
    assert len(rota.ask("list", "--all").lines) == 3
    assert [job["id"] for job in rota.json("list", "--status", "completed")["jobs"]] == ["job-2", "job-1"]
    shown = rota.ask("show", second).out
    assert "status             COMPLETED\n" in shown
    assert "  id                 run-2\n" in shown


def test_wait_leaves_with_the_jobs_own_code(rota: Rota) -> None:
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


def test_cancelled_is_143_blocked_is_1_and_of_several_the_first_that_is_not_0(rota: Rota, stage: Stage) -> None:
    good = rota.submit(*stage.walk_on("good"))
    bad = rota.submit(*stage.walk_on("bad", 5))
    blocked = rota.submit("--after", bad, *stage.walk_on("never"))
    held = rota.submit(*stage.actor("held"))
    assert rota.ask("cancel", held).out == f"{held} CANCELLED\n"
    rota.wait(blocked, code=1)
    rota.wait(held, code=143)
    rota.wait(good, bad, held, code=5)
    rota.wait(held, bad, code=143)
    rota.wait(good, good)


def test_waiting_can_be_given_up_and_the_job_goes_on(rota: Rota, stage: Stage) -> None:
    job = rota.submit(*stage.actor("slow"))
    said = rota.ask("wait", job, "--timeout", "100ms", code=124)
    assert "gave up after 100ms; still not ended: job-1" in said.err
    stage.release("slow")
    rota.wait(job)


def test_what_is_not_there_is_3_and_what_cannot_be_meant_is_2(untouched: Rota) -> None:
    for verb in ("show", "why", "logs", "wait", "cancel"):
        said = untouched.ask(verb, "job-99", code=3)
        assert (said.out, said.err) == ("", "rota: no such job: job-99; `rota list --all` shows what there is\n")
        assert "a job id looks like job-24" in untouched.ask(verb, "nonsense", code=2).err
    assert (
        untouched.ask("submit", "--after", "job-9", "--", "true", code=3).err == "rota: unknown --after job id: job-9\n"
    )
    itself = untouched.ask("submit", "--after", "job-1", "--", "true", code=2)
    assert itself.err == "rota: invalid --after self dependency: job-1\n"
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
        said = untouched.ask(*words, code=2)
        assert said.out == "", words
        assert said.err != "", words
    assert untouched.jobs() == [], "what is refused leaves no trace"


def test_a_second_scheduler_is_4(rota: Rota) -> None:
    """LESSONS Dispatch: two dispatcher threads after stop and start."""
    pid = rota.start()
    said = rota.ask("serve", code=4)
    assert said.err == f"rota: another scheduler (pid {pid}) has {rota.home}; use it, or `rota down` first\n"
    assert rota.scheduler == pid


def test_json_is_what_the_api_says(rota: Rota, stage: Stage) -> None:
    before = rota.json("submit", "--name", "one", "--param", "n:=1", *stage.actor("one"))
    assert set(before) == {"result", "job", "warning"}
    assert (before["result"], before["warning"]) == ("submitted", None)
    job = before["job"]["id"]
    running = rota.running(job)
    assert rota.json("show", job) == running
    stage.release("one")
    after = rota.ended(job)
    assert rota.json("show", job) == after
    assert rota.json("list", "--all")["jobs"] == [after]
    assert rota.json("wait", job)["jobs"] == [after]
    for form in (before["job"], running, after):
        assert list(form) == JOB_FIELDS
    for form in (running, after):
        assert list(form["run"]) == RUN_FIELDS
    assert after["params"] == {"n": 1}
    status = rota.json("status")
    assert status == rota.status()
    assert set(STATUS_FIELDS) <= set(status)
    assert set(status["depth"]) == {"total", "soft", "hard", "by_flow"}
    assert all(set(pool) == {"size", "used"} for pool in status["pools"].values())
    assert rota.json("why", job) == rota.api("GET", f"/api/jobs/{job}/why").json()
    assert rota.json("pool", "list") == rota.api("GET", "/api/pools").json()


def test_times_are_rfc_3339_in_utc_and_in_order(rota: Rota) -> None:
    job = rota.submit("--", "true")
    rota.wait(job)
    shown = rota.show(job)
    times = [shown[name] for name in ("created_at", "queued_at", "started_at", "finished_at")]
    assert all(time.endswith("Z") for time in times)
    assert times == sorted(times)


def test_what_the_files_say_is_what_the_api_says(rota: Rota) -> None:
    job = rota.submit("--", "sh", "-c", "exit 3")
    shown = rota.ended(job)
    rota.ask("down")
    assert json.loads((rota.home / "jobs/1/job.json").read_text()) == shown
    assert shown["outcome_path"] == str(rota.home / "jobs/1/outcome.json")
    assert json.loads((rota.home / "jobs/1/outcome.json").read_text()) == shown
    assert shown["run"]["log_paths"] == {
        "stdout": str(rota.home / "jobs/1/stdout.log"),
        "stderr": str(rota.home / "jobs/1/stderr.log"),
    }


def test_follow_prints_what_it_writes_and_returns_its_code(rota: Rota) -> None:
    said = rota.ask("submit", "--follow", "--", "sh", "-c", "echo out; echo err >&2; exit 9", code=9)
    assert said.out == "out\n"
    assert said.err == "rota: job-1\nerr\n"


def test_doctor_finds_nothing_wrong_and_starts_nothing(rota: Rota) -> None:
    assert "fail" not in rota.ask("doctor").out
    assert not rota.home.exists()
    pid = rota.start()
    assert f"answers, pid {pid}" in rota.ask("doctor").out


def test_refusals_over_http_are_problem_documents(untouched: Rota) -> None:
    for method, target, body, status, code in (
        ("GET", "/api/jobs/job-9", None, 404, "not-found"),
        ("GET", "/api/nothing", None, 404, "not-found"),
        ("POST", "/api/jobs", {"command": []}, 422, "invalid-input"),
        ("POST", "/api/jobs", {"command": ["true"], "colour": "red"}, 422, "invalid-input"),
        ("GET", "/api/jobs?status=happy", None, 422, "invalid-input"),
    ):
        answer = untouched.api(method, target, body)
        assert answer.status == status, answer
        problem = answer.json()
        assert (problem["status"], problem["code"]) == (status, code)
        assert problem["detail"]


def test_a_stream_that_is_closed_is_nobodys_error(rota: Rota) -> None:
    """As some who start programs leave it: without standard output, or without standard error."""
    rota.start()
    for closing, words in ((">&-", ["submit", "--", "true"]), ("2>&-", ["list", "--all"]), ("<&-", ["status"])):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closing}', "sh", *rota.argv(*words)],
            env=rota.env, cwd=rota.cwd, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done)
    assert [job["id"] for job in rota.jobs()] == ["job-1"]
