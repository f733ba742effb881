"""Artifacts and pinned heads as a person meets them: a real repository, real children, changes made by hand."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage, eventually


def git(repository: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def detail(rota: Rota, job: str) -> str | None:
    wait = rota.show(job)["wait"]
    return None if wait is None else wait["detail"]


def test_a_plan_is_drafted_reviewed_and_merged(rota: Rota, repository: Path) -> None:
    """Each step is a child that works on the repository, and starts when git has what it needs."""
    rota.ask("pool", "set", "global", "-1")
    write = "git checkout -q -b draft/auth; mkdir plans; echo do it > plans/auth.md; git add plans; git commit -qm plan"
    draft = rota.submit(
        "--produces", "plan_branch:auth", "--produces", "plan_doc:auth", "--lock", "tree", "--", "sh", "-c", write,
        cwd=repository,
    )  # fmt: skip
    review = rota.submit("--needs", "plan_doc:auth", "--", "git", "show", "draft/auth:plans/auth.md", cwd=repository)
    merged = rota.submit(
        "--needs", "plan_branch:auth (draft/auth)", "--after", review, "--lock", "tree",
        "--produces", "target_branch:main", "--", "sh", "-c", "git checkout -q main && git merge -q draft/auth",
        cwd=repository,
    )  # fmt: skip
    rota.wait(draft, review, merged)
    assert rota.ask("logs", review).out == "do it\n"
    assert git(repository, "log", "--format=%s", "main").split() == ["plan", "begin"]
    shown = rota.show(review)
    assert shown["needs"] == ["plan_doc:auth (draft/auth)"]
    assert rota.show(draft)["produces"] == ["plan_branch:auth (draft/auth)", "plan_doc:auth (draft/auth)"]


def test_a_diamond_over_files(rota: Rota, repository: Path) -> None:
    rota.ask("pool", "set", "global", "-1")
    top = rota.submit("--produces", "file:top.txt", "--", "sh", "-c", "echo top > top.txt", cwd=repository)
    sides = [
        rota.submit(
            "--needs", "file:top.txt", "--produces", f"file:{side}.txt",
            "--", "sh", "-c", f"cat top.txt > {side}.txt", cwd=repository,
        )
        for side in ("left", "right")
    ]  # fmt: skip
    bottom = rota.submit(
        "--needs", "file:left.txt", "--needs", "file:right.txt", "--", "cat", "left.txt", "right.txt", cwd=repository
    )
    rota.wait(top, *sides, bottom)
    assert rota.ask("logs", bottom).out == "top\ntop\n"
    assert rota.show(bottom)["needs"] == [f"file:{repository}/left.txt", f"file:{repository}/right.txt"]


def test_what_is_changed_by_hand_is_noticed(rota: Rota, repository: Path) -> None:
    """A file appears, a branch comes, moves away and back; nobody says so."""
    rota.ask("pool", "set", "global", "-1")
    by_file = rota.submit("--needs", "file:go", "--missing-producer", "wait", "--", "true", cwd=repository)
    by_branch = rota.submit("--needs", "target_branch:next", "--missing-producer", "wait", "--", "true", cwd=repository)
    pinned = rota.submit("--pin", f"later@{git(repository, 'rev-parse', 'HEAD')}", "--", "true", cwd=repository)
    assert detail(rota, by_file) == f"awaiting producer for file:{repository}/go"
    assert detail(rota, by_branch) == "awaiting producer for target_branch:next"
    assert detail(rota, pinned) == "pinned head mismatch on later"
    assert rota.ask("why", pinned).out == f"{pinned} is WAITING_ON_DEPS: pinned head mismatch on later\n"
    (repository / "go").touch()
    rota.wait(by_file)
    git(repository, "branch", "next")
    git(repository, "pack-refs", "--all")
    rota.wait(by_branch)
    git(repository, "branch", "later")
    rota.wait(pinned)
    assert rota.show(pinned)["waited_on"] == ["pinned_head"]


def test_a_tick_by_hand_looks_at_once_and_says_what_it_started(rota: Rota, repository: Path) -> None:
    job = rota.submit("--needs", "file:go", "--missing-producer", "wait", "--", "true", cwd=repository)
    assert rota.json("tick") == {"dispatched": [], "would_dispatch": [], "skipped": 0, "reason": "none"}
    (repository / "go").touch()
    assert job in (*rota.json("tick")["dispatched"], rota.ended(job)["id"])
    rota.wait(job)


def test_a_deleted_branch_waits_and_stops_nobody_else(rota: Rota, stage: Stage, repository: Path) -> None:
    """LESSONS Dispatch: one deleted branch stopped the tick for all."""
    git(repository, "branch", "topic")
    first = rota.submit(*stage.actor("first"), cwd=repository)
    assert stage.hear() == ["first begins"]
    pinned = rota.submit("--pin", "topic", "--", "true", cwd=repository)
    needing = rota.submit("--needs", "plan_branch:x (topic)", "--", "true", cwd=repository)
    behind = rota.submit("--", "true", cwd=repository)
    git(repository, "branch", "-D", "topic")
    stage.release("first")
    rota.wait(first, behind)
    assert detail(rota, pinned) == "pinned head mismatch on topic"
    assert rota.ended(needing)["reason"] == "missing plan_branch:x (topic)"
    git(repository, "branch", "topic")
    rota.wait(pinned)


def test_a_pinned_head_is_the_head_of_now_and_holds_through_a_predecessor_that_moves_it(
    rota: Rota, repository: Path
) -> None:
    """The predecessor's end and the look at its successor are one turn: what was seen before it does not count."""
    head = git(repository, "rev-parse", "main")
    mover = rota.submit("--", "git", "commit", "-q", "--allow-empty", "-m", "moved", cwd=repository)
    pinned = rota.submit("--pin", f"main@{head[:10]}", "--after", mover, "--", "true", cwd=repository)
    rota.wait(mover)
    assert rota.show(pinned)["pinned_head"] == {"branch": "main", "oid": head}
    shown = eventually(lambda: shown if (shown := rota.show(pinned))["wait"] else None)
    assert shown["wait"]["detail"] == "pinned head mismatch on main"
    git(repository, "reset", "-q", "--hard", head)
    rota.wait(pinned)


