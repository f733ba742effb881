"""Worktrees and patches as functions over real repositories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from executor.rig import ends_within
from repository import IDENTITY, Repository
from rota.executor.workspace import record
from rota.executor.workspace.__main__ import begin, end
from rota.executor.workspace.git import Git, GitError, TooLarge
from rota.executor.workspace.input import path_of, take_input
from rota.executor.workspace.order import WorkspaceOrder
from rota.executor.workspace.tree import Scratch, head_of, snapshot, write_patch
from rota.executor.workspace.worktree import Worktree, make, remove_if_safe

LIMIT = 30.0


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


def git_in(path: Path | str, seconds: float = LIMIT) -> Git:
    return Git(str(path), time.monotonic() + seconds)


class Bench:
    """One job's orders and what comes of them."""

    def __init__(self, repo: Repository, home: Path) -> None:
        self.repo = repo
        self.home = home
        self.directory = home / "jobs" / "24"
        self.directory.mkdir(parents=True, exist_ok=True)

    def order(self, *, base: str | None = None, **fields: object) -> WorkspaceOrder:
        given = {"wants_patch": True, "input": None, "below": "", "cwd": str(self.repo.path), **fields}
        return WorkspaceOrder(
            home=str(self.home), job="job-24", directory=str(self.directory), repository=self.repo.common,
            base=base, limit=LIMIT, **given,  # type: ignore[arg-type]
        )  # fmt: skip

    def begin(self, **fields: object) -> Path:
        """Where the job would work."""
        self.last = self.order(**fields)  # type: ignore[arg-type]
        begin(self.last)
        return Path(self.place["cwd"])

    def end(self, *, has_run: bool = True) -> None:
        end(self.last, self.place, has_run=has_run)

    @property
    def place(self) -> dict[str, Any]:
        found = record.read(str(self.directory))
        assert found is not None
        return found

    @property
    def patch(self) -> Path:
        return self.directory / "command.patch"


@pytest.fixture
def bench(repo: Repository, tmp_path: Path) -> Bench:
    return Bench(repo, tmp_path / "home")


# --- the worktree ---


def test_a_worktree_is_a_branch_of_its_own_at_the_base(bench: Bench, repo: Repository) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.write("file", "later\n")
    repo.commit("later")
    cwd = bench.begin(base=first, below="below")
    assert cwd == bench.home / "worktrees" / "job-24" / "below"
    assert (cwd / "deep").read_text() == "deep\n"
    assert (cwd / "../file").read_text() == "one\ntwo\n"
    assert repo.git("symbolic-ref", "--short", "HEAD", at=cwd) == "rota/job-24"
    assert repo.git("rev-parse", "HEAD", at=cwd) == first


def test_nothing_done_leaves_nothing(bench: Bench, repo: Repository) -> None:
    cwd = bench.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / "built.ignored").write_text("x")
    bench.end()
    assert not cwd.exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not bench.patch.exists(), "no patch where nothing has changed"
    assert (bench.place["is_removed"], bench.place["kept"]) == (True, None)
    assert not (bench.directory / "workspace.tmp").exists()


def test_the_patch_has_commits_changes_and_new_files_but_not_what_is_ignored(
    bench: Bench, repo: Repository, tmp_path: Path
) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = bench.begin(base=base)
    repo.write("file", "one\n2\n", at=cwd)
    repo.commit("mine", at=cwd)
    repo.write("below/deep", "deeper\n", at=cwd)
    (cwd / "binary").write_bytes(bytes(range(256)) * 8)
    (cwd / "name with spaces and ü").write_text("x\n")
    (cwd / "built.ignored").write_text("x")
    (cwd / ".gitignore").unlink()
    repo.git("checkout", "-q", "HEAD", "--", ".gitignore", at=cwd)
    bench.end()
    clean = tmp_path / "clean"
    repo.apply(bench.patch, base, clean)
    assert (clean / "file").read_text() == "one\n2\n"
    assert (clean / "below/deep").read_text() == "deeper\n"
    assert (clean / "binary").read_bytes() == bytes(range(256)) * 8
    assert (clean / "name with spaces and ü").read_text() == "x\n"
    assert not (clean / "built.ignored").exists()


def _uncommitted(repo: Repository, cwd: Path) -> None:
    repo.write("file", "changed\n", at=cwd)


def _staged(repo: Repository, cwd: Path) -> None:
    repo.write("file", "changed\n", at=cwd)
    repo.git("add", "file", at=cwd)


def _untracked(repo: Repository, cwd: Path) -> None:
    repo.write("new", "x\n", at=cwd)


def _committed(repo: Repository, cwd: Path) -> None:
    repo.write("new", "x\n", at=cwd)
    repo.commit("mine", at=cwd)


