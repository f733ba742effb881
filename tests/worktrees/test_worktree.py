"""Worktrees and patches, tested as functions on real repositories."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rota.worktrees import record
from rota.worktrees.__main__ import begin, end
from rota.worktrees.git import Git, GitError, GitOutputTooLarge
from rota.worktrees.patches import ScratchDirectory, capture_input, head_commit, patch_path, snapshot, write_patch
from rota.worktrees.record import WorkspaceOrder
from rota.worktrees.worktree import Worktree, make_worktree, remove_if_safe
from tests.repository import IDENTITY, Repository
from tests.supervisor.rig import ends_within

LIMIT = 30.0
ALLOW_LOCAL_SUBMODULES = ("-c", "protocol.file.allow=always")


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IDENTITY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repo")


def git_in(path: Path | str, seconds: float = LIMIT) -> Git:
    return Git(str(path), time.monotonic() + seconds)


class WorkspaceRig:
    """Workspace orders of one job, and their results."""

    def __init__(self, repo: Repository, home: Path) -> None:
        self.repo = repo
        self.home = home
        self.directory = home / "jobs" / "24"
        self.directory.mkdir(parents=True, exist_ok=True)

    def make_order(self, *, base: str | None = None, **fields: object) -> WorkspaceOrder:
        options = {"needs_patch": True, "input_patch": None, "subdirectory": "", "cwd": str(self.repo.path), **fields}
        return WorkspaceOrder(
            home=str(self.home),
            job="job-24",
            directory=str(self.directory),
            repository=self.repo.common,
            base=base,
            limit=LIMIT,
            **options,  # type: ignore[arg-type]
        )

    def begin(self, **fields: object) -> Path:
        """Begin the workspace and return the job's working directory."""
        self.last_order = self.make_order(**fields)  # type: ignore[arg-type]
        begin(self.last_order)
        return Path(self.record["cwd"])

    def end(self, *, has_run: bool = True) -> None:
        end(self.last_order, self.record, has_run=has_run)

    @property
    def record(self) -> dict[str, Any]:
        content = record.read(str(self.directory))
        assert content is not None
        return content

    @property
    def patch(self) -> Path:
        return self.directory / "command.patch"


@pytest.fixture
def rig(repo: Repository, tmp_path: Path) -> WorkspaceRig:
    return WorkspaceRig(repo, tmp_path / "home")


# --- worktrees ---


def test_worktree_has_its_own_branch_at_the_base(rig: WorkspaceRig, repo: Repository) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.write("file", "later\n")
    repo.commit("later")
    cwd = rig.begin(base=first, subdirectory="below")
    assert cwd == rig.home / "worktrees" / "job-24" / "below"
    assert (cwd / "deep").read_text() == "deep\n"
    assert (cwd / "../file").read_text() == "one\ntwo\n"
    assert repo.git("symbolic-ref", "--short", "HEAD", at=cwd) == "rota/job-24"
    assert repo.git("rev-parse", "HEAD", at=cwd) == first


def test_unchanged_worktree_is_removed(rig: WorkspaceRig, repo: Repository) -> None:
    cwd = rig.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / "built.ignored").write_text("x")
    rig.end()
    assert not cwd.exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])
    assert not rig.patch.exists(), "there is no patch without changes"
    assert (rig.record["is_removed"], rig.record["kept_reason"]) == (True, None)
    assert not (rig.directory / "workspace.tmp").exists()


def test_patch_has_commits_changes_and_new_files_but_no_ignored_files(
    rig: WorkspaceRig, repo: Repository, tmp_path: Path
) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = rig.begin(base=base)
    repo.write("file", "one\n2\n", at=cwd)
    repo.commit("mine", at=cwd)
    repo.write("below/deep", "deeper\n", at=cwd)
    (cwd / "binary").write_bytes(bytes(range(256)) * 8)
    (cwd / "name with spaces and ü").write_text("x\n")
    (cwd / "built.ignored").write_text("x")
    (cwd / ".gitignore").unlink()
    repo.git("checkout", "-q", "HEAD", "--", ".gitignore", at=cwd)
    rig.end()
    clean = tmp_path / "clean"
    repo.apply(rig.patch, base, clean)
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


