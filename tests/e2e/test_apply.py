"""`rota apply`: a workflow file is submitted as a whole or not at all."""

from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import TIMEOUT, ChildControl, Rota

FLOW = """\
group: {name: demo, on_failure: stop}
defaults: {timeout: 10m}
jobs:
  plan:  {command: [sh, -c, "echo $GREETING"], env: {GREETING: hello}}
  build: {command: [echo, 1.10, true], after: [plan], locks: ["repo:shared"]}
  merge: {command: [pwd], after: [build, "plan:finished"], cwd: below, name: the merge}
"""


def write(rota: Rota, text: str, name: str = "flow.yaml") -> str:
    (rota.cwd / name).write_text(text)
    return name


def dump(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "rota.db")) as connection:
        return list(connection.iterdump())


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if not path.name.startswith("rota.db-")}


def test_apply_submits_a_group_that_runs_in_order(rota: Rota) -> None:
    (rota.cwd / "below").mkdir()
    rota.start()
    output = rota.run("apply", write(rota, FLOW), "--wait")
    assert output.lines == ["group-1", "job-1\tplan", "job-2\tbuild", "job-3\tmerge"]
    assert output.err.splitlines() == [
        "rota: job-1 plan COMPLETED",
        "rota: job-2 build COMPLETED",
        "rota: job-3 the merge COMPLETED",
        "rota: group-1 COMPLETED: 3 COMPLETED",
    ]
    logs = [rota.run("logs", f"job-{n}").out for n in (1, 2, 3)]
    assert logs == ["hello\n", "1.10 true\n", f"{rota.cwd}/below\n"]
    shown = rota.show("job-2")
    assert (shown["group"], shown["sequence"], shown["after"]) == (
        "group-1",
        2,
        [{"job": "job-1", "policy": "success"}],
    )


def test_dry_run_prints_the_graph_and_stores_nothing(rota: Rota) -> None:
    """LESSONS: a dry run that drifted from the real submit, and one that cleaned up."""
    rota.run("pause")
    file = write(rota, FLOW.replace("cwd: below, ", ""))
    # The scheduler has written its own files and clock rows before the comparison.
    rota.submit("true")
    before, files_before = dump(rota.home), files(rota.home)
    output = rota.run("apply", file, "--dry-run")
    drawn = rota.json("apply", file, "--dry-run")
    assert (dump(rota.home), files(rota.home)) == (before, files_before)
    assert "[merge: the merge]" in output.lines[0]
    assert "nothing was stored" in output.err
    assert [(job["id"], job["local"]) for job in drawn["jobs"]] == [
        ("job-2", "plan"),
        ("job-3", "build"),
        ("job-4", "merge"),
    ]
    rota.run("apply", file)
    graph = rota.run("graph").out.replace("[the merge]", "[merge: the merge]").splitlines()
    expected = [line for line in graph if "job-1 " not in line]
    assert output.lines[: len(expected)] == expected
    assert output.lines[len(expected)].split()[0] == "priority", "then the policies"
    after = [edge for edge in rota.json("graph")["edges"] if edge["from"] != "job-1"]
    assert drawn["graph"]["edges"] == after


def test_dry_run_prints_every_policy_with_its_source_and_jobs(rota: Rota) -> None:
    rota.start()
    flow_job = {"command": ["true"], "flow": "review"}
    jobs = {"a": flow_job, "b": {**flow_job, "retries": 1, "timeout": "5m"}, "c": {"command": ["true"]}}
    file = write(rota, json.dumps({"jobs": jobs}))
    lines = [" ".join(line.split()) for line in rota.run("apply", file, "--dry-run").lines]
    assert "retry 5 retries [flow default; built-in (retry.fleet.max_retries)] a" in lines
    assert "retry_delay 30s times 2 each, at most 5m, jitter 10% [flow default; built-in (retry.fleet)] a, b" in lines
    assert "retry 1 retry [option] b" in lines
    assert "retry no retries [built-in] c" in lines
    assert "timeout 5m [option] b" in lines
    assert "priority 0 [built-in] all jobs" in lines
    shown = {
        job["local"]: {policy["name"]: (policy["value"], policy["source"]) for policy in job["policies"]}
        for job in rota.json("apply", file, "--dry-run")["jobs"]
    }
    assert shown["a"]["retry"] == ("5 retries", "flow default; built-in (retry.fleet.max_retries)")
    assert (shown["b"]["retry"], shown["b"]["timeout"]) == (("1 retry", "option"), ("5m", "option"))
    assert shown["c"]["retry"] == ("no retries", "built-in")


