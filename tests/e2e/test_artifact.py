"""Artifacts and pinned heads with a real repository, real jobs and manual changes."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def wait_detail(rota: Rota, job: str) -> str | None:
    wait = rota.show(job)["wait"]
    return None if wait is None else wait["detail"]


def test_plan_is_drafted_reviewed_and_merged(rota: Rota, repository: Path) -> None:
    """Each job changes the repository and starts when git contains the artifacts it needs."""
    rota.run("pool", "set", "global", "-1")
    write = "git checkout -q -b draft/auth; mkdir plans; echo do it > plans/auth.md; git add plans; git commit -qm plan"
    draft = rota.submit(
        "--produces",
        "plan_branch:auth",
        "--produces",
        "plan_doc:auth",
        "--lock",
        "tree",
        "--",
        "sh",
        "-c",
        write,
        cwd=repository,
    )
    review = rota.submit("--needs", "plan_doc:auth", "--", "git", "show", "draft/auth:plans/auth.md", cwd=repository)
    merged = rota.submit(
        "--needs",
        "plan_branch:auth (draft/auth)",
        "--after",
        review,
        "--lock",
        "tree",
        "--produces",
        "target_branch:main",
        "--",
        "sh",
        "-c",
        "git checkout -q main && git merge -q draft/auth",
        cwd=repository,
    )
    rota.wait(draft, review, merged)
    assert rota.run("logs", review).out == "do it\n"
    assert git(repository, "log", "--format=%s", "main").split() == ["plan", "begin"]
    shown = rota.show(review)
    assert shown["needs"] == ["plan_doc:auth (draft/auth)"]
    assert rota.show(draft)["produces"] == ["plan_branch:auth (draft/auth)", "plan_doc:auth (draft/auth)"]


def test_diamond_of_file_artifacts(rota: Rota, repository: Path) -> None:
    rota.run("pool", "set", "global", "-1")
    top = rota.submit("--produces", "file:top.txt", "--", "sh", "-c", "echo top > top.txt", cwd=repository)
    sides = [
        rota.submit(
            "--needs",
            "file:top.txt",
            "--produces",
            f"file:{side}.txt",
            "--",
            "sh",
            "-c",
            f"cat top.txt > {side}.txt",
            cwd=repository,
        )
        for side in ("left", "right")
    ]
    bottom = rota.submit(
        "--needs", "file:left.txt", "--needs", "file:right.txt", "--", "cat", "left.txt", "right.txt", cwd=repository
    )
    rota.wait(top, *sides, bottom)
    assert rota.run("logs", bottom).out == "top\ntop\n"
    assert rota.show(bottom)["needs"] == [f"file:{repository}/left.txt", f"file:{repository}/right.txt"]


def test_manual_changes_are_noticed(rota: Rota, repository: Path) -> None:
    """A file and two branches appear without a notification of the scheduler."""
    rota.run("pool", "set", "global", "-1")
    by_file = rota.submit("--needs", "file:go", "--", "true", cwd=repository)
    by_branch = rota.submit("--needs", "target_branch:next", "--missing-producer", "wait", "--", "true", cwd=repository)
    pinned = rota.submit("--pin", f"later@{git(repository, 'rev-parse', 'HEAD')}", "--", "true", cwd=repository)
    assert wait_detail(rota, by_file) == f"awaiting producer for file:{repository}/go"
    assert wait_detail(rota, by_branch) == "awaiting producer for target_branch:next"
    assert wait_detail(rota, pinned) == "pinned head mismatch on later"
    assert rota.run("why", pinned).out == f"{pinned} is WAITING_ON_DEPS: pinned head mismatch on later\n"
    (repository / "go").touch()
    rota.wait(by_file)
    git(repository, "branch", "next")
    git(repository, "pack-refs", "--all")
    rota.wait(by_branch)
    git(repository, "branch", "later")
    rota.wait(pinned)
    assert rota.show(pinned)["waited_on"] == ["pinned_head"]


def test_submit_warns_when_the_job_ends_immediately(rota: Rota, repository: Path) -> None:
    response = rota.run("submit", "--needs", "plan_doc:x", "--", "true", cwd=repository)
    (repository / "flow.yaml").write_text('jobs: {plan: {command: ["true"], needs: ["plan_doc:x"]}}')
    applied = rota.run("apply", "flow.yaml", cwd=repository)
    template = "ended at once, without a run: {} BLOCKED_BY_DEPENDENCY: missing plan_doc:x (draft/x)"
    assert (response.code, response.out) == (0, "job-1\n")
    assert template.format("job-1") in response.err
    assert template.format("job-2") in applied.err
    rota.run("schedule", "add", "nightly", "--cron", "@daily", "--needs", "plan_doc:x", "--", "true", cwd=repository)
    assert template.format("job-3") in rota.run("schedule", "trigger", "nightly").err


def test_retry_warns_when_the_new_job_ends_immediately(rota: Rota, repository: Path) -> None:
    job = rota.submit("--needs", "plan_doc:x", "--", "true", cwd=repository)
    retried = rota.run("retry", job)
    text = (
        "ended at once, without a run: {0} BLOCKED_BY_DEPENDENCY: missing plan_doc:x (draft/x); resolve that, then"
        " `rota rewind {0}` queues it again"
    )
    assert (retried.code, retried.out) == (0, "job-2\n")
    assert text.format("job-2") in retried.err
    response = rota.json("retry", job)
    assert (response["job"]["id"], response["job"]["status"]) == ("job-3", "BLOCKED_BY_DEPENDENCY")
    assert response["warning"] == text.format("job-3")
    git(repository, "checkout", "-q", "-b", "draft/x")
    (repository / "plans").mkdir()
    (repository / "plans" / "x.md").write_text("do it")
    git(repository, "add", "plans")
    git(repository, "commit", "-qm", "plan")
    assert rota.json("retry", job)["warning"] is None, "the retry probes the artifact as it is now"
    rota.wait("job-4")


def test_manual_tick_probes_files_and_reports_started_jobs(rota: Rota, repository: Path) -> None:
    job = rota.submit("--needs", "file:go", "--", "true", cwd=repository)
    assert rota.json("tick") == {
        "dispatched": [],
        "would_dispatch": [],
        "skipped": 0,
        "reason": "none",
        "blocker": None,
    }
    (repository / "go").touch()
    assert job in (*rota.json("tick")["dispatched"], rota.wait_for_end(job)["id"])
    rota.wait(job)


def test_deleted_branch_does_not_stop_other_jobs(rota: Rota, children: ChildControl, repository: Path) -> None:
    """LESSONS Dispatch: one deleted branch stopped the tick for all."""
    git(repository, "branch", "topic")
    first = rota.submit(*children.gated("first"), cwd=repository)
    assert children.read_lines() == ["first begins"]
    pinned = rota.submit("--pin", "topic", "--", "true", cwd=repository)
    needing = rota.submit("--needs", "plan_branch:x (topic)", "--", "true", cwd=repository)
    behind = rota.submit("--", "true", cwd=repository)
    git(repository, "branch", "-D", "topic")
    children.release("first")
    rota.wait(first, behind)
    assert wait_detail(rota, pinned) == "pinned head mismatch on topic"
    assert rota.wait_for_end(needing)["reason"] == "missing plan_branch:x (topic)"
    git(repository, "branch", "topic")
    rota.wait(pinned)


def test_pinned_head_is_checked_after_the_predecessor_moved_it(rota: Rota, repository: Path) -> None:
    """The end of the predecessor and the evaluation of its successor are one turn, which reads the head again."""
    head = git(repository, "rev-parse", "main")
    mover = rota.submit("--", "git", "commit", "-q", "--allow-empty", "-m", "moved", cwd=repository)
    pinned = rota.submit("--pin", f"main@{head[:10]}", "--after", mover, "--", "true", cwd=repository)
    rota.wait(mover)
    assert rota.show(pinned)["pinned_head"] == {"branch": "main", "oid": head}
    shown = eventually(lambda: shown if (shown := rota.show(pinned))["wait"] else None)
    assert shown["wait"]["detail"] == "pinned head mismatch on main"
    git(repository, "reset", "-q", "--hard", head)
    rota.wait(pinned)


def test_linked_worktree_shares_artifacts_with_its_repository(rota: Rota, repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "--detach", str(linked))
    job = rota.submit("--needs", "custom:sign:off", "--", "true", cwd=linked)
    assert rota.run("artifact", "put", "custom:sign:off", cwd=repository).out == "custom:sign:off\n"
    rota.wait(job)


PUT = 'python="$0"; "$python" -m rota artifact put custom:report:x --payload "found 3"; '


def test_put_artifact_is_available_after_the_job_ended(rota: Rota, children: ChildControl, repository: Path) -> None:
    rota.run("pool", "set", "global", "-1")
    producer = rota.submit(
        "--produces",
        "custom:report:x",
        "--",
        "sh",
        "-c",
        PUT + gated_shell_line(children, "maker"),
        sys.executable,
        cwd=repository,
    )
    reader = rota.submit(
        "--needs",
        "custom:report:x",
        "--",
        sys.executable,
        "-m",
        "rota",
        "artifact",
        "show",
        "custom:report:x",
        cwd=repository,
    )
    assert children.read_lines() == ["maker begins"]
    assert wait_detail(rota, reader) == "waiting on custom:report:x", "the producer has not ended"
    assert rota.show(producer)["run"]["artifacts"] == ["custom:report:x"]
    children.release("maker")
    rota.wait(producer, reader)
    assert rota.run("logs", reader).out == "found 3\n"
    assert [artifact["artifact"] for artifact in rota.json("artifact", "list")["artifacts"]] == ["custom:report:x"]
    assert rota.run("artifact", "remove", "custom:report:x", cwd=repository).err == "rota: removed custom:report:x\n"
    assert rota.run("artifact", "show", "custom:report:x", cwd=repository, code=3).err.startswith(
        "rota: custom:report:x was not put"
    )


def gated_shell_line(children: ChildControl, name: str) -> str:
    """Return a gated command as a shell line."""
    words = children.gated(name)
    return shlex.join(words[1:] if words[0] == "--" else words)


def test_artifact_of_a_failed_job_is_withdrawn(rota: Rota, repository: Path) -> None:
    producer = rota.submit("--", "sh", "-c", PUT + "exit 3", sys.executable, cwd=repository)
    rota.wait(producer, code=3)
    assert rota.json("artifact", "list") == {"artifacts": []}
    rejected = rota.run("artifact", "put", "custom:report:x", env={"ROTA_JOB": producer}, cwd=repository, code=4)
    assert rejected.err == f"rota: {producer} is not running (FAILED), so it cannot put artifacts\n"


def test_file_created_without_a_scheduler_is_noticed(rota: Rota, repository: Path) -> None:
    job = rota.submit("--needs", "file:go", "--", "true", cwd=repository)
    rota.crash()
    (repository / "go").touch()
    rota.run("up")
    rota.wait(job)


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["--needs", "plan:x"], 2, "unknown artifact type in 'plan:x'; known types: "),
        (["--produces", "custom:x"], 2, "malformed artifact: 'custom:x'; expected custom:<type>:<key>"),
        (["--needs", "target_branch:a..b"], 2, "malformed artifact: 'target_branch:a..b'"),
        (["--pin", "nowhere"], 2, "no branch nowhere in "),
        (["--pin", "main@0123abcd"], 2, "no commit 0123abcd in "),
        (["--needs", "command_patch:job-77"], 3, "unknown job in --needs command_patch:job-77"),
        (["--after", "77"], 3, "no such job: job-77 (--after); `rota list --all` lists all jobs"),
    ],
)
def test_invalid_artifact_or_pin_is_refused_and_stores_nothing(
    read_only_rota: Rota, repository: Path, words: list[str], code: int, output: str
) -> None:
    refused = read_only_rota.run("submit", *words, "--", "true", code=code, cwd=repository)
    assert refused.err.startswith(f"rota: {output}")
    assert read_only_rota.jobs() == []


def test_artifact_outside_a_repository_is_refused(read_only_rota: Rota) -> None:
    refused = read_only_rota.run("submit", "--needs", "plan_doc:x", "--", "true", code=2)
    assert refused.err == (
        f"rota: {read_only_rota.cwd} is not in a git repository, and plan_doc:x (draft/x) belongs to one; "
        "submit it with a --cwd inside of one\n"
    )
    assert read_only_rota.jobs() == []


def test_cycle_of_needs_is_refused(rota: Rota) -> None:
    """LESSONS Waiting: a cycle blocked both sides for good."""
    first = rota.submit("--needs", "file:b", "--produces", "file:a", "--missing-producer", "wait", "--", "true")
    refused = rota.run("submit", "--needs", "file:a", "--produces", "file:b", "--", "true", code=2)
    assert refused.err == f"rota: invalid --needs cycle: job-2 -> {first} -> job-2\n"
    assert len(rota.jobs()) == 1