def _committed_on_detached_head(repo: Repository, cwd: Path) -> None:
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


def _git_file_deleted(repo: Repository, cwd: Path) -> None:
    (cwd / ".git").unlink()


def _removed_by_the_job(repo: Repository, cwd: Path) -> None:
    repo.git("worktree", "remove", str(cwd))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (_uncommitted, "uncommitted: file"),
        (_staged, "uncommitted: file"),
        (_untracked, "uncommitted: new"),
        (_committed, "1 commit on no other branch"),
        (_committed_on_detached_head, "1 commit on no other branch"),
        (_locked, "mine"),
        (_git_file_deleted, "it is not a worktree anymore"),
        (_merged_elsewhere, None),
        (_on_another_branch, None),
        (_tagged, None),
        (_pushed, None),
        (_ignored, None),
        (_undone, None),
        (_removed_by_the_job, None),
    ],
)
def test_worktree_is_removed_only_if_safe(
    rig: WorkspaceRig, repo: Repository, work: Callable[[Repository, Path], None], reason: str | None
) -> None:
    base = repo.git("rev-parse", "HEAD")
    tree = Worktree(repo.common, str(rig.home / "worktrees/job-24"), "rota/job-24", base)
    cwd = rig.begin(base=base)
    work(repo, cwd)
    kept = remove_if_safe(tree)
    if reason is None:
        assert kept is None
        assert not cwd.exists()
        assert "rota/job-24" not in repo.branches()
        assert repo.worktrees() == []
    else:
        assert kept is not None
        assert reason in kept
        assert cwd.is_dir()
        assert "rota/job-24" in repo.branches()


def test_detached_head_is_a_valid_base(rig: WorkspaceRig, repo: Repository) -> None:
    repo.git("checkout", "-q", "--detach")
    repo.write("file", "x\n")
    cwd = rig.begin(base=repo.commit("detached"))
    rig.end()
    assert not cwd.exists(), "the commit is not the job's"


