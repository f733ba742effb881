"""Discovery of the repository, working tree and branch around a directory, compared with git itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.kernel.facts import BranchFile, BranchHead
from rota.probe.local import LocalProbe
from tests.probe.rig import GitTree, create_repository, git, run_git


def add_linked_worktree(tree: GitTree, tmp_path: Path) -> Path:
    tree.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    return tmp_path / "side"


def create_subfolder(tree: GitTree, tmp_path: Path) -> Path:
    (tree.path / "src/deep").mkdir(parents=True)
    return tree.path / "src/deep"


def create_folder_in_linked_worktree(tree: GitTree, tmp_path: Path) -> Path:
    path = add_linked_worktree(tree, tmp_path) / "src"
    path.mkdir()
    return path


def add_submodule(tree: GitTree, tmp_path: Path) -> Path:
    other = create_repository(
        tmp_path / "other", *(["--object-format=sha256"] if len(tree.git("rev-parse", "HEAD")) == 64 else [])
    )
    other.commit("x")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "module")
    return tree.path / "module"


def separate_git_directory(tree: GitTree, tmp_path: Path) -> Path:
    tree.git("init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere.git"))
    return tree.path


def link_to_subfolder(tree: GitTree, tmp_path: Path) -> Path:
    (tmp_path / "link").symlink_to(create_subfolder(tree, tmp_path))
    return tmp_path / "link"


def replace_git_directory_with_link(tree: GitTree, tmp_path: Path) -> Path:
    (tree.path / ".git").rename(tmp_path / "moved")
    (tree.path / ".git").symlink_to(tmp_path / "moved")
    return tree.path


def detach_head(tree: GitTree, tmp_path: Path) -> Path:
    tree.git("checkout", "-q", "--detach")
    return tree.path


def check_out_unborn_branch(tree: GitTree, tmp_path: Path) -> Path:
    tree.git("checkout", "-q", "--orphan", "größe/new")
    return tree.path


def clone_bare(tree: GitTree, tmp_path: Path) -> Path:
    tree.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    return tmp_path / "bare.git"


def find_folder_in_bare_clone(tree: GitTree, tmp_path: Path) -> Path:
    return clone_bare(tree, tmp_path) / "objects"


def add_worktree_of_bare_clone(tree: GitTree, tmp_path: Path) -> Path:
    git(clone_bare(tree, tmp_path), "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    return tmp_path / "side"


def hide_bare_clone_behind_git_file(tree: GitTree, tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    clone_bare(tree, tmp_path).rename(tmp_path / "desk/.bare")
    (tmp_path / "desk/.git").write_text("gitdir: ./.bare\n")
    return tmp_path / "desk"


def find_folder_in_git_directory(tree: GitTree, tmp_path: Path) -> Path:
    return tree.path / ".git/refs"


def create_subfolder_with_empty_git_directory(tree: GitTree, tmp_path: Path) -> Path:
    path = create_subfolder(tree, tmp_path)
    (path / ".git").mkdir()
    return path


WITH_WORKING_TREE = [
    add_linked_worktree,
    create_subfolder,
    create_folder_in_linked_worktree,
    add_submodule,
    separate_git_directory,
    link_to_subfolder,
    replace_git_directory_with_link,
    create_subfolder_with_empty_git_directory,
]
WITH_WORKING_TREE += [add_worktree_of_bare_clone, detach_head, check_out_unborn_branch]
WITHOUT_WORKING_TREE = [
    clone_bare,
    find_folder_in_bare_clone,
    find_folder_in_git_directory,
    hide_bare_clone_behind_git_file,
]


@pytest.mark.parametrize("arrange", WITH_WORKING_TREE, ids=lambda arrange: str(arrange.__name__))
def test_directory_in_working_tree(
    probe: LocalProbe, any_repository: GitTree, tmp_path: Path, arrange: Callable[[GitTree, Path], Path]
) -> None:
    path = arrange(any_repository, tmp_path)
    common = git(path, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert probe.find_repository(str(path)) == os.path.realpath(common)
    assert probe.find_worktree_root(str(path)) == git(path, "rev-parse", "--show-toplevel")
    assert probe.current_branch(str(path)) == (git(path, "branch", "--show-current") or None)


@pytest.mark.parametrize("arrange", WITHOUT_WORKING_TREE, ids=lambda arrange: str(arrange.__name__))
def test_directory_without_working_tree(
    probe: LocalProbe, any_repository: GitTree, tmp_path: Path, arrange: Callable[[GitTree, Path], Path]
) -> None:
    path = arrange(any_repository, tmp_path)
    common = git(path, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert probe.find_repository(str(path)) == os.path.realpath(common)
    assert probe.find_worktree_root(str(path)) is None
    assert run_git(path, "rev-parse", "--show-toplevel").returncode != 0


def test_linked_working_trees_share_the_repository(probe: LocalProbe, any_repository: GitTree, tmp_path: Path) -> None:
    side = add_linked_worktree(any_repository, tmp_path)
    assert probe.find_repository(str(side)) == probe.find_repository(str(any_repository.path)) is not None
    assert (probe.current_branch(str(any_repository.path)), probe.current_branch(str(side))) == ("main", "side")


def test_bare_repository_has_no_current_branch(probe: LocalProbe, any_repository: GitTree, tmp_path: Path) -> None:
    assert probe.current_branch(str(clone_bare(any_repository, tmp_path))) is None


def test_missing_directory_belongs_to_the_repository_around_it(probe: LocalProbe, repository: GitTree) -> None:
    for path in ("new/deep", "README.md", "README.md/below"):
        directory = str(repository.path / path)
        assert probe.find_repository(directory) == repository.common, path
        assert probe.find_worktree_root(directory) == str(repository.path)
        assert probe.current_branch(directory) == "main"


@pytest.mark.parametrize("directory", ["", "nowhere/near", "a\0b", "x" * 5000])
def test_no_repository(probe: LocalProbe, tmp_path: Path, directory: str) -> None:
    path = f"{tmp_path}/{directory}"
    assert probe.find_repository(path) is probe.find_worktree_root(path) is probe.current_branch(path) is None


@pytest.mark.parametrize("content", ["gitdir: /nowhere\n", "nonsense", "", "gitdir: .\n", "gitdir: \n"])
def test_invalid_git_file_ends_discovery(probe: LocalProbe, repository: GitTree, content: str) -> None:
    path = create_subfolder(repository, repository.path)
    (path / ".git").write_text(content)
    assert run_git(path, "rev-parse", "--git-dir").returncode != 0
    assert probe.find_repository(str(path)) is None


def test_folder_with_invalid_head_is_not_a_repository(probe: LocalProbe, repository: GitTree, tmp_path: Path) -> None:
    path = create_subfolder(repository, tmp_path)
    (path / "HEAD").write_text("of the department")
    (path / "objects").mkdir()
    (path / "refs").mkdir()
    assert GitTree(path).common == probe.find_repository(str(path)) == repository.common


def test_discovery_stops_at_file_system_boundary(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = create_subfolder(repository, tmp_path)
    real_stat = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        status = real_stat(path, **options)
        is_mounted = str(path).startswith(str(mounted))
        return os.stat_result((*status[:2], status.st_dev + is_mounted, *status[3:10]))

    monkeypatch.setattr(os, "stat", stat)
    assert probe.find_repository(str(repository.path / "src")) == str(repository.path / ".git")
    assert probe.find_repository(str(mounted)) is None


def test_core_worktree_is_respected(probe: LocalProbe, repository: GitTree, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    repository.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    assert probe.find_worktree_root(str(repository.path)) == str(tmp_path / "elsewhere")


def test_git_environment_variables_are_ignored(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = create_repository(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(repository.path))
    assert probe.find_repository(str(repository.path)) == repository.common
    assert probe.find_worktree_root(str(repository.path)) == str(repository.path)
    oid = repository.git("rev-parse", "main")
    assert probe.resolve_commit(repository.common, oid) == oid
    assert probe.observe([BranchFile(repository.common, "main", "README.md")]) == {
        BranchFile(repository.common, "main", "README.md"): True
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of files")
def test_repository_of_another_user_is_read(probe: LocalProbe, any_repository: GitTree) -> None:
    for folder, _, files in os.walk(any_repository.path):
        for path in [folder, *(f"{folder}/{name}" for name in files)]:
            os.chown(path, 65534, 65534)
    common = str(any_repository.path / ".git")
    assert "dubious ownership" in run_git(any_repository.path, "rev-parse", "HEAD").stderr
    assert probe.find_repository(str(any_repository.path)) == common
    assert probe.find_worktree_root(str(any_repository.path)) == str(any_repository.path)
    assert probe.current_branch(str(any_repository.path)) == "main"
    oid = probe.observe([BranchHead(common, "main")])[BranchHead(common, "main")]
    assert isinstance(oid, str)
    assert probe.resolve_commit(common, oid[:8]) == oid
    assert probe.observe([BranchFile(common, "main", "README.md")]) == {BranchFile(common, "main", "README.md"): True}


def test_broken_user_settings_are_ignored(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[nonsense")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    assert probe.find_worktree_root(str(repository.path)) == str(repository.path)


class TestResolve:
    def test_full_and_abbreviated_ids(self, probe: LocalProbe, any_repository: GitTree) -> None:
        oid = any_repository.git("rev-parse", "main")
        assert (
            probe.resolve_commit(any_repository.common, oid)
            == probe.resolve_commit(any_repository.common, oid[:7])
            == oid
        )
        assert probe.resolve_commit(any_repository.common, oid[:9].upper()) == oid
        any_repository.git("gc", "-q")
        assert probe.resolve_commit(any_repository.common, oid[:7]) == oid

    def test_new_commit_of_another_process_is_found(self, probe: LocalProbe, any_repository: GitTree) -> None:
        for oid in any_repository.commits(3):
            assert probe.resolve_commit(any_repository.common, oid[:12]) == oid

    def test_only_commits_count(self, probe: LocalProbe, any_repository: GitTree) -> None:
        assert probe.resolve_commit(any_repository.common, any_repository.git("rev-parse", "main^{tree}")) is None
        assert probe.resolve_commit(any_repository.common, any_repository.git("rev-parse", "main:README.md")) is None
        any_repository.git("tag", "-a", "-m", "tag", "v1")
        assert probe.resolve_commit(
            any_repository.common, any_repository.git("rev-parse", "refs/tags/v1")
        ) == any_repository.git("rev-parse", "main")

    def test_branch_named_like_an_id_is_ignored(self, probe: LocalProbe, any_repository: GitTree) -> None:
        first = any_repository.git("rev-parse", "main")
        second = any_repository.commit()
        any_repository.git("update-ref", f"refs/heads/{first[:7]}", second)
        assert probe.resolve_commit(any_repository.common, first[:7]) == first
        any_repository.git("update-ref", "refs/heads/beef", second)
        assert probe.resolve_commit(any_repository.common, "beef") is None

    @pytest.mark.parametrize(
        "rev", ["", "abc", "main", "HEAD", "HEAD~1", "--all", "0" * 40, "0" * 64, "f" * 65, "12 34"]
    )
    def test_unknown_revision_is_not_resolved(self, probe: LocalProbe, any_repository: GitTree, rev: str) -> None:
        assert probe.resolve_commit(any_repository.common, rev) is None

    def test_ambiguous_id_is_not_resolved(self, probe: LocalProbe, repository: GitTree) -> None:
        """Create commits in batches of 300 until two ids share their first four digits."""
        oids: set[str] = set()
        while len({oid[:4] for oid in oids}) == len(oids):
            line = "commit refs/heads/x\ncommitter A <a@example.org> {} +0000\ndata 0\n\n"
            start = len(oids)
            repository.git(
                "fast-import", "--quiet", "--force", stdin="".join(line.format(start + n) for n in range(300))
            )
            oids |= set(repository.git("rev-list", "x").split())
        shared = next(oid for oid in oids if sum(other[:4] == oid[:4] for other in oids) > 1)
        assert probe.resolve_commit(repository.common, shared[:4]) is None
        assert probe.resolve_commit(repository.common, shared) == shared

    def test_no_repository(self, probe: LocalProbe, tmp_path: Path) -> None:
        assert probe.resolve_commit(str(tmp_path / "gone"), "0" * 40) is None


class TestMerge:
    """Two branches that change the same line."""

    @pytest.fixture(autouse=True)
    def conflict(self, any_repository: GitTree) -> None:
        any_repository.git("checkout", "-q", "-b", "theirs")
        (any_repository.path / "README.md").write_text("theirs")
        any_repository.git("commit", "-q", "-a", "-m", "theirs")
        any_repository.git("checkout", "-q", "main")
        (any_repository.path / "README.md").write_text("ours")
        any_repository.git("commit", "-q", "-a", "-m", "ours")

    @pytest.mark.parametrize("verb", ["merge", "cherry-pick", "rebase"])
    def test_operation_in_main_working_tree(self, probe: LocalProbe, any_repository: GitTree, verb: str) -> None:
        assert not probe.has_merge_in_progress(any_repository.common)
        assert run_git(any_repository.path, verb, "theirs").returncode == 1
        assert probe.has_merge_in_progress(any_repository.common)
        any_repository.git(verb, "--abort")
        assert not probe.has_merge_in_progress(any_repository.common)

    def test_revert_in_progress(self, probe: LocalProbe, any_repository: GitTree) -> None:
        any_repository.git("revert", "--no-commit", "main")
        assert probe.has_merge_in_progress(any_repository.common)
        any_repository.commit()
        assert not probe.has_merge_in_progress(any_repository.common)

    def test_merge_in_linked_working_tree(self, probe: LocalProbe, any_repository: GitTree, tmp_path: Path) -> None:
        side = add_linked_worktree(any_repository, tmp_path)
        assert not probe.has_merge_in_progress(any_repository.common)
        assert run_git(side, "merge", "theirs").returncode == 1
        assert probe.has_merge_in_progress(any_repository.common)

    def test_removed_working_tree_has_no_merge_in_progress(
        self, probe: LocalProbe, any_repository: GitTree, tmp_path: Path
    ) -> None:
        side = add_linked_worktree(any_repository, tmp_path)
        assert run_git(side, "merge", "theirs").returncode == 1
        shutil.rmtree(side)
        assert not probe.has_merge_in_progress(any_repository.common)

    def test_merge_in_missing_locked_working_tree_counts(
        self, probe: LocalProbe, any_repository: GitTree, tmp_path: Path
    ) -> None:
        side = add_linked_worktree(any_repository, tmp_path)
        assert run_git(side, "merge", "theirs").returncode == 1
        any_repository.git("worktree", "lock", str(side))
        side.rename(tmp_path / "away")
        assert probe.has_merge_in_progress(any_repository.common)

    def test_no_repository(self, probe: LocalProbe, tmp_path: Path) -> None:
        assert not probe.has_merge_in_progress(str(tmp_path / "gone"))