def test_a_linked_worktree_is_of_the_same_repository(rota: Rota, repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "--detach", str(linked))
    job = rota.submit("--needs", "custom:sign:off", "--missing-producer", "wait", "--", "true", cwd=linked)
    assert rota.ask("artifact", "put", "custom:sign:off", cwd=repository).out == "custom:sign:off\n"
    rota.wait(job)


PUT = 'python="$0"; "$python" -m rota artifact put custom:report:x --payload "found 3"; '


def test_what_a_job_puts_counts_when_it_is_over_and_is_kept(rota: Rota, stage: Stage, repository: Path) -> None:
    rota.ask("pool", "set", "global", "-1")
    maker = rota.submit(
        "--produces",
        "custom:report:x",
        "--",
        "sh",
        "-c",
        PUT + stage_gate(stage, "maker"),
        sys.executable,
        cwd=repository,
    )
    reader = rota.submit(
        "--needs", "custom:report:x", "--", sys.executable, "-m", "rota", "artifact", "show", "custom:report:x",
        cwd=repository,
    )  # fmt: skip
    assert stage.hear() == ["maker begins"]
    assert detail(rota, reader) == "waiting on custom:report:x", "it is not over"
    assert rota.show(maker)["run"]["artifacts"] == ["custom:report:x"]
    stage.release("maker")
    rota.wait(maker, reader)
    assert rota.ask("logs", reader).out == "found 3\n"
    assert [each["artifact"] for each in rota.json("artifact", "list")["artifacts"]] == ["custom:report:x"]
    assert rota.ask("artifact", "remove", "custom:report:x", cwd=repository).err == "rota: removed custom:report:x\n"
    assert rota.ask("artifact", "show", "custom:report:x", cwd=repository, code=3).err.startswith(
        "rota: nobody has put custom:report:x"
    )


def stage_gate(stage: Stage, name: str) -> str:
    """The stage's words as a shell line."""
    words = stage.actor(name)
    return shlex.join(words[1:] if words[0] == "--" else words)


def test_what_a_failed_job_put_is_taken_back(rota: Rota, repository: Path) -> None:
    maker = rota.submit("--", "sh", "-c", PUT + "exit 3", sys.executable, cwd=repository)
    rota.wait(maker, code=3)
    assert rota.json("artifact", "list") == {"artifacts": []}
    late = rota.ask("artifact", "put", "custom:report:x", env={"ROTA_JOB": maker}, cwd=repository, code=4)
    assert late.err == f"rota: {maker} is not running (FAILED), so it cannot put anything\n"


def test_a_file_that_comes_while_no_scheduler_runs(rota: Rota, repository: Path) -> None:
    job = rota.submit("--needs", "file:go", "--missing-producer", "wait", "--", "true", cwd=repository)
    rota.crash()
    (repository / "go").touch()
    rota.ask("up")
    rota.wait(job)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--needs", "plan:x"], 2, "unknown artifact type in 'plan:x'; the types are "),
        (["--produces", "custom:x"], 2, "malformed artifact: 'custom:x'; it is written custom:<type>:<key>"),
        (["--needs", "target_branch:a..b"], 2, "malformed artifact: 'target_branch:a..b'"),
        (["--pin", "nowhere"], 2, "no branch nowhere in "),
        (["--pin", "main@0123abcd"], 2, "no commit 0123abcd in "),
        (["--needs", "command_patch:job-77"], 3, "unknown job in --needs command_patch:job-77"),
        (["--after", "77"], 3, "unknown --after job id: job-77"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_stored(
    untouched: Rota, repository: Path, words: list[str], code: int, said: str
) -> None:
    refused = untouched.ask("submit", *words, "--", "true", code=code, cwd=repository)
    assert refused.err.startswith(f"rota: {said}")
    assert untouched.jobs() == []


def test_a_folder_that_is_not_in_a_repository_is_refused(untouched: Rota) -> None:
    refused = untouched.ask("submit", "--needs", "plan_doc:x", "--", "true", code=2)
    assert refused.err == (
        f"rota: {untouched.cwd} is not in a git repository, and plan_doc:x (draft/x) belongs to one; "
        "submit it with a --cwd inside of one\n"
    )
    assert untouched.jobs() == []


def test_jobs_that_would_wait_for_each_other_are_refused(rota: Rota) -> None:
    """LESSONS Waiting: a cycle blocked both sides for good."""
    first = rota.submit("--needs", "file:b", "--produces", "file:a", "--missing-producer", "wait", "--", "true")
    refused = rota.ask("submit", "--needs", "file:a", "--produces", "file:b", "--", "true", code=2)
    assert refused.err == f"rota: invalid --needs cycle: job-2 -> {first} -> job-2\n"
    assert len(rota.jobs()) == 1