def test_manually_deleted_worktree_is_unregistered(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = rig.begin(base=base)
    shutil.rmtree(cwd)
    assert remove_if_safe(Worktree(repo.common, str(cwd), "rota/job-24", base)) is None
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_missing_repository_keeps_the_worktree(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    cwd = rig.begin(base=base)
    (repo.path / ".git").rename(repo.path / "elsewhere")
    kept = remove_if_safe(Worktree(repo.common, str(cwd), "rota/job-24", base))
    assert kept is not None
    assert cwd.is_dir()


def test_safe_worktree_of_an_earlier_start_is_replaced(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    first = rig.begin(base=base)
    assert rig.begin(base=base) == first
    assert repo.branches() == ["main", "rota/job-24"]


def test_unsafe_worktree_keeps_its_name(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    first = rig.begin(base=base)
    _untracked(repo, first)
    second = rig.begin(base=base)
    assert second == rig.home / "worktrees" / "job-24.2"
    assert (first / "new").exists()
    assert not (second / "new").exists()
    assert repo.branches() == ["main", "rota/job-24", "rota/job-24.2"]
    assert rig.begin(base=base) == second, "the second one was safe to remove"


def test_foreign_directory_is_left_alone(rig: WorkspaceRig, repo: Repository) -> None:
    foreign = rig.home / "worktrees" / "job-24"
    foreign.mkdir(parents=True)
    (foreign / "notes").write_text("x")
    assert rig.begin(base=repo.git("rev-parse", "HEAD")).name == "job-24.2"
    assert (foreign / "notes").exists()


def test_missing_base_fails_without_leftovers(rig: WorkspaceRig, repo: Repository) -> None:
    with pytest.raises(GitError, match=r"git worktree add: fatal: .*1234567890"):
        rig.begin(base="1234567890" * 4)
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_hooks_do_not_run(rig: WorkspaceRig, repo: Repository, tmp_path: Path) -> None:
    hook = repo.path / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    rig.begin(base=repo.git("rev-parse", "HEAD"))
    assert not (tmp_path / "ran").exists()


def test_git_variables_of_a_hook_are_ignored(
    rig: WorkspaceRig, repo: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repo.git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "nowhere/index"))
    cwd = rig.begin(base=base)
    rig.end()
    assert not cwd.exists()


# --- patches ---


def test_patch_in_place_is_relative_to_the_start(rig: WorkspaceRig, repo: Repository, tmp_path: Path) -> None:
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    repo.git("add", "file")
    before = repo.state()
    assert rig.begin() == repo.path
    repo.write("below/deep", "the job's\n")
    repo.write("new", "the job's\n")
    rig.end()
    after = repo.state()
    assert after[:3] == before[:3], "objects, index and refs are unchanged"
    text = rig.patch.read_text()
    assert "+the job's" in text
    assert "-mine" in text
    assert "a/file" not in text, "it was changed before the start"
    repo.git("apply", "--reverse", "--check", str(rig.patch))


def test_patch_in_place_includes_commits(rig: WorkspaceRig, repo: Repository) -> None:
    rig.begin(cwd=str(repo.path / "below"))
    repo.write("file", "committed\n")
    repo.commit("by the job")
    rig.end()
    assert "+committed" in rig.patch.read_text()


def test_no_patch_if_the_command_did_not_run(rig: WorkspaceRig, repo: Repository) -> None:
    rig.begin()
    repo.write("file", "another change\n")
    rig.end(has_run=False)
    assert not rig.patch.exists()


def test_patch_of_an_earlier_start_is_removed(rig: WorkspaceRig, repo: Repository) -> None:
    rig.begin()
    repo.write("file", "x\n")
    rig.end()
    assert rig.patch.exists()
    rig.begin()
    rig.end()
    assert not rig.patch.exists()


def test_repository_without_commits_yields_a_full_patch(tmp_path: Path, repo: Repository) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    repo.git("init", "-q", at=empty)
    (empty / "first").write_text("x\n")
    git, scratch = git_in(empty), ScratchDirectory(str(tmp_path / "scratch"))
    assert write_patch(git, scratch, str(tmp_path / "patch"), head_commit(git), snapshot(git, scratch, "/nowhere")) > 0
    assert "b/first" in (tmp_path / "patch").read_text()


def test_home_inside_the_working_tree_is_excluded(repo: Repository) -> None:
    rig = WorkspaceRig(repo, repo.path / ".rota")
    rig.begin()
    repo.write("file", "x\n")
    (rig.home / "rota.db").write_text("the record")
    rig.end()
    assert rig.patch.read_text().count("diff --git") == 1


def test_broken_worktree_below_its_repository_is_kept(repo: Repository) -> None:
    rig = WorkspaceRig(repo, repo.path / ".rota")
    cwd = rig.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / ".git").unlink()
    repo.write("file", "x\n")  # from `cwd`, git finds the enclosing repository
    with pytest.raises(GitError, match="is not a working tree anymore"):
        rig.end()
    assert cwd.is_dir()
    assert rig.record["kept_reason"].startswith("its patch could not be created")


def test_git_settings_of_the_user_do_not_affect_the_patch(rig: WorkspaceRig, repo: Repository) -> None:
    for name, value in (
        ("diff.noprefix", "true"),
        ("diff.external", "false"),
        ("color.ui", "always"),
        ("diff.context", "0"),
        ("core.fsmonitor", "false"),
        ("diff.renames", "copies"),
        ("status.showUntrackedFiles", "no"),
    ):
        repo.git("config", name, value)
    cwd = rig.begin(base=repo.git("rev-parse", "HEAD"))
    (cwd / "file").rename(cwd / "renamed")
    rig.end()
    repo.git("apply", "--check", str(rig.patch))
    assert rig.record["kept_reason"] == "uncommitted: file, renamed"


def test_changes_in_a_submodule_keep_the_worktree(rig: WorkspaceRig, repo: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "add", str(other.path), "module")
    base = repo.commit("module")
    cwd = rig.begin(base=base)
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "update", "--init", at=cwd)
    (cwd / "module" / "file").write_text("changed inside\n")
    rig.end()
    assert rig.record["kept_reason"] == "uncommitted: module"
    assert (cwd / "module" / "file").read_text() == "changed inside\n"


def test_sparse_checkout_yields_a_sparse_patch(rig: WorkspaceRig, repo: Repository) -> None:
    repo.git("sparse-checkout", "set", "--no-cone", "/file")
    assert not (repo.path / "below").exists()
    rig.begin()
    repo.write("file", "x\n")
    rig.end()
    text = rig.patch.read_text()
    assert text.count("diff --git") == 1
    assert "a/file" in text


# --- submodules ---


@pytest.fixture
def worktree_with_submodules(rig: WorkspaceRig, repo: Repository, tmp_path: Path) -> Path:
    """Worktree in which the job has initialized the submodules `lib` and, inside that, `lib/deep`."""
    deep, lib = Repository(tmp_path / "deep"), Repository(tmp_path / "lib")
    lib.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "add", str(deep.path), "deep")
    lib.commit("deep")
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "add", str(lib.path), "lib")
    cwd = rig.begin(base=repo.commit("lib"))
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "update", "--init", "--recursive", at=cwd)
    assert (cwd / "lib/deep/file").is_file()
    return cwd


