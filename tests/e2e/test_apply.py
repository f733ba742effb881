"""`rota apply` at the terminal: a workflow file, whole or not at all."""

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

from e2e.rig import PATIENCE, Rota, Stage

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


def test_a_file_becomes_a_group_that_runs_in_order(rota: Rota) -> None:
    (rota.cwd / "below").mkdir()
    said = rota.ask("apply", write(rota, FLOW), "--wait")
    assert said.lines == ["group-1", "job-1\tplan", "job-2\tbuild", "job-3\tmerge"]
    assert said.err.splitlines() == [
        "rota: job-1 plan COMPLETED",
        "rota: job-2 build COMPLETED",
        "rota: job-3 the merge COMPLETED",
        "rota: group-1 COMPLETED: 3 COMPLETED",
    ]
    logs = [rota.ask("logs", f"job-{n}").out for n in (1, 2, 3)]
    assert logs == ["hello\n", "1.10 true\n", f"{rota.cwd}/below\n"]
    shown = rota.show("job-2")
    assert (shown["group"], shown["sequence"], shown["after"]) == (
        "group-1", 2, [{"job": "job-1", "policy": "success"}],
    )  # fmt: skip


def test_a_rehearsal_shows_the_graph_and_leaves_no_trace(rota: Rota) -> None:
    """LESSONS: a dry run that drifted from the real submit, and one that cleaned up."""
    rota.ask("pause")
    file = write(rota, FLOW.replace("cwd: below, ", ""))
    # What runs beside: the scheduler's own files and clock rows are there before.
    rota.submit("true")
    before, listed = dump(rota.home), files(rota.home)
    said = rota.ask("apply", file, "--dry-run")
    drawn = rota.json("apply", file, "--dry-run")
    assert (dump(rota.home), files(rota.home)) == (before, listed)
    assert "[merge: the merge]" in said.lines[0]
    assert "nothing was stored" in said.err
    assert drawn["jobs"] == [{"id": f"job-{n}", "local": name} for n, name in ((2, "plan"), (3, "build"), (4, "merge"))]
    rota.ask("apply", file)
    real = rota.ask("graph").out.replace("[the merge]", "[merge: the merge]").splitlines()
    assert [line for line in real if "job-1 " not in line] == said.lines
    after = [edge for edge in rota.json("graph")["edges"] if edge["from"] != "job-1"]
    assert drawn["graph"]["edges"] == after


def test_a_failure_is_told_with_its_reason_and_where_to_look(rota: Rota) -> None:
    file = write(rota, "jobs:\n  a: {command: ['false']}\n  b: {command: ['true'], after: [a]}\n")
    said = rota.ask("apply", file, "--wait", code=1)
    assert said.err.splitlines()[-3:-1] == [
        "rota: group-1 PARTIAL: 1 FAILED, 1 CANCELLED",
        "rota: job-1 a FAILED: exit code 1; see `rota logs job-1`",
    ]
    assert "job-2 b CANCELLED: predecessor failed" in said.err
    told = rota.ask("apply", file, "--wait", "--json", code=1).json()
    assert (told["group"], told["status"], told["total"]) == ("group-2", "PARTIAL", 2)
    assert [job["id"] for job in told["failed"]] == ["job-3", "job-4"]


def test_one_that_succeeds_when_it_is_tried_again_has_succeeded(rota: Rota) -> None:
    script = "test -e done || { touch done; exit 1; }"
    file = write(rota, json.dumps({"jobs": {"a": {"command": ["sh", "-c", script], "retries": 1, "retry": "quick"}}}))
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text('[retry.quick]\nbase = "10ms"\n')
    said = rota.ask("apply", file, "--wait")
    assert said.err.splitlines() == [
        "rota: job-1 a FAILED: exit code 1; tried again as job-2",
        "rota: job-2 a COMPLETED",
        "rota: group-1 COMPLETED: 1 COMPLETED",
    ]


def test_who_stops_following_ends_nothing(rota: Rota, stage: Stage) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": stage.actor("slow")[1:]}}}))
    following = rota.begin("apply", file, "--wait")
    assert following.stdout is not None
    assert following.stdout.readline() == b"group-1\n"
    following.send_signal(signal.SIGINT)
    said = rota.end(following)
    assert said.code == 130
    assert "group-1 goes on; `rota wait group-1` follows it again, `rota group cancel group-1` ends it" in said.err
    assert rota.running("job-1")["pid"]
    stage.release("slow")
    assert rota.ended("job-1")["status"] == "COMPLETED"