def _committed_without_a_branch(repo: Repository, cwd: Path) -> None:
    repo.git("checkout", "-q", "--detach", at=cwd)
    _committed(repo, cwd)


def _merged_elsewhere(repo: Repository, cwd: Path) -> None:
    _committed(repo, cwd)
    repo.git("merge", "-q", "rota/job-24")


def _on_another_branch(repo: Repository, cwd: Path) -> None:
    repo.git("checkout", "-q", "-b", "feature", at=cwd)
    _committed(repo, cwd)


def _tagged(repo: Repository, cwd: Path) -> None:
    _committed(repo, cwd)
    repo.git("tag", "keep", at=cwd)


def _pushed(repo: Repository, cwd: Path) -> None:
    _committed(repo, cwd)
    repo.git("update-ref", "refs/remotes/origin/job", "rota/job-24")


def _ignored(repo: Repository, cwd: Path) -> None:
    (cwd / "big.ignored").write_text("x")


def _undone(repo: Repository, cwd: Path) -> None:
    _committed(repo, cwd)
    repo.git("reset", "-q", "--hard", "HEAD~", at=cwd)


def _locked(repo: Repository, cwd: Path) -> None:
    repo.git("worktree", "lock", "--reason", "mine", str(cwd))


def _no_longer_a_worktree(repo: Repository, cwd: Path) -> None:
    (cwd / ".git").unlink()


def _removed_by_itself(repo: Repository, cwd: Path) -> None:
    repo.git("worktree", "remove", str(cwd))


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (_uncommitted, "uncommitted: file"),
        (_staged, "uncommitted: file"),
        (_untracked, "uncommitted: new"),
        (_committed, "1 commit on no other branch"),
        (_committed_without_a_branch, "1 commit on no other branch"),
        (_locked, "mine"),
        (_no_longer_a_worktree, "it is no worktree any more"),
        (_merged_elsewhere, None),
        (_on_another_branch, None),
        (_tagged, None),
        (_pushed, None),
        (_ignored, None),
        (_undone, None),
        (_removed_by_itself, None),
    ],
)
def test_what_is_kept_and_what_is_removed(
    bench: Bench, repo: Repository, work: Callable[[Repository, Path], None], why: str | None
) -> None:
    base = repo.git("rev-parse", "HEAD")
    tree = Worktree(repo.common, str(bench.home / "worktrees/job-24"), "rota/job-24", base)
    cwd = bench.begin(base=base)
    work(repo, cwd)
    kept = remove_if_safe(tree)
    if why is None:
        assert kept is None
        assert not cwd.exists()
        assert "rota/job-24" not in repo.branches()
        assert repo.worktrees() == []
    else:
        assert kept is not None
        assert why in kept
        assert cwd.is_dir()
        assert "rota/job-24" in repo.branches()


def test_a_head_on_no_branch_is_a_base_like_any_other(bench: Bench, repo: Repository) -> None:
    repo.git("checkout", "-q", "--detach")
    repo.write("file", "x\n")
    cwd = bench.begin(base=repo.commit("on no branch"))
    bench.end()
    assert not cwd.exists(), "it is not the job that made the commit"