def _nothing(_repo: Repository, _cwd: Path) -> None:
    return


def _deinitialize(repo: Repository, cwd: Path) -> None:
    repo.git("submodule", "--quiet", "deinit", "--all", at=cwd)


def _push(repo: Repository, cwd: Path) -> None:
    repo.commit_file("mine", at=cwd / "lib")
    repo.git("push", "--quiet", "origin", "HEAD:refs/heads/mine", at=cwd / "lib")
    repo.git("checkout", "--quiet", "--detach", "HEAD~", at=cwd / "lib")


def _remove_by_hand(_repo: Repository, cwd: Path) -> None:
    shutil.rmtree(cwd)


@pytest.mark.parametrize("work", [_nothing, _deinitialize, _push, _remove_by_hand])
def test_worktree_with_clean_submodules_is_removed(
    rig: WorkspaceRig, repo: Repository, worktree_with_submodules: Path, work: Callable[[Repository, Path], None]
) -> None:
    work(repo, worktree_with_submodules)
    tree = record.read_worktree(str(rig.directory))
    assert tree is not None
    assert remove_if_safe(tree) is None
    assert not worktree_with_submodules.exists()
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def _commit_and_step_back(repo: Repository, cwd: Path) -> None:
    repo.commit_file("mine", at=cwd)
    repo.git("branch", "mine", at=cwd)
    repo.git("checkout", "--quiet", "--detach", "HEAD~", at=cwd)


def _commit_in_submodule(repo: Repository, cwd: Path) -> None:
    _commit_and_step_back(repo, cwd / "lib")


def _commit_in_nested_submodule(repo: Repository, cwd: Path) -> None:
    _commit_and_step_back(repo, cwd / "lib/deep")


def _commit_and_deinitialize(repo: Repository, cwd: Path) -> None:
    _commit_in_nested_submodule(repo, cwd)
    _deinitialize(repo, cwd)


def _commit_and_remove_by_hand(repo: Repository, cwd: Path) -> None:
    _commit_in_submodule(repo, cwd)
    shutil.rmtree(cwd)