def test_who_gives_up_says_so_and_ends_nothing(rota: Rota, stage: Stage) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": stage.actor("slow")[1:]}}}))
    said = rota.ask("apply", file, "--wait", "--timeout", "200ms", code=124)
    assert "gave up after 200ms; group-1 goes on" in said.err
    stage.release("slow")
    assert rota.ended("job-1")["status"] == "COMPLETED"


@pytest.mark.parametrize("colour", [True, False])
def test_on_a_terminal_one_block_is_redrawn(rota: Rota, stage: Stage, colour: bool) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": stage.actor("slow")[1:]}}}))
    ours, theirs = pty.openpty()
    env = {**rota.env, "TERM": "xterm", **({} if colour else {"NO_COLOR": "1"})}
    argv = rota.argv("apply", file, "--wait")
    process = subprocess.Popen(argv, cwd=rota.cwd, env=env, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    drawn = b""
    deadline = time.monotonic() + PATIENCE
    while b"job-1 slow" not in drawn and time.monotonic() < deadline:
        drawn += os.read(ours, 4096)
    stage.release("slow")
    while process.poll() is None or b"group-1 COMPLETED: 1" not in drawn:
        try:
            drawn += os.read(ours, 4096)
        except OSError:
            break
    os.close(ours)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.read() == b"group-1\njob-1\tslow\n"
    assert process.wait(PATIENCE) == 0
    assert b"group-1 RUNNING  0/1  1 RUNNING" in drawn
    assert b"\x1b[1A" in drawn or b"\x1b[2A" in drawn
    assert (b"\x1b[36m" in drawn) is colour


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("jobs:\n  a:\n    command: [x]\n    after: [b]\n  b: {command: [x], after: [a]}\n", 2,
         "flow.yaml:4:5: jobs.a.after: invalid --after cycle: a -> b -> a"),
        ("jobs:\n  a: {command: [x]}\n  b:\n    command: [x]\n    after:\n      - a\n      - job-77\n", 3,
         "flow.yaml:7:9: jobs.b.after[1]: unknown --after job id: job-77"),
        ("defaults:\n  retry: never\njobs:\n  a: {command: [x]}\n", 2,
         "flow.yaml:2:3: defaults.retry: unknown retry policy: 'never'"),
        ("group:\n  on_failure: panic\njobs:\n  a: {command: [x]}\n", 2, "panic"),
        ("jobs:\n  a: {command: [x], missing_producer: perhaps}\n", 2, "flow.yaml:2:21: jobs.a.missing_producer: "),
        ("jobs:\n  a:\n    command: [x]\n    priority: 99999999999999999999999\n", 2,
         "flow.yaml:4:5: jobs.a.priority: "),
        ("jobs:\n  a:\n    command: [x]\n    needs: [nothing]\n", 2, "flow.yaml:4:13: jobs.a.needs[0]: "),
        ("jobs:\n  a:\n    command: [x]\n    base: main\n", 2,
         "flow.yaml:4:5: jobs.a.base: `base` is what a worktree"),
    ],
)  # fmt: skip
def test_what_only_the_scheduler_can_tell_is_said_of_the_line_too(
    untouched: Rota, text: str, code: int, expected: str
) -> None:
    file = write(untouched, text)
    for words in ((), ("--dry-run",), ("--wait",)):
        said = untouched.ask("apply", file, *words, code=code)
        assert expected in said.err
        assert said.out == ""
    assert untouched.json("list", "--all")["jobs"] == []


def test_bad_files_of_every_kind_are_refused_in_words(rota: Rota) -> None:
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
        "deep.json": "deep.json:1:101: nested more than 100 deep",
        "empty.toml": "empty.toml: jobs: a workflow has jobs",
    }
    for file, words in expected.items():
        said = rota.ask("apply", file, code=2)
        assert words in said.err, said
        assert len(said.err) < 500
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
def test_standard_input_is_a_file_like_others(rota: Rota, text: str, words: list[str]) -> None:
    said = subprocess.run(
        rota.argv("apply", "-", *words), input=text, capture_output=True, text=True, cwd=rota.cwd, env=rota.env,
        timeout=PATIENCE * 2, check=True,
    )  # fmt: skip
    assert said.stdout.splitlines() == ["group-1", "job-1\ta"]
    assert rota.ended("job-1")["command"] == ["echo", "hi"]