def test_one_that_is_gone_by_hand_leaves_no_entry_in_git(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = bench.begin(base=base)
    shutil.rmtree(cwd)
    assert remove_if_safe(Worktree(repo.common, str(cwd), "rota/job-24", base)) is None
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_a_repository_that_is_gone_removes_nothing(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = bench.begin(base=base)
    (repo.path / ".git").rename(repo.path / "elsewhere")
    kept = remove_if_safe(Worktree(repo.common, str(cwd), "rota/job-24", base))
    assert kept is not None
    assert cwd.is_dir()


def test_what_is_safe_from_an_earlier_start_makes_room(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    first = bench.begin(base=base)
    assert bench.begin(base=base) == first
    assert repo.branches() == ["main", "rota/job-24"]


def test_what_is_not_safe_keeps_its_name(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    first = bench.begin(base=base)
    _untracked(repo, first)
    second = bench.begin(base=base)
    assert second == bench.home / "worktrees" / "job-24.2"
    assert (first / "new").exists()
    assert not (second / "new").exists()
    assert repo.branches() == ["main", "rota/job-24", "rota/job-24.2"]
    assert bench.begin(base=base) == second, "that one was safe"


def test_a_directory_that_is_not_ours_is_left_alone(bench: Bench, repo: Repository) -> None:
    mine = bench.home / "worktrees" / "job-24"
    mine.mkdir(parents=True)
    (mine / "notes").write_text("x")
    assert bench.begin(base=repo.git("rev-parse", "HEAD")).name == "job-24.2"
    assert (mine / "notes").exists()


def test_a_base_that_is_gone_says_so_and_leaves_nothing(bench: Bench, repo: Repository) -> None:
    with pytest.raises(GitError, match=r"git worktree add: fatal: .*1234567890"):
        bench.begin(base="1234567890" * 4)
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_hooks_do_not_run(bench: Bench, repo: Repository, tmp_path: Path) -> None:
    hook = repo.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    bench.begin(base=repo.git("rev-parse", "HEAD"))
    assert not (tmp_path / "ran").exists()


def test_variables_of_a_hook_do_not_lead_astray(
    bench: Bench, repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repo.git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere/index"))
    cwd = bench.begin(base=base)
    bench.end()
    assert not cwd.exists()


# --- patches ---


def test_the_patch_in_place_is_against_the_state_at_the_start(bench: Bench, repo: Repository, tmp_path: Path) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    repo.git("add", "file")
    before = repo.state()
    assert bench.begin() == repo.path
    repo.write("below/deep", "the job's\n")
    repo.write("new", "the job's\n")
    bench.end()
    after = repo.state()
    assert after[:3] == before[:3], "neither objects nor index nor refs are touched"
    text = bench.patch.read_text()
    assert "+the job's" in text
    assert "-mine" in text
    assert "a/file" not in text, "that was so before"
    repo.git("apply", "--reverse", "--check", str(bench.patch))


def test_the_patch_in_place_has_what_was_committed(bench: Bench, repo: Repository) -> None:
    bench.begin(cwd=str(repo.path / "below"))
    repo.write("file", "committed\n")
    repo.commit("by the job")
    bench.end()
    assert "+committed" in bench.patch.read_text()


def test_no_patch_where_nothing_ran(bench: Bench, repo: Repository) -> None:
    bench.begin()
    repo.write("file", "somebody else's\n")
    bench.end(has_run=False)
    assert not bench.patch.exists()


def test_a_patch_of_an_earlier_start_is_not_taken_for_this_ones(bench: Bench, repo: Repository) -> None:
    bench.begin()
    repo.write("file", "x\n")
    bench.end()
    assert bench.patch.exists()
    bench.begin()
    bench.end()
    assert not bench.patch.exists()


def test_before_the_first_commit_all_is_new(tmp_path: Path, repo: Repository) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    repo.git("init", "-q", at=empty)
    (empty / "first").write_text("x\n")
    git, scratch = git_in(empty), Scratch(str(tmp_path / "scratch"))
    assert write_patch(git, scratch, str(tmp_path / "patch"), head_of(git), snapshot(git, scratch, "/nowhere")) > 0
    assert "b/first" in (tmp_path / "patch").read_text()


def test_a_home_inside_the_tree_is_not_part_of_it(repo: Repository) -> None:
    bench = Bench(repo, repo.path / ".rota")
    bench.begin()
    repo.write("file", "x\n")
    (bench.home / "rota.db").write_text("the record")
    bench.end()
    assert bench.patch.read_text().count("diff --git") == 1


def test_a_worktree_below_the_tree_it_is_of(repo: Repository) -> None:
    bench = Bench(repo, repo.path / ".rota")
    cwd = bench.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / ".git").unlink()
    repo.write("file", "x\n")  # seen from `cwd` the repository is now the one around it
    with pytest.raises(GitError, match="is no working tree any more"):
        bench.end()
    assert cwd.is_dir()
    assert bench.place["kept"].startswith("its patch could not be taken")


def test_settings_of_the_user_do_not_spoil_the_patch(bench: Bench, repo: Repository) -> None:
    for name, value in (
        ("diff.noprefix", "true"), ("diff.external", "false"), ("color.ui", "always"), ("diff.context", "0"),
        ("core.fsmonitor", "false"), ("diff.renames", "copies"), ("status.showUntrackedFiles", "no"),
    ):  # fmt: skip
        repo.git("config", name, value)
    cwd = bench.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / "file").rename(cwd / "renamed")
    bench.end()
    repo.git("apply", "--check", str(bench.patch))
    assert bench.place["kept"] == "uncommitted: file, renamed"


def test_a_submodule_is_a_commit_and_its_changes_are_kept(bench: Bench, repo: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    allow = ("-c", "protocol.file.allow=always")
    repo.git(*allow, "submodule", "--quiet", "add", str(other.path), "module")
    base = repo.commit("module")
    cwd = bench.begin(base=base)
    repo.git(*allow, "submodule", "--quiet", "update", "--init", at=cwd)
    (cwd / "module" / "file").write_text("changed inside\n")
    bench.end()
    assert bench.place["kept"] == "uncommitted: module"
    assert (cwd / "module" / "file").read_text() == "changed inside\n"


def test_only_what_is_checked_out_of_a_sparse_tree(bench: Bench, repo: Repository) -> None:
    repo.git("sparse-checkout", "set", "--no-cone", "/file")
    assert not (repo.path / "below").exists()
    bench.begin()
    repo.write("file", "x\n")
    bench.end()
    text = bench.patch.read_text()
    assert text.count("diff --git") == 1
    assert "a/file" in text


# --- what it begins with ---


def test_what_was_not_committed_goes_along_and_counts_as_the_start(
    bench: Bench, repo: Repository, tmp_path: Path
) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    (repo.path / "below/deep").unlink()
    before = repo.state()
    digest = take_input(git_in(repo.path), str(bench.home), most=1 << 20)
    assert repo.state() == before
    cwd = bench.begin(base=base, input=path_of(str(bench.home), digest))
    assert (cwd / "file").read_text() == "one\ntwo\nmine\n"
    assert (cwd / "new").read_text() == "mine\n"
    assert not (cwd / "below/deep").exists()
    repo.write("new", "mine\nthe job's\n", at=cwd)
    bench.end()
    assert bench.patch.read_text().count("diff --git") == 1, "against the state after applying"
    repo.apply(bench.directory / "input.patch", base, tmp_path / "clean")
    repo.git("apply", str(bench.patch), at=tmp_path / "clean")
    assert (tmp_path / "clean/new").read_text() == "mine\nthe job's\n"


def test_what_was_given_along_and_not_touched_keeps_no_worktree(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "mine\n")
    repo.write("new", "mine\n")
    given = path_of(str(bench.home), take_input(git_in(repo.path), str(bench.home), most=1 << 20))
    cwd = bench.begin(base=base, input=given)
    bench.end()
    assert not cwd.exists()
    assert not bench.patch.exists()
    cwd = bench.begin(base=base, input=given)
    repo.git("commit", "-qam", "what was given", at=cwd)
    bench.end()
    assert cwd.exists(), "the commit is the job's"


def test_nothing_uncommitted_is_an_empty_patch(bench: Bench, repo: Repository) -> None:
    given = path_of(str(bench.home), take_input(git_in(repo.path), str(bench.home), most=1 << 20))
    bench.begin(base=repo.git("rev-parse", "HEAD"), input=given)
    assert (bench.directory / "input.patch").read_bytes() == b""


def test_a_job_that_spoils_its_patch_spoils_only_its_own(bench: Bench, repo: Repository) -> None:
    repo.write("file", "mine\n")
    given = Path(path_of(str(bench.home), take_input(git_in(repo.path), str(bench.home), most=1 << 20)))
    text = given.read_text()
    bench.begin(input=str(given))
    (bench.directory / "input.patch").write_text("spoiled")
    assert given.read_text() == text


def test_a_patch_that_does_not_fit_the_base_says_so_and_leaves_nothing(bench: Bench, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "other\nlines\n")
    repo.commit("later")
    repo.write("file", "other\nlines\nmine\n")
    given = path_of(str(bench.home), take_input(git_in(repo.path), str(bench.home), most=1 << 20))
    with pytest.raises(GitError, match="git apply: error: patch failed: file"):
        bench.begin(base=base, input=given)
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_a_patch_that_is_too_large_leaves_nothing(bench: Bench, repo: Repository) -> None:
    repo.write("new", "x" * 200_000)
    with pytest.raises(TooLarge):
        take_input(git_in(repo.path), str(bench.home), most=100_000)
    assert list((bench.home / "patches").iterdir()) == []
    assert take_input(git_in(repo.path), str(bench.home), most=300_000)


def test_git_that_hangs_ends_at_the_deadline_with_what_it_started(repo: Repository, tmp_path: Path) -> None:
    repo.git("config", "filter.slow.clean", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    repo.write(".gitattributes", "file filter=slow\n")
    repo.write("file", "changed\n")
    before = time.monotonic()
    with pytest.raises(GitError, match="git add did not end in time"):
        git_in(repo.path, 0.5)("add", "--all")
    assert time.monotonic() - before < 10
    assert ends_within(int((tmp_path / "pid").read_text()))


def test_git_that_is_not_there(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GitError, match="git is not installed"):
        git_in(repo.path)("status")


def test_two_at_once_in_one_repository(repo: Repository, tmp_path: Path) -> None:
    base = repo.git("rev-parse", "HEAD")

    def one(number: int) -> str:
        return make(git_in(repo.common), str(tmp_path / "worktrees"), f"job-{number}", base, None).path

    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(one, range(1, 9)))
    assert sorted(repo.worktrees()) == sorted(paths)