def _stash(repo: Repository, cwd: Path) -> None:
    repo.write("file", "stashed\n", at=cwd / "lib")
    repo.git("stash", "--quiet", at=cwd / "lib")


def _tag(repo: Repository, cwd: Path) -> None:
    repo.commit_file("mine", at=cwd / "lib")
    repo.git("tag", "mine", at=cwd / "lib")
    repo.git("checkout", "--quiet", "--detach", "HEAD~", at=cwd / "lib")


def _write_in_nested_submodule(repo: Repository, cwd: Path) -> None:
    repo.write("new", "mine\n", at=cwd / "lib/deep")


def _write_unseen_by_status(repo: Repository, cwd: Path) -> None:
    repo.git("config", "status.showUntrackedFiles", "no", at=cwd / "lib")
    repo.write("new", "mine\n", at=cwd / "lib")


def _commit_in_embedded_repository(repo: Repository, cwd: Path) -> None:
    repo.git("submodule", "--quiet", "deinit", "--all", "--force", at=cwd)
    admin = Path(repo.git("rev-parse", "--absolute-git-dir", at=cwd))
    shutil.rmtree(admin / "modules")
    repo.git("clone", "--quiet", repo.git("config", "-f", ".gitmodules", "submodule.lib.url", at=cwd), "lib", at=cwd)
    _commit_in_submodule(repo, cwd)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (_commit_in_submodule, "1 commit of submodule lib on no remote branch"),
        (_commit_in_nested_submodule, "1 commit of submodule lib/deep on no remote branch"),
        (_commit_and_deinitialize, "1 commit of submodule lib/deep on no remote branch"),
        (_commit_and_remove_by_hand, "1 commit of submodule lib on no remote branch"),
        (_commit_in_embedded_repository, "1 commit of submodule lib on no remote branch"),
        (_stash, "2 commits of submodule lib on no remote branch"),
        (_tag, "1 commit of submodule lib on no remote branch"),
        (_write_in_nested_submodule, "uncommitted: lib"),
        (_write_unseen_by_status, "uncommitted in submodule lib: new"),
    ],
)
def test_worktree_with_work_in_submodules_is_kept(
    rig: WorkspaceRig,
    repo: Repository,
    worktree_with_submodules: Path,
    work: Callable[[Repository, Path], None],
    reason: str,
) -> None:
    work(repo, worktree_with_submodules)
    tree = record.read_worktree(str(rig.directory))
    assert tree is not None
    assert remove_if_safe(tree) == reason
    assert repo.worktrees() == [str(worktree_with_submodules)]


def test_unchanged_input_does_not_hide_work_in_a_submodule(rig: WorkspaceRig, repo: Repository, tmp_path: Path) -> None:
    lib = Repository(tmp_path / "lib")
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "add", str(lib.path), "lib")
    base = repo.commit("lib")
    repo.write("file", "mine\n")
    digest = capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20)
    cwd = rig.begin(base=base, input_patch=patch_path(str(rig.home), digest))
    repo.git(*ALLOW_LOCAL_SUBMODULES, "submodule", "--quiet", "update", "--init", at=cwd)
    repo.write("new", "the job's\n", at=cwd / "lib")
    rig.end()
    assert rig.record["kept_reason"] == "uncommitted in submodule lib: new"
    assert (cwd / "lib/new").exists()


# --- input patches ---


def test_input_patch_is_applied_and_excluded_from_the_command_patch(
    rig: WorkspaceRig, repo: Repository, tmp_path: Path
) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "one\ntwo\nmine\n")
    repo.write("new", "mine\n")
    (repo.path / "below/deep").unlink()
    before = repo.state()
    digest = capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20)
    assert repo.state() == before
    cwd = rig.begin(base=base, input_patch=patch_path(str(rig.home), digest))
    assert (cwd / "file").read_text() == "one\ntwo\nmine\n"
    assert (cwd / "new").read_text() == "mine\n"
    assert not (cwd / "below/deep").exists()
    repo.write("new", "mine\nthe job's\n", at=cwd)
    rig.end()
    assert rig.patch.read_text().count("diff --git") == 1, "relative to the state after applying"
    repo.apply(rig.directory / "input.patch", base, tmp_path / "clean")
    repo.git("apply", str(rig.patch), at=tmp_path / "clean")
    assert (tmp_path / "clean/new").read_text() == "mine\nthe job's\n"