def test_a_full_queue_takes_none_of_it(rota: Rota) -> None:
    rota.home.mkdir()
    (rota.home / "rota.toml").write_text("[queue]\nsoft_limit = 1\nhard_limit = 1\n[pools]\nglobal = 0\n")
    rota.submit("true")
    file = write(rota, "jobs: {a: {command: ['true']}, b: {command: ['true']}}")
    assert "deferred: " in rota.ask("apply", file, code=75).err
    assert rota.ask("apply", file, "--json", code=75).json()["result"] == "deferred"
    assert "would be deferred: " in rota.ask("apply", file, "--dry-run", code=75).err
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_a_unique_key_that_is_taken_holds_all_of_it(rota: Rota) -> None:
    rota.ask("pause")
    rota.submit("--unique", "card", "true")
    file = write(rota, "jobs: {a: {command: ['true']}, b: {command: ['true'], unique: card}}")
    for words in ((), ("--dry-run",), ("--json",)):
        assert "a unique key is in use: job-1 has card" in rota.ask("apply", file, *words, code=4).err
    assert [job["id"] for job in rota.json("list", "--all")["jobs"]] == ["job-1"]


def test_surroundings_are_said_once_for_a_batch(rota: Rota) -> None:
    """What a job brings itself goes on top."""
    rota.start()
    script = ["/bin/sh", "-c", "echo $A $B $HOME; pwd"]
    body: dict[str, Any] = {
        "cwd": str(rota.cwd),
        "env": {"A": "1", "B": "2"},
        "inherit_env": False,
        "jobs": [{"command": script}, {"command": script, "env": {"B": "3"}, "cwd": "/"}],
    }
    answer = rota.api("POST", "/api/jobs/batch", body).json()
    rota.wait(*answer["jobs"])
    assert [rota.ask("logs", job).out for job in answer["jobs"]] == [f"1 2\n{rota.cwd}\n", "1 3\n/\n"]
    for wrong, path in (
        ({"cwd": "here"}, "$.cwd"),
        ({"env": {"": "x"}}, "$.env"),
        ({"jobs": [{"x": 1}]}, "$.jobs[0].x"),
    ):
        refusal = rota.api("POST", "/api/jobs/batch", {**body, **wrong})
        assert (refusal.status, refusal.json()["path"]) == (422, path)
    alone = rota.api("POST", "/api/jobs", {"command": ["true"], "timeout": "soon"})
    assert (alone.status, alone.json()["path"]) == (422, "$.timeout")


def test_a_key_stands_for_the_whole_request(rota: Rota) -> None:
    rota.start()
    body: dict[str, Any] = {"group": {}, "jobs": [{"command": ["true"]}], "env": {"A": "1"}}
    key = {"Idempotency-Key": "k"}
    first = rota.api("POST", "/api/jobs/batch", body, **key).json()
    again = rota.api("POST", "/api/jobs/batch", body, **key)
    assert (again.status, again.json()) == (201, first)
    assert rota.api("POST", "/api/jobs/batch", {**body, "env": {"A": "2"}}, **key).status == 422
    rehearsed = rota.api("POST", "/api/jobs/batch?dry_run=1", body, **key).json()
    assert (rehearsed["result"], rehearsed["jobs"][0]["id"]) == ("rehearsed", "job-2")


@pytest.mark.parametrize("asked", ["dry_run=maybe", "dry_run=", "dryrun=1"])
def test_a_rehearsal_that_is_not_understood_is_not_the_real_thing(untouched: Rota, asked: str) -> None:
    body = {"jobs": [{"command": ["true"], "local": "a"}]}
    assert untouched.api("POST", f"/api/jobs/batch?{asked}", body).status == 422
    drawn = untouched.api("POST", "/api/jobs/batch?dry_run=True&format=dag", body)
    assert (drawn.status, b"job-1 QUEUED [a]" in drawn.body) == (200, True), drawn.body
    assert untouched.json("list", "--all")["jobs"] == []


def test_help_has_an_example(rota: Rota) -> None:
    said = rota.ask("apply", "--help").out
    assert "\n    merge:  {command: [./merge.sh], after: [build, test], timeout: 10m}\n" in said


def test_following_through_a_crash_of_the_scheduler(rota: Rota, stage: Stage) -> None:
    file = write(rota, json.dumps({"jobs": {"slow": {"command": stage.actor("slow")[1:]}}}))
    following = rota.begin("apply", file, "--wait")
    stage.hear()
    rota.crash()
    stage.release("slow")
    assert rota.end(following).code == 0
