"""`--worktree`, `--patch` and `--with-diff`, as a person uses them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.rig import Rota, Stage, eventually, kill, lives
from repository import IDENTITY, Repository


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


@pytest.fixture
def rota(make_rota: Callable[..., Rota]) -> Rota:
    return make_rota(**IDENTITY)


def _files(rota: Rota, job: str) -> Path:
    return rota.home / "jobs" / job.removeprefix("job-")


def _slow(repo: Repository, stage: Stage, what: str) -> None:
    """The first checkout (smudge) or `git add` (clean) waits at the gate `git`."""
    repo.write(".gitattributes", "file filter=slow\n")
    repo.commit("slow")
    script = stage.path / "filter.sh"
    act = f"echo $$ > {stage.pipe}; read -r code < {stage.gate('git')}"
    script.write_text(f"#!/bin/sh\nif mkdir {stage.path}/begun 2>/dev/null; then {act}; fi\nexec cat\n")
    script.chmod(0o755)
    repo.git("config", f"filter.slow.{what}", str(script))


AGENT = """
echo 'an agent says' > answer
git add answer
git commit -q -m 'the answer'
echo three >> file
echo scratch > notes
"""


def test_an_agent_works_beside_its_user(rota: Rota, repo: Repository, tmp_path: Path) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "the user goes on\n")
    job = rota.submit("--worktree", "--", "sh", "-c", AGENT, cwd=repo.path)
    rota.wait(job)
    patch = _files(rota, job) / "command.patch"
    repo.apply(patch, base, tmp_path / "clean")
    assert (tmp_path / "clean/answer").read_text() == "an agent says\n"
    assert (tmp_path / "clean/file").read_text() == "one\ntwo\nthree\n"
    assert (tmp_path / "clean/notes").read_text() == "scratch\n"
    assert (repo.path / "file").read_text() == "the user goes on\n"
    assert repo.git("status", "--porcelain") == " M file"
    worktree = rota.home / "worktrees" / job
    assert rota.show(job)["worktree"] == str(worktree)
    assert repo.git("log", "--format=%s", f"rota/{job}", "-1") == "the answer"
    said = rota.ask("show", job).out
    assert f"worktree           {worktree}\n" in said
    assert f"branch             rota/{job}\n" in said
    assert "worktree is        kept, uncommitted: file, notes\n" in said
    assert f"command patch      {patch}\n" in said
    outcome = eventually(lambda: (_files(rota, job) / "outcome.json").exists() or None)
    assert outcome
    assert json.loads((_files(rota, job) / "outcome.json").read_text())["worktree"] == str(worktree)


def test_a_rewind_removes_the_worktree_if_that_is_safe_and_else_says_why_not(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "sh", "-c", AGENT, cwd=repo.path)
    rota.wait(job)
    worktree = rota.home / "worktrees" / job
    rota.ask("pool", "set", "global", "0")
    kept = rota.ask("rewind", job)
    assert f"the worktree of {job} stays at {worktree}: uncommitted: file, notes" in kept.err
    assert not (_files(rota, job) / "command.patch").exists()
    rota.ask("pool", "set", "global", "1")
    rota.wait(job)
    second = Path(rota.show(job)["worktree"])
    assert second.name == f"{job}.2", "what the first run left is not touched"
    repo.git("-C", str(second), "checkout", "-q", "--", "file")
    (second / "notes").unlink()
    repo.git("merge", "-q", f"rota/{job}.2")
    rota.ask("pool", "set", "global", "0")
    assert "stays" not in rota.ask("rewind", job).err
    assert not second.exists()
    assert worktree.exists()


def test_a_rewind_that_is_refused_touches_no_worktree(rota: Rota, repo: Repository, stage: Stage) -> None:
    rota.ask("pool", "set", "global", "2")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo x > notes", cwd=repo.path)
    rota.wait(job)
    worktree = rota.home / "worktrees" / job
    (worktree / "notes").unlink()  # from now on nothing would be lost with it
    rota.submit("--after", job, *stage.actor("after"))
    assert stage.hear() == ["after begins"]
    refused = rota.ask("rewind", job, code=4)
    assert "cannot rewind while jobs are running in the rewind set: job-2 (RUNNING)" in refused.err
    assert worktree.exists()
    assert repo.git("rev-parse", "--verify", "--quiet", f"rota/{job}")
    stage.release("after")


def test_a_branch_that_somebody_else_has_called_so_is_his(
    rota: Rota, repo: Repository, make_rota: Callable[..., Rota], tmp_path: Path, stage: Stage
) -> None:
    """The user's own, one that he has checked out, and that of another home's job in the same repository."""
    repo.git("branch", "rota/job-1")
    repo.git("checkout", "-q", "-b", "rota/job-2")
    jobs = [rota.submit("--worktree", "--", "sh", "-c", "git branch --show-current", cwd=repo.path) for _ in range(2)]
    rota.wait(*jobs)
    assert [rota.ask("logs", job).out for job in jobs] == ["rota/job-1.2\n", "rota/job-2.2\n"]
    assert repo.git("branch", "--list", "rota/*").split() == ["rota/job-1", "*", "rota/job-2"]
    third = rota.submit("--worktree", *stage.actor("third"), cwd=repo.path)
    assert stage.hear() == ["third begins"]
    other = make_rota(tmp_path / "other", **IDENTITY)
    for _ in range(3):
        other.wait(other.submit("--worktree", "--", "true", cwd=repo.path))
    assert repo.git("rev-parse", "--verify", "--quiet", f"rota/{third}")
    stage.release("third")
    rota.wait(third)


def test_what_changes_nothing_leaves_nothing(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "sh", "-c", "git log --oneline; exit 3", cwd=repo.path)
    rota.wait(job, code=3)
    shown = rota.show(job)
    assert (shown["worktree"], shown["cwd"]) == (None, str(repo.path))
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not (_files(rota, job) / "command.patch").exists()
    assert shown["run"]["error"] == "exit code 3"
    assert "worktree" not in rota.ask("show", job).out.replace("--worktree", "")


def test_the_same_directory_inside_the_worktree(rota: Rota, repo: Repository) -> None:
    job = rota.submit("--worktree", "--", "pwd", cwd=repo.path / "below")
    rota.wait(job)
    assert rota.ask("logs", job).out == f"{rota.home}/worktrees/{job}/below\n"


def test_a_base_is_the_commit_it_was_at_submit(rota: Rota, repo: Repository) -> None:
    repo.git("branch", "release")
    rota.start()
    rota.set_global(0)
    job = rota.submit("--worktree", "--base", "release", "--", "cat", "file", cwd=repo.path)
    repo.write("file", "later\n")
    repo.commit("later")
    repo.git("branch", "-f", "release", "main")
    rota.set_global(1)
    rota.wait(job)
    assert rota.ask("logs", job).out == "one\ntwo\n"


def test_two_side_by_side(rota: Rota, repo: Repository, stage: Stage) -> None:
    rota.start()
    rota.set_global(2)
    jobs = []
    for name in ("left", "right"):
        script = f'echo {name} > file; exec "$@"'
        command = ["sh", "-c", script, "sh", *stage.actor(name)[1:]]
        jobs.append(rota.submit("--worktree", "--", *command, cwd=repo.path))
    assert sorted(stage.hear(2)) == ["left begins", "right begins"]
    assert [Path(rota.show(job)["worktree"] or "").joinpath("file").read_text() for job in jobs] == [
        "left\n",
        "right\n",
    ]
    for name in ("left", "right"):
        stage.release(name)
    rota.wait(*jobs)
    for job, name in zip(jobs, ("left", "right"), strict=True):
        assert f"+{name}\n" in (_files(rota, job) / "command.patch").read_text()


def test_cancel_while_the_worktree_is_made(rota: Rota, repo: Repository, stage: Stage) -> None:
    _slow(repo, stage, "smudge")
    job = rota.submit("--worktree", "--", "touch", str(stage.path / "ran"), cwd=repo.path)
    pid = int(stage.hear()[0])
    assert rota.show(job)["status"] == "RUNNING"
    rota.ask("cancel", job)
    shown = rota.show(job)
    assert (shown["status"], shown["exit_code"], shown["worktree"]) == ("CANCELLED", 143, None)
    assert not lives(pid)
    assert not (stage.path / "ran").exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_a_base_that_vanished_is_told_by_git(rota: Rota, repo: Repository) -> None:
    repo.git("checkout", "-q", "-b", "doomed")
    repo.write("file", "doomed\n")
    commit = repo.commit("doomed")
    rota.start()
    rota.set_global(0)
    job = rota.submit("--worktree", "--", "true", cwd=repo.path)
    repo.git("checkout", "-q", "main")
    repo.git("branch", "-D", "doomed")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "-q", "--prune=now")
    rota.set_global(1)
    shown = rota.ended(job)
    assert (shown["status"], shown["exit_code"], shown["run"]) == ("FAILED", 1, None)
    assert shown["dispatch_failures"] == 3
    assert shown["reason"].startswith("circuit-broken: its workspace could not be made: git worktree add: fatal: ")
    assert commit in shown["last_failure"]


def test_what_is_not_committed_goes_along(rota: Rota, repo: Repository) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    script = 'cat file new; echo "$ROTA_INPUT_PATCH"; git apply --reverse --check "$ROTA_INPUT_PATCH"'
    job = rota.submit("--worktree", "--with-diff", "--", "sh", "-c", script, cwd=repo.path)
    given = _files(rota, job) / "input.patch"
    assert "+mine" in given.read_text(), "there when the submit is answered"
    rota.wait(job)
    assert rota.ask("logs", job).out == f"one\ntwo\nmine\nmine\n{given}\n"
    assert rota.show(job)["worktree"] is None, "nothing in it was the job's"
    assert f"input patch        {given}\n" in rota.ask("show", job).out


def test_a_retry_has_its_own_copy_and_its_own_worktree(rota: Rota, repo: Repository) -> None:
    repo.write("file", "mine\n")
    script = 'echo spoiled > "$ROTA_INPUT_PATCH"; echo x > mess; exit 4'
    job = rota.submit("--worktree", "--with-diff", "--", "sh", "-c", script, cwd=repo.path)
    rota.wait(job, code=4)
    repo.write("file", "other by now\n")
    again = rota.json("retry", job)["job"]["id"]
    rota.wait(again, code=4)
    assert rota.show(again)["worktree"] == str(rota.home / "worktrees" / again)
    assert rota.show(job)["worktree"] == str(rota.home / "worktrees" / job)
    for member in (job, again):
        assert "+mine" not in (_files(rota, member) / "command.patch").read_text()
        assert (rota.home / "worktrees" / member / "file").read_text() == "mine\n", "as it was at submit"


def test_what_git_cannot_take_is_left_out_of_a_patch(rota: Rota, repo: Repository) -> None:
    (repo.path / "nested").mkdir()
    repo.git("init", "-q", "nested")
    job = rota.submit("--patch", "--", "sh", "-c", "echo new > made", cwd=repo.path)
    rota.wait(job)
    assert "+new" in (_files(rota, job) / "command.patch").read_text()


def test_commits_are_not_lost_between_two_jobs(rota: Rota, repo: Repository, stage: Stage) -> None:
    """The second begins on the branch of the first, and changes nothing; each would be safe because of the other."""
    rota.ask("pool", "set", "global", "2")
    first = rota.submit("--worktree", "--", "sh", "-c", "git commit -q --allow-empty -m precious", cwd=repo.path)
    rota.wait(first)
    commit = repo.git("rev-parse", f"rota/{first}")
    second = rota.submit("--worktree", "--base", f"rota/{first}", *stage.actor("second"), cwd=repo.path)
    assert stage.hear() == ["second begins"]
    assert "1 commit on no other branch" in rota.ask("rewind", first).err
    rota.wait(first)
    stage.release("second")
    rota.wait(second)
    assert commit in repo.git("rev-list", "--branches").split()


def test_a_patch_of_the_users_own_tree(rota: Rota, repo: Repository) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    job = rota.submit("--patch", "--", "sh", "-c", "echo job >> file", cwd=repo.path / "below")
    rota.wait(job)
    assert (_files(rota, job) / "command.patch").read_text().count("diff --git") == 1
    assert (repo.path / "below/file").read_text() == "job\n"
    assert rota.show(job)["worktree"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--worktree", "--base", "no-such-branch"], "unknown --base: no-such-branch; it names no commit"),
        (["--worktree", "--base=--help"], "unknown --base: '--help'; name a branch, a tag or a commit"),
        (["--base", "main"], "--base is what a worktree is made from: add --worktree"),
    ],
)
def test_what_cannot_be_is_refused_and_not_stored(
    untouched: Rota, repo: Repository, options: list[str], said: str
) -> None:
    refused = untouched.ask("submit", *options, "--", "true", code=2, cwd=repo.path)
    assert said in refused.err
    assert untouched.jobs() == []


@pytest.mark.parametrize("option", ["--worktree", "--patch", "--with-diff"])
def test_outside_a_repository_or_in_a_bare_one_it_is_refused(
    untouched: Rota, repo: Repository, tmp_path: Path, option: str
) -> None:
    assert f"not in a git repository: {untouched.cwd}" in untouched.ask("submit", option, "--", "true", code=2).err
    bare = tmp_path / "bare.git"
    repo.git("clone", "-q", "--bare", str(repo.path), str(bare))
    for place in (bare, repo.path / ".git"):
        assert "not inside a git working tree" in untouched.ask("submit", option, "--", "true", code=2, cwd=place).err
    assert untouched.jobs() == []


def test_a_repository_without_a_commit(rota: Rota, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=empty, check=True)
    assert "has no commit yet" in rota.ask("submit", "--worktree", "--", "true", code=2, cwd=empty).err
    job = rota.submit("--patch", "--", "touch", "first", cwd=empty)
    rota.wait(job)
    assert "b/first" in (_files(rota, job) / "command.patch").read_text()


def test_a_batch_is_refused_whole_and_shares_its_patch(rota: Rota, repo: Repository, tmp_path: Path) -> None:
    rota.start()
    repo.write("new", "mine\n")
    good: dict[str, Any] = {"command": ["cat", "new"], "cwd": str(repo.path), "with_diff": True, "worktree": True}
    bad = {"command": ["true"], "cwd": str(tmp_path), "patch": True}
    assert rota.api("POST", "/api/jobs/batch", {"jobs": [good, bad]}).status == 422
    assert rota.jobs() == []
    plain = {"command": ["true"]}
    jobs = rota.api("POST", "/api/jobs/batch", {"jobs": [good, plain, good]}).json()["jobs"]
    for job in (jobs[0], jobs[2]):
        assert rota.ended(job)["status"] == "COMPLETED"
        assert "+mine" in (_files(rota, job) / "input.patch").read_text()
    assert rota.ended(jobs[1])["status"] == "COMPLETED"
    assert len(list((rota.home / "patches").iterdir())) == 1
    base = rota.api("POST", "/api/jobs", {"command": ["true"], "cwd": str(repo.path), "base": "main"})
    assert (base.status, "ask for `worktree` too" in base.json()["detail"]) == (422, True)


def test_a_supervisor_killed_while_the_patch_is_taken(rota: Rota, repo: Repository, stage: Stage) -> None:
    _slow(repo, stage, "clean")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo changed > file; exit 6", cwd=repo.path)
    pid = int(stage.hear()[0])
    assert rota.show(job)["status"] == "RUNNING", "not over before its patch is there"
    kill(rota.supervisor)
    shown = rota.ended(job)
    assert (shown["status"], shown["exit_code"]) == ("FAILED", 6)
    assert not lives(pid)
    assert "+changed" in (_files(rota, job) / "command.patch").read_text()
    assert Path(shown["worktree"]).joinpath("file").read_text() == "changed\n"
    assert "kept, uncommitted: file" in rota.ask("show", job).out


def test_a_supervisor_killed_while_the_worktree_is_made(rota: Rota, repo: Repository, stage: Stage) -> None:
    """Its command never began: it goes back to its place, and is run once."""
    _slow(repo, stage, "smudge")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo ran >> ran; exit 7", cwd=repo.path)
    stage.hear()
    kill(rota.supervisor)
    rota.wait(job, code=7)
    patch = (_files(rota, job) / "command.patch").read_text()
    assert patch.count("+ran") == 1
    assert repo.branches() == ["main", "rota/job-1"], "what was half made is gone"


def test_a_supervisor_killed_while_skip_if_runs(rota: Rota, stage: Stage) -> None:
    """Whether it is to be skipped nobody can know; what is said of it is true."""
    check = f"echo $$ > {stage.pipe}; read -r code < {stage.gate('check')}"
    job = rota.submit("--skip-if", check, "--", "true")
    pid = int(stage.hear()[0])
    rota.running(job)
    kill(rota.supervisor)
    shown = rota.ended(job)
    assert shown["status"] == "FAILED"
    assert shown["reason"] == "the supervisor was lost while its `skip_if` ran; its command never began"
    assert not lives(pid)


def test_a_scheduler_killed_while_the_worktree_is_made(rota: Rota, repo: Repository, stage: Stage) -> None:
    _slow(repo, stage, "smudge")
    job = rota.submit("--worktree", "--", "sh", "-c", "echo changed > file; exit 7", cwd=repo.path)
    stage.hear()
    rota.crash()
    rota.start()
    stage.release("git")
    rota.wait(job, code=7)
    assert "+changed" in (_files(rota, job) / "command.patch").read_text()


def test_what_went_wrong_after_the_end_is_said_with_it(rota: Rota, repo: Repository) -> None:
    failed = rota.submit("--worktree", "--", "sh", "-c", 'rm -rf "$PWD"; exit 5', cwd=repo.path)
    rota.wait(failed, code=5)
    error = rota.show(failed)["run"]["error"]
    assert error.startswith("exit code 5\n")
    assert "its workspace was not finished: the patch could not be taken" in error
    fine = rota.submit("--worktree", "--", "sh", "-c", 'rm -rf "$PWD"', cwd=repo.path)
    rota.wait(fine)
    assert rota.show(fine)["run"]["error"] is None
    assert "run-2: its workspace was not finished" in (rota.home / "rota.log").read_text()