def test_unchanged_input_does_not_keep_the_worktree(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "mine\n")
    repo.write("new", "mine\n")
    patch = patch_path(str(rig.home), capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20))
    cwd = rig.begin(base=base, input_patch=patch)
    rig.end()
    assert not cwd.exists()
    assert not rig.patch.exists()
    cwd = rig.begin(base=base, input_patch=patch)
    repo.git("commit", "-qam", "commit the input", at=cwd)
    rig.end()
    assert cwd.exists(), "the commit is the job's"


def test_clean_working_tree_yields_an_empty_input_patch(rig: WorkspaceRig, repo: Repository) -> None:
    patch = patch_path(str(rig.home), capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20))
    rig.begin(base=repo.git("rev-parse", "HEAD"), input_patch=patch)
    assert (rig.directory / "input.patch").read_bytes() == b""


def test_job_changes_only_its_own_copy_of_the_patch(rig: WorkspaceRig, repo: Repository) -> None:
    repo.write("file", "mine\n")
    patch = Path(patch_path(str(rig.home), capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20)))
    text = patch.read_text()
    rig.begin(input_patch=str(patch))
    (rig.directory / "input.patch").write_text("changed")
    assert patch.read_text() == text


def test_input_patch_that_does_not_apply_fails_without_leftovers(rig: WorkspaceRig, repo: Repository) -> None:
    base = repo.git("rev-parse", "HEAD")
    repo.write("file", "other\nlines\n")
    repo.commit("later")
    repo.write("file", "other\nlines\nmine\n")
    patch = patch_path(str(rig.home), capture_input(git_in(repo.path), str(rig.home), max_bytes=1 << 20))
    with pytest.raises(GitError, match="git apply: error: patch failed: file"):
        rig.begin(base=base, input_patch=patch)
    assert (repo.branches(), repo.worktrees()) == (["main"], [])


def test_too_large_input_patch_leaves_no_files(rig: WorkspaceRig, repo: Repository) -> None:
    repo.write("new", "x" * 200_000)
    with pytest.raises(GitOutputTooLarge):
        capture_input(git_in(repo.path), str(rig.home), max_bytes=100_000)
    assert list((rig.home / "patches").iterdir()) == []
    assert capture_input(git_in(repo.path), str(rig.home), max_bytes=300_000)


def test_hanging_git_is_killed_with_its_children_at_the_deadline(repo: Repository, tmp_path: Path) -> None:
    repo.git("config", "filter.slow.clean", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    repo.write(".gitattributes", "file filter=slow\n")
    repo.write("file", "changed\n")
    before = time.monotonic()
    with pytest.raises(GitError, match="git add timed out"):
        git_in(repo.path, 0.5)("add", "--all")
    assert time.monotonic() - before < 10
    assert ends_within(int((tmp_path / "pid").read_text()))


def test_missing_git_is_reported(repo: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GitError, match="git is not installed"):
        git_in(repo.path)("status")


def test_concurrent_worktrees_in_one_repository(repo: Repository, tmp_path: Path) -> None:
    base = repo.git("rev-parse", "HEAD")

    def make(number: int) -> str:
        return make_worktree(git_in(repo.common), str(tmp_path / "worktrees"), f"job-{number}", base, None).path

    with ThreadPoolExecutor(4) as threads:
        paths = list(threads.map(make, range(1, 9)))
    assert sorted(repo.worktrees()) == sorted(paths)