def test_failure_is_reported_with_reason_and_log_command(rota: Rota) -> None:
    file = write(rota, "jobs:\n  a: {command: ['false']}\n  b: {command: ['true'], after: [a]}\n")
    output = rota.run("apply", file, "--wait", code=1)
    assert output.err.splitlines()[-3:-1] == [
        "rota: group-1 PARTIAL: 1 FAILED, 1 CANCELLED",
        "rota: job-1 a FAILED: exit code 1; see `rota logs job-1`",
    ]
    assert "job-2 b CANCELLED: predecessor failed" in output.err
    result = rota.run("apply", file, "--wait", "--json", code=1).json()
    assert (result["group"], result["status"], result["total"]) == ("group-2", "PARTIAL", 2)
    assert [job["id"] for job in result["failed"]] == ["job-3", "job-4"]


def test_job_that_succeeds_on_retry_counts_as_completed(rota: Rota) -> None:
    script = "test -e done || { touch done; exit 1; }"
    file = write(rota, json.dumps({"jobs": {"a": {"command": ["sh", "-c", script], "retries": 1, "retry": "quick"}}}))
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text('[retry.quick]\nbase = "10ms"\n')
    rota.start()
    output = rota.run("apply", file, "--wait")
    assert output.err.splitlines() == [
        "rota: job-1 a FAILED: exit code 1; retried as job-2",
        "rota: job-2 a COMPLETED",
        "rota: group-1 COMPLETED: 1 COMPLETED",
    ]


def test_interrupted_wait_leaves_the_group_running(rota: Rota, children: ChildControl) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": children.gated_argv("slow")}}}))
    following = rota.spawn("apply", file, "--wait")
    assert following.stdout is not None
    assert following.stdout.readline() == b"group-1\n"
    following.send_signal(signal.SIGINT)
    output = rota.finish(following)
    assert output.code == 130
    assert (
        "group-1 continues; `rota wait group-1` follows it again, `rota group cancel group-1` cancels it" in output.err
    )
    assert rota.wait_for_start("job-1")["pid"]
    children.release("slow")
    assert rota.wait_for_end("job-1")["status"] == "COMPLETED"


def test_wait_timeout_leaves_the_group_running(rota: Rota, children: ChildControl) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": children.gated_argv("slow")}}}))
    output = rota.run("apply", file, "--wait", "--timeout", "200ms", code=124)
    assert "stopped waiting after 200ms; group-1 continues" in output.err
    children.release("slow")
    assert rota.wait_for_end("job-1")["status"] == "COMPLETED"


