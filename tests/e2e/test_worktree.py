"""`--worktree`, `--patch` and `--with-diff` from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually, is_alive, kill
from tests.repository import IDENTITY, Repository


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def rota(make_rota: Callable[..., Rota]) -> Rota:
    return make_rota(**IDENTITY)


def _job_directory(rota: Rota, job: str) -> Path:
    return rota.home / "jobs" / job.removeprefix("job-")


def _block_git_filter(repo: Repository, children: ChildControl, kind: str) -> None:
    """Make the first checkout (smudge) or `git add` (clean) wait at the gate `git`."""
    repo.write(".gitattributes", "file filter=slow\n")
    repo.commit("slow")
    script = children.path / "filter.sh"
    block = f"echo $$ > {children.pipe}; read -r code < {children.make_gate('git')}"
    script.write_text(f"#!/bin/sh\nif mkdir {children.path}/begun 2>/dev/null; then {block}; fi\nexec cat\n")
    script.chmod(0o755)
    repo.git("config", f"filter.slow.{kind}", str(script))


AGENT = """
echo 'an agent says' > answer
git add answer
git commit -q -m 'the answer'
echo three >> file
echo scratch > notes
"""


def test_job_in_a_worktree_leaves_the_user_tree_unchanged(rota: Rota, repo: Repository, tmp_path: Path) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "edited by the user\n")
    job = rota.submit("--worktree", "--", "sh", "-c", AGENT, cwd=repo.path)
    rota.wait(job)
    patch = _job_directory(rota, job) / "command.patch"
    repo.apply(patch, base, tmp_path / "clean")
    assert (tmp_path / "clean/answer").read_text() == "an agent says\n"
    assert (tmp_path / "clean/file").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "clean/notes").read_text() == "scratch\n"
    assert (repo.path / "file").read_text() == "edited by the user\n"
    assert repo.git("status", "--porcelain") == " M file"
    worktree = rota.home / "worktrees" / job
    assert rota.show(job)["worktree"] == str(worktree)
    assert repo.git("log", "--format=%s", f"rota/{job}", "-1") == "the answer"
    output = rota.run("show", job).out
    assert f"worktree           {worktree}\n" in output
    assert f"branch             rota/{job}\n" in output
    assert "worktree is        kept, uncommitted: file, notes\n" in output
    assert f"command patch      {patch}\n" in output
    outcome = eventually(lambda: (_job_directory(rota, job) / "outcome.json").exists() or None)
    assert outcome
    assert json.loads((_job_directory(rota, job) / "outcome.json").read_text())["worktree"] == str(worktree)


def test_rewind_removes_a_worktree_only_if_safe(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "sh", "-c", AGENT, cwd=repo.path)
    rota.wait(job)
    worktree = rota.home / "worktrees" / job
    rota.run("pool", "set", "global", "0")
    kept = rota.run("rewind", job)
    assert f"the worktree of {job} stays at {worktree}: uncommitted: file, notes" in kept.err
    assert not (_job_directory(rota, job) / "command.patch").exists()
    rota.run("pool", "set", "global", "1")
    rota.wait(job)
    second = Path(rota.show(job)["worktree"])
    assert second.name == f"{job}.2", "the worktree of the first run is kept"
    repo.git("-C", str(second), "checkout", "-q", "--", "file")
    (second / "notes").unlink()
    repo.git("merge", "-q", f"rota/{job}.2")
    rota.run("pool", "set", "global", "0")
    assert "stays" not in rota.run("rewind", job).err
    assert not second.exists()
    assert worktree.exists()


def test_refused_rewind_keeps_the_worktree(rota: Rota, repo: Repository, children: ChildControl) -> None:
    rota.run("pool", "set", "global", "2")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo x > notes", cwd=repo.path)
    rota.wait(job)
    worktree = rota.home / "worktrees" / job
    (worktree / "notes").unlink()  # the worktree has no changes left to lose
    rota.submit("--after", job, *children.gated("after"))
    assert children.read_lines() == ["after begins"]
    refused = rota.run("rewind", job, code=4)
    assert "cannot rewind while jobs are running in the rewind set: job-2 (RUNNING)" in refused.err
    assert worktree.exists()
    assert repo.git("rev-parse", "--verify", "--quiet", f"rota/{job}")
    children.release("after")


def test_existing_branch_names_are_not_reused(
    rota: Rota, repo: Repository, make_rota: Callable[..., Rota], tmp_path: Path, children: ChildControl
) -> None:
    """A branch of the user, a checked-out one, and a branch of another home in the same repository."""
    repo.git("branch", "rota/job-1")
    repo.git("checkout", "-q", "-b", "rota/job-2")
    jobs = [rota.submit("--worktree", "--", "sh", "-c", "git branch --show-current", cwd=repo.path) for _ in range(2)]
    rota.wait(*jobs)
    assert [rota.run("logs", job).out for job in jobs] == ["rota/job-1.2\n", "rota/job-2.2\n"]
    assert repo.git("branch", "--list", "rota/*").split() == ["rota/job-1", "*", "rota/job-2"]
    third = rota.submit("--worktree", *children.gated("third"), cwd=repo.path)
    assert children.read_lines() == ["third begins"]
    other = make_rota(tmp_path / "other", **IDENTITY)
    for _ in range(3):
        other.wait(other.submit("--worktree", "--", "true", cwd=repo.path))
    assert repo.git("rev-parse", "--verify", "--quiet", f"rota/{third}")
    children.release("third")
    rota.wait(third)


def test_worktree_without_changes_is_removed(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "sh", "-c", "git log --oneline; exit 3", cwd=repo.path)
    rota.wait(job, code=3)
    shown = rota.show(job)
    assert (shown["worktree"], shown["cwd"]) == (None, str(repo.path))
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not (_job_directory(rota, job) / "command.patch").exists()
    assert shown["run"]["error"] == "exit code 3"
    [policy] = [
        line for line in rota.run("show", job).lines if line.startswith(("worktree", "branch", "command patch"))
    ]
    assert policy.split()[:2] == ["worktree", "from"], "the requested policy only; no worktree exists"


def test_job_runs_in_the_same_subdirectory_of_the_worktree(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "pwd", cwd=repo.path / "below")
    rota.wait(job)
    assert rota.run("logs", job).out == f"{rota.home}/worktrees/{job}/below\n"


def test_base_is_resolved_at_submit(rota: Rota, repo: Repository) -> None:
    repo.git("branch", "release")
    rota.start()
    rota.set_global_size(0)
    job = rota.submit("--worktree", "--base", "release", "--", "cat", "file", cwd=repo.path)
    repo.write("file", "later\n")
    repo.commit("later")
    repo.git("branch", "-f", "release", "main")
    rota.set_global_size(1)
    rota.wait(job)
    assert rota.run("logs", job).out == "one\ntwo\n"


def test_two_worktrees_at_once(rota: Rota, repo: Repository, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(2)
    jobs = []
    for name in ("left", "right"):
        script = f'echo {name} > file; exec "$@"'
        command = ["sh", "-c", script, "sh", *children.gated_argv(name)]
        jobs.append(rota.submit("--worktree", "--", *command, cwd=repo.path))
    assert sorted(children.read_lines(2)) == ["left begins", "right begins"]
    assert [Path(rota.show(job)["worktree"] or "").joinpath("file").read_text() for job in jobs] == [
        "left\n",
        "right\n",
    ]
    for name in ("left", "right"):
        children.release(name)
    rota.wait(*jobs)
    for job, name in zip(jobs, ("left", "right"), strict=True):
        assert f"+{name}\n" in (_job_directory(rota, job) / "command.patch").read_text()


def test_cancel_while_the_worktree_is_created(rota: Rota, repo: Repository, children: ChildControl) -> None:
    _block_git_filter(repo, children, "smudge")
    job = rota.submit("--worktree", "--", "touch", str(children.path / "ran"), cwd=repo.path)
    pid = int(children.read_lines()[0])
    assert rota.show(job)["status"] == "RUNNING"
    rota.run("cancel", job)
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"], shown["worktree"]) == ("CANCELLED", 143, None)
    assert not is_alive(pid)
    assert not (children.path / "ran").exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_missing_base_commit_fails_with_the_git_error(rota: Rota, repo: Repository) -> None:
    repo.git("checkout", "-q", "-b", "doomed")
    repo.write("file", "doomed\n")
    commit = repo.commit("doomed")
    rota.start()
    rota.set_global_size(0)
    rota.set_start_delays("10ms")
    job = rota.submit("--worktree", "--", "true", cwd=repo.path)
    repo.git("checkout", "-q", "main")
    repo.git("branch", "-D", "doomed")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    rota.set_global_size(1)
    shown = rota.wait_for_end(job)
    assert (shown["status"], shown["exit_code"], shown["run"]) == ("FAILED", 1, None)
    assert shown["dispatch_failures"] == 3
    assert shown["reason"].startswith("circuit-broken: the workspace could not be set up: git worktree add: fatal: ")
    assert commit in shown["last_failure"]


def test_with_diff_includes_uncommitted_changes(rota: Rota, repo: Repository) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    script = 'cat file new; echo "$ROTA_INPUT_PATCH"; git apply --reverse --check "$ROTA_INPUT_PATCH"'
    job = rota.submit("--worktree", "--with-diff", "--", "sh", "-c", script, cwd=repo.path)
    input_patch = _job_directory(rota, job) / "input.patch"
    assert "+mine" in input_patch.read_text(), "exists before the submit returns"
    rota.wait(job)
    assert rota.run("logs", job).out == f"one\ntwo\nmine\nmine\n{input_patch}\n"
    assert rota.show(job)["worktree"] is None, "the job changed nothing"
    assert f"input patch        {input_patch}\n" in rota.run("show", job).out


def test_retry_has_its_own_patch_and_worktree(rota: Rota, repo: Repository) -> None:
    repo.write("file", "mine\n")
    script = 'echo spoiled > "$ROTA_INPUT_PATCH"; echo x > mess; exit 4'
    job = rota.submit("--worktree", "--with-diff", "--", "sh", "-c", script, cwd=repo.path)
    rota.wait(job, code=4)
    repo.write("file", "other by now\n")
    retried = rota.json("retry", job)["job"]["id"]
    rota.wait(retried, code=4)
    assert rota.show(retried)["worktree"] == str(rota.home / "worktrees" / retried)
    assert rota.show(job)["worktree"] == str(rota.home / "worktrees" / job)
    for member in (job, retried):
        assert "+mine" not in (_job_directory(rota, member) / "command.patch").read_text()
        assert (rota.home / "worktrees" / member / "file").read_text() == "mine\n", "the content at submit"


def test_patch_skips_nested_repositories(rota: Rota, repo: Repository) -> None:
    (repo.path / "nested").mkdir()
    repo.git("init", "-q", "nested")
    job = rota.submit("--patch", "--", "sh", "-c", "echo new > made", cwd=repo.path)
    rota.wait(job)
    assert "+new" in (_job_directory(rota, job) / "command.patch").read_text()


def test_rewind_keeps_commits_that_another_job_builds_on(rota: Rota, repo: Repository, children: ChildControl) -> None:
    """The second job starts on the branch of the first. Neither branch may be removed because of the other."""
    rota.run("pool", "set", "global", "2")
    first = rota.submit("--worktree", "--", "sh", "-c", "git commit -q --allow-empty -m precious", cwd=repo.path)
    rota.wait(first)
    commit = repo.git("rev-parse", f"rota/{first}")
    second = rota.submit("--worktree", "--base", f"rota/{first}", *children.gated("second"), cwd=repo.path)
    assert children.read_lines() == ["second begins"]
    assert "1 commit on no other branch" in rota.run("rewind", first).err
    rota.wait(first)
    children.release("second")
    rota.wait(second)
    assert commit in repo.git("rev-list", "--branches").split()


def test_patch_without_worktree_contains_only_the_changes_of_the_job(rota: Rota, repo: Repository) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    job = rota.submit("--patch", "--", "sh", "-c", "echo job >> file", cwd=repo.path / "below")
    rota.wait(job)
    assert (_job_directory(rota, job) / "command.patch").read_text().count("diff --git") == 1
    assert (repo.path / "below/file").read_text() == "job\n"
    assert rota.show(job)["worktree"] is None


@pytest.mark.parametrize(
    ("options", "output"),
    [
        (["--worktree", "--base", "no-such-branch"], "unknown --base: no-such-branch; it names no commit"),
        (["--worktree", "--base=--help"], "unknown --base: '--help'; name a branch, a tag or a commit"),
        (["--base", "main"], "--base requires a worktree: add --worktree"),
    ],
)
def test_invalid_base_is_refused_and_not_stored(
    read_only_rota: Rota, repo: Repository, options: list[str], output: str
) -> None:
    refused = read_only_rota.run("submit", *options, "--", "true", code=2, cwd=repo.path)
    assert output in refused.err
    assert read_only_rota.jobs() == []


@pytest.mark.parametrize("option", ["--worktree", "--patch", "--with-diff"])
def test_directory_without_a_working_tree_is_refused(
    read_only_rota: Rota, repo: Repository, tmp_path: Path, option: str
) -> None:
    assert (
        f"not in a git repository: {read_only_rota.cwd}"
        in read_only_rota.run("submit", option, "--", "true", code=2).err
    )
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
    for directory in (bare, repo.path / ".git"):
        assert (
            "not inside a git working tree"
            in read_only_rota.run("submit", option, "--", "true", code=2, cwd=directory).err
        )
    assert read_only_rota.jobs() == []


@pytest.mark.parametrize("option", ["--worktree", "--patch", "--with-diff", "--pin=main"])
def test_repository_path_with_a_line_break_is_refused(read_only_rota: Rota, tmp_path: Path, option: str) -> None:
    broken, link = tmp_path / "two\nlines", tmp_path / "link"
    broken.mkdir()
    link.symlink_to(broken)
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=broken, check=True)
    for directory in (broken, link):
        refused = read_only_rota.run("submit", option, "--", "true", code=2, cwd=directory)
        assert "has a line break" in refused.err
        assert "rename the directory" in refused.err
    assert read_only_rota.jobs() == []


def test_repository_without_a_commit(rota: Rota, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=empty, check=True)
    assert "has no commit yet" in rota.run("submit", "--worktree", "--", "true", code=2, cwd=empty).err
    job = rota.submit("--patch", "--", "touch", "first", cwd=empty)
    rota.wait(job)
    assert "b/first" in (_job_directory(rota, job) / "command.patch").read_text()


def test_batch_is_atomic_and_shares_its_patch(rota: Rota, repo: Repository, tmp_path: Path) -> None:
    rota.start()
    repo.write("new", "mine\n")
    good: dict[str, Any] = {"command": ["cat", "new"], "cwd": str(repo.path), "with_diff": True, "worktree": True}
    bad = {"command": ["true"], "cwd": str(tmp_path), "patch": True}
    assert rota.api("POST", "/api/jobs/batch", {"jobs": [good, bad]}).status == 422
    assert rota.jobs() == []
    plain = {"command": ["true"]}
    jobs = rota.api("POST", "/api/jobs/batch", {"jobs": [good, plain, good]}).json()["jobs"]
    for job in (jobs[0], jobs[2]):
        assert rota.wait_for_end(job)["status"] == "COMPLETED"
        assert "+mine" in (_job_directory(rota, job) / "input.patch").read_text()
    assert rota.wait_for_end(jobs[1])["status"] == "COMPLETED"
    assert len(list((rota.home / "patches").iterdir())) == 1
    base = rota.api("POST", "/api/jobs", {"command": ["true"], "cwd": str(repo.path), "base": "main"})
    assert (base.status, "add `worktree`" in base.json()["detail"]) == (422, True)


def test_supervisor_killed_while_the_patch_is_created(rota: Rota, repo: Repository, children: ChildControl) -> None:
    _block_git_filter(repo, children, "clean")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo changed > file; exit 6", cwd=repo.path)
    pid = int(children.read_lines()[0])
    assert rota.show(job)["status"] == "RUNNING", "RUNNING until its patch exists"
    kill(rota.supervisor_pid)
    shown = rota.wait_for_end(job)
    assert (shown["status"], shown["exit_code"]) == ("FAILED", 6)
    assert not is_alive(pid)
    assert "+changed" in (_job_directory(rota, job) / "command.patch").read_text()
    assert Path(shown["worktree"]).joinpath("file").read_text() == "changed\n"
    assert "kept, uncommitted: file" in rota.run("show", job).out


def test_supervisor_killed_while_the_worktree_is_created(rota: Rota, repo: Repository, children: ChildControl) -> None:
    """The command never started: the job returns to the queue and runs once."""
    _block_git_filter(repo, children, "smudge")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo ran >> ran; exit 7", cwd=repo.path)
    children.read_lines()
    kill(rota.supervisor_pid)
    rota.wait(job, code=7)
    patch = (_job_directory(rota, job) / "command.patch").read_text()
    assert patch.count("+ran") == 1
    assert repo.branches() == ["main", "rota/job-1"], "the incomplete worktree is removed"


def test_supervisor_killed_while_skip_if_runs(rota: Rota, children: ChildControl) -> None:
    """The result of `skip_if` is unknown, and the reason says so."""
    check = f"echo $$ > {children.pipe}; read -r code < {children.make_gate('check')}"
    job = rota.submit("--skip-if", check, "--", "true")
    pid = int(children.read_lines()[0])
    rota.wait_for_start(job)
    kill(rota.supervisor_pid)
    shown = rota.wait_for_end(job)
    assert shown["status"] == "FAILED"
    assert shown["reason"] == "the supervisor was lost while `skip_if` was running; the command never ran"
    assert not is_alive(pid)


def test_scheduler_killed_while_the_worktree_is_created(rota: Rota, repo: Repository, children: ChildControl) -> None:
    _block_git_filter(repo, children, "smudge")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo changed > file; exit 7", cwd=repo.path)
    children.read_lines()
    rota.crash()
    rota.start()
    children.release("git")
    rota.wait(job, code=7)
    assert "+changed" in (_job_directory(rota, job) / "command.patch").read_text()


def test_workspace_error_after_the_end_is_recorded(rota: Rota, repo: Repository) -> None:
    failed = rota.submit("--worktree", "--", "sh", "-c", 'rm -rf "$PWD"; exit 5', cwd=repo.path)
    rota.wait(failed, code=5)
    error = rota.show(failed)["run"]["error"]
    assert error.startswith("exit code 5\n")
    assert "the workspace was not finished: the patch could not be created" in error
    fine = rota.submit("--worktree", "--", "sh", "-c", 'rm -rf "$PWD"', cwd=repo.path)
    rota.wait(fine)
    assert rota.show(fine)["run"]["error"] is None
    assert "run-2: the workspace was not finished" in (rota.home / "rota.log").read_text()