@pytest.mark.parametrize("has_color", [True, False])
def test_progress_block_is_redrawn_on_a_terminal(rota: Rota, children: ChildControl, has_color: bool) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": children.gated_argv("slow")}}}))
    terminal, terminal_end = pty.openpty()
    env = {**rota.env, "TERM": "xterm", **({} if has_color else {"NO_COLOR": "1"})}
    argv = rota.argv("apply", file, "--wait")
    process = subprocess.Popen(argv, cwd=rota.cwd, env=env, stdout=subprocess.PIPE, stderr=terminal_end)
    os.close(terminal_end)
    drawn = b""
    deadline = time.monotonic() + TIMEOUT
    while b"job-1 slow" not in drawn and time.monotonic() < deadline:
        drawn += os.read(terminal, 4096)
    children.release("slow")
    while process.poll() is None or b"group-1 COMPLETED: 1" not in drawn:
        try:
            drawn += os.read(terminal, 4096)
        except OSError:
            break
    os.close(terminal)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read() == b"group-1\njob-1\tslow\n"
    assert process.wait(TIMEOUT) == 0
    assert b"group-1 RUNNING  0/1  1 RUNNING" in drawn
    assert b"\x1b[1A" in drawn or b"\x1b[2A" in drawn
    assert (b"\x1b[36m" in drawn) is has_color


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (
            "jobs:\n  a:\n    command: [x]\n    after: [b]\n  b: {command: [x], after: [a]}\n",
            2,
            "flow.yaml:4:5: jobs.a.after: invalid --after cycle: a -> b -> a",
        ),
        (
            "jobs:\n  a: {command: [x]}\n  b:\n    command: [x]\n    after:\n      - a\n      - job-77\n",
            3,
            "flow.yaml:7:9: jobs.b.after[1]: no such job: job-77 (--after)",
        ),
        (
            "defaults:\n  retry: never\njobs:\n  a: {command: [x]}\n",
            2,
            "flow.yaml:2:3: defaults.retry: unknown retry policy: 'never'",
        ),
        ("group:\n  on_failure: panic\njobs:\n  a: {command: [x]}\n", 2, "panic"),
        ("jobs:\n  a: {command: [x], missing_producer: perhaps}\n", 2, "flow.yaml:2:21: jobs.a.missing_producer: "),
        (
            "jobs:\n  a:\n    command: [x]\n    priority: 99999999999999999999999\n",
            2,
            "flow.yaml:4:5: jobs.a.priority: ",
        ),
        ("jobs:\n  a:\n    command: [x]\n    needs: [nothing]\n", 2, "flow.yaml:4:13: jobs.a.needs[0]: "),
        ("jobs:\n  a:\n    command: [x]\n    base: main\n", 2, "flow.yaml:4:5: jobs.a.base: `base` needs a worktree"),
    ],
)
def test_scheduler_errors_name_the_line_of_the_file(read_only_rota: Rota, text: str, code: int, expected: str) -> None:
    file = write(read_only_rota, text)
    for words in ((), ("--dry-run",), ("--wait",)):
        output = read_only_rota.run("apply", file, *words, code=code)
        assert expected in output.err
        assert output.out == ""
    assert read_only_rota.json("list", "--all")["jobs"] == []


def test_unusable_files_are_refused_with_a_reason(rota: Rota) -> None:
    (rota.cwd / "folder.yaml").mkdir()
    (rota.cwd / "binary.yaml").write_bytes(bytes(range(256)))
    (rota.cwd / "large.yaml").write_bytes(b"# \n" * ((50 << 20) // 3))
    (rota.cwd / "deep.json").write_text("[" * 100_000)
    (rota.cwd / "empty.toml").write_text("")
    expected = {
        "missing.yaml": "missing.yaml cannot be read: No such file or directory",
        "folder.yaml": "folder.yaml cannot be read: Is a directory",
        "binary.yaml": "binary.yaml:2: not UTF-8",
        "large.yaml": "large.yaml: larger than 32 MiB",
        "deep.json": "deep.json:1:101: nested more than 100 levels deep",
        "empty.toml": "empty.toml: jobs: a workflow needs jobs",
    }
    for file, words in expected.items():
        output = rota.run("apply", file, code=2)
        assert words in output.err, output
        assert len(output.err) < 500
    assert not rota.home.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: {a: {command: [echo, hi]}}", []),
        ('{"jobs": {"a": {"command": ["echo", "hi"]}}}', []),
        ('[jobs.a]\ncommand = ["echo", "hi"]\n', []),
        ('[jobs.a]\ncommand = ["echo", "hi"]\n', ["--format", "toml"]),
    ],
)
def test_workflow_is_read_from_standard_input(rota: Rota, text: str, words: list[str]) -> None:
    output = subprocess.run(
        rota.argv("apply", "-", *words),
        input=text,
        capture_output=True,
        text=True,
        cwd=rota.cwd,
        env=rota.env,
        timeout=TIMEOUT * 2,
        check=True,
    )
    assert output.stdout.splitlines() == ["group-1", "job-1\ta"]
    assert rota.wait_for_end("job-1")["command"] == ["echo", "hi"]


def test_full_queue_defers_the_whole_workflow(rota: Rota) -> None:
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text("[queue]\nsoft_limit = 1\nhard_limit = 1\n[pools]\nglobal = 0\n")
    rota.submit("true")
    file = write(rota, "jobs: {a: {command: ['true']}, b: {command: ['true']}}")
    assert "deferred: " in rota.run("apply", file, code=75).err
    assert rota.run("apply", file, "--json", code=75).json()["result"] == "deferred"
    assert "would be deferred: " in rota.run("apply", file, "--dry-run", code=75).err
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_unique_key_in_use_refuses_the_whole_workflow(rota: Rota) -> None:
    rota.run("pause")
    rota.submit("--unique", "card", "true")
    file = write(rota, "jobs: {a: {command: ['true']}, b: {command: ['true'], unique: card}}")
    for words in ((), ("--dry-run",), ("--json",)):
        assert "a unique key is in use: job-1 has card" in rota.run("apply", file, *words, code=4).err
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_batch_has_a_default_environment(rota: Rota) -> None:
    """The settings of a job override the default environment."""
    rota.start()
    script = ["/bin/sh", "-c", "echo $A $B $HOME; pwd"]
    body: dict[str, Any] = {
        "cwd": str(rota.cwd),
        "env": {"A": "1", "B": "2"},
        "inherit_env": False,
        "jobs": [{"command": script}, {"command": script, "env": {"B": "3"}, "cwd": "/"}],
    }
    response = rota.api("POST", "/api/jobs/batch", body).json()
    rota.wait(*response["jobs"])
    assert [rota.run("logs", job).out for job in response["jobs"]] == [f"1 2\n{rota.cwd}\n", "1 3\n/\n"]
    for change, path in (
        ({"cwd": "here"}, "$.cwd"),
        ({"env": {"": "x"}}, "$.env"),
        ({"jobs": [{"x": 1}]}, "$.jobs[0].x"),
    ):
        refusal = rota.api("POST", "/api/jobs/batch", {**body, **change})
        assert (refusal.status, refusal.json()["path"]) == (422, path)
    single = rota.api("POST", "/api/jobs", {"command": ["true"], "timeout": "soon"})
    assert (single.status, single.json()["path"]) == (422, "$.timeout")


def test_idempotency_key_covers_the_whole_batch(rota: Rota) -> None:
    rota.start()
    body: dict[str, Any] = {"group": {}, "jobs": [{"command": ["true"]}], "env": {"A": "1"}}
    key = {"Idempotency-Key": "k"}
    first = rota.api("POST", "/api/jobs/batch", body, **key).json()
    repeated = rota.api("POST", "/api/jobs/batch", body, **key)
    assert (repeated.status, repeated.json()) == (201, first)
    assert rota.api("POST", "/api/jobs/batch", {**body, "env": {"A": "2"}}, **key).status == 422
    dry_run = rota.api("POST", "/api/jobs/batch?dry_run=1", body, **key).json()
    assert (dry_run["result"], dry_run["jobs"][0]["id"]) == ("dry_run", "job-2")


@pytest.mark.parametrize("query", ["dry_run=maybe", "dry_run=", "dryrun=1"])
def test_malformed_dry_run_parameter_submits_nothing(read_only_rota: Rota, query: str) -> None:
    body = {"jobs": [{"command": ["true"], "local": "a"}]}
    assert read_only_rota.api("POST", f"/api/jobs/batch?{query}", body).status == 422
    drawn = read_only_rota.api("POST", "/api/jobs/batch?dry_run=True&format=dag", body)
    assert (drawn.status, b"job-1 QUEUED [a]" in drawn.body) == (200, True), drawn.body
    assert read_only_rota.json("list", "--all")["jobs"] == []


def test_help_contains_an_example(rota: Rota) -> None:
    output = rota.run("apply", "--help").out
    assert "\n    merge:  {command: [./merge.sh], after: [build, test], timeout: 10m}\n" in output


def test_wait_survives_a_scheduler_crash(rota: Rota, children: ChildControl) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": children.gated_argv("slow")}}}))
    following = rota.spawn("apply", file, "--wait")
    children.read_lines()
    rota.crash()
    children.release("slow")
    assert rota.finish(following).code == 0
