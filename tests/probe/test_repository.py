"""Which repository, working tree and branch are around a directory. What git says is asked of git itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probe.rig import Tree, git, make, run
from rota.core.fact import Document, Head
from rota.probe.local import LocalProbe


def linked(tree: Tree, tmp_path: Path) -> Path:
    tree.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    return tmp_path / "side"


def below(tree: Tree, tmp_path: Path) -> Path:
    (tree.path / "src/deep").mkdir(parents=True)
    return tree.path / "src/deep"


def below_linked(tree: Tree, tmp_path: Path) -> Path:
    path = linked(tree, tmp_path) / "src"
    path.mkdir()
    return path


def submodule(tree: Tree, tmp_path: Path) -> Path:
    other = make(tmp_path / "other", *(["--object-format=sha256"] if len(tree.git("rev-parse", "HEAD")) == 64 else []))
    other.commit("x")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.path), "module")
    return tree.path / "module"


def separate(tree: Tree, tmp_path: Path) -> Path:
    tree.git("init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere.git"))
    return tree.path


def through_a_link(tree: Tree, tmp_path: Path) -> Path:
    (tmp_path / "link").symlink_to(below(tree, tmp_path))
    return tmp_path / "link"


def git_folder_is_a_link(tree: Tree, tmp_path: Path) -> Path:
    (tree.path / ".git").rename(tmp_path / "moved")
    (tree.path / ".git").symlink_to(tmp_path / "moved")
    return tree.path


def detached(tree: Tree, tmp_path: Path) -> Path:
    tree.git("checkout", "-q", "--detach")
    return tree.path


def unborn(tree: Tree, tmp_path: Path) -> Path:
    tree.git("checkout", "-q", "--orphan", "größe/new")
    return tree.path


def bare(tree: Tree, tmp_path: Path) -> Path:
    tree.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    return tmp_path / "bare.git"


def below_bare(tree: Tree, tmp_path: Path) -> Path:
    return bare(tree, tmp_path) / "objects"


def linked_to_bare(tree: Tree, tmp_path: Path) -> Path:
    git(bare(tree, tmp_path), "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    return tmp_path / "side"


def bare_behind_a_file(tree: Tree, tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    bare(tree, tmp_path).rename(tmp_path / "desk/.bare")
    (tmp_path / "desk/.git").write_text("gitdir: ./.bare\n")
    return tmp_path / "desk"


def inside_git_folder(tree: Tree, tmp_path: Path) -> Path:
    return tree.path / ".git/refs"


def with_an_empty_git_folder(tree: Tree, tmp_path: Path) -> Path:
    path = below(tree, tmp_path)
    (path / ".git").mkdir()
    return path


WORKING = [
    linked,
    below,
    below_linked,
    submodule,
    separate,
    through_a_link,
    git_folder_is_a_link,
    with_an_empty_git_folder,
]
WORKING += [linked_to_bare, detached, unborn]
TREELESS = [bare, below_bare, inside_git_folder, bare_behind_a_file]


@pytest.mark.parametrize("arrange", WORKING, ids=lambda arrange: str(arrange.__name__))
def test_a_working_tree(probe: LocalProbe, tree: Tree, tmp_path: Path, arrange: Callable[[Tree, Path], Path]) -> None:
    path = arrange(tree, tmp_path)
    common = git(path, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert probe.repository_of(str(path)) == os.path.realpath(common)
    assert probe.top_of(str(path)) == git(path, "rev-parse", "--show-toplevel")
    assert probe.branch(str(path)) == (git(path, "branch", "--show-current") or None)


@pytest.mark.parametrize("arrange", TREELESS, ids=lambda arrange: str(arrange.__name__))
def test_no_working_tree(probe: LocalProbe, tree: Tree, tmp_path: Path, arrange: Callable[[Tree, Path], Path]) -> None:
    path = arrange(tree, tmp_path)
    common = git(path, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert probe.repository_of(str(path)) == os.path.realpath(common)
    assert probe.top_of(str(path)) is None
    assert run(path, "rev-parse", "--show-toplevel").returncode != 0


def test_two_working_trees_have_one_repository_and_a_branch_each(probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
    side = linked(tree, tmp_path)
    assert probe.repository_of(str(side)) == probe.repository_of(str(tree.path)) is not None
    assert (probe.branch(str(tree.path)), probe.branch(str(side))) == ("main", "side")


def test_a_bare_repository_has_nothing_checked_out(probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
    assert probe.branch(str(bare(tree, tmp_path))) is None


def test_a_directory_that_is_not_there_yet(probe: LocalProbe, plain: Tree) -> None:
    for path in ("new/deep", "README.md", "README.md/below"):
        directory = str(plain.path / path)
        assert probe.repository_of(directory) == plain.common, path
        assert probe.top_of(directory) == str(plain.path)
        assert probe.branch(directory) == "main"


@pytest.mark.parametrize("directory", ["", "nowhere/near", "a\0b", "x" * 5000])
def test_no_repository(probe: LocalProbe, tmp_path: Path, directory: str) -> None:
    path = f"{tmp_path}/{directory}"
    assert probe.repository_of(path) is probe.top_of(path) is probe.branch(path) is None


@pytest.mark.parametrize("content", ["gitdir: /nowhere\n", "nonsense", "", "gitdir: .\n", "gitdir: \n"])
def test_a_git_file_that_leads_nowhere_ends_the_search(probe: LocalProbe, plain: Tree, content: str) -> None:
    path = below(plain, plain.path)
    (path / ".git").write_text(content)
    assert run(path, "rev-parse", "--git-dir").returncode != 0
    assert probe.repository_of(str(path)) is None


def test_a_folder_that_only_looks_like_a_repository(probe: LocalProbe, plain: Tree, tmp_path: Path) -> None:
    path = below(plain, tmp_path)
    (path / "HEAD").write_text("of the department")
    (path / "objects").mkdir()
    (path / "refs").mkdir()
    assert Tree(path).common == probe.repository_of(str(path)) == plain.common


def test_a_repository_ends_at_its_file_system(
    probe: LocalProbe, plain: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = below(plain, tmp_path)
    real = os.stat

    def stat(path: str, **named: Any) -> os.stat_result:
        found = real(path, **named)
        is_mounted = str(path).startswith(str(mounted))
        return os.stat_result((*found[:2], found.st_dev + is_mounted, *found[3:10]))

    monkeypatch.setattr(os, "stat", stat)
    assert probe.repository_of(str(plain.path / "src")) == str(plain.path / ".git")
    assert probe.repository_of(str(mounted)) is None


def test_a_working_tree_set_elsewhere(probe: LocalProbe, plain: Tree, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    plain.git("config", "core.worktree", str(tmp_path / "elsewhere"))
    assert probe.top_of(str(plain.path)) == str(tmp_path / "elsewhere")


def test_the_environment_has_no_say(
    probe: LocalProbe, plain: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(plain.path))
    assert probe.repository_of(str(plain.path)) == plain.common
    assert probe.top_of(str(plain.path)) == str(plain.path)
    oid = plain.git("rev-parse", "main")
    assert probe.resolve(plain.common, oid) == oid
    assert probe.look([Document(plain.common, "main", "README.md")]) == {
        Document(plain.common, "main", "README.md"): True
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_somebody_else(probe: LocalProbe, tree: Tree) -> None:
    for folder, _, files in os.walk(tree.path):
        for path in [folder, *(f"{folder}/{name}" for name in files)]:
            os.chown(path, 65534, 65534)
    common = str(tree.path / ".git")
    assert "dubious ownership" in run(tree.path, "rev-parse", "HEAD").stderr
    assert probe.repository_of(str(tree.path)) == common
    assert probe.top_of(str(tree.path)) == str(tree.path)
    assert probe.branch(str(tree.path)) == "main"
    oid = probe.look([Head(common, "main")])[Head(common, "main")]
    assert isinstance(oid, str)
    assert probe.resolve(common, oid[:8]) == oid
    assert probe.look([Document(common, "main", "README.md")]) == {Document(common, "main", "README.md"): True}


def test_broken_settings_of_the_user_do_not_matter(
    probe: LocalProbe, plain: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[nonsense")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / ".gitconfig"))
    assert probe.top_of(str(plain.path)) == str(plain.path)


class TestResolve:
    def test_full_and_short(self, probe: LocalProbe, tree: Tree) -> None:
        oid = tree.git("rev-parse", "main")
        assert probe.resolve(tree.common, oid) == probe.resolve(tree.common, oid[:7]) == oid
        assert probe.resolve(tree.common, oid[:9].upper()) == oid
        tree.git("gc", "-q")
        assert probe.resolve(tree.common, oid[:7]) == oid

    def test_a_commit_just_made_by_another_process(self, probe: LocalProbe, tree: Tree) -> None:
        for oid in tree.commits(3):
            assert probe.resolve(tree.common, oid[:12]) == oid

    def test_only_commits_count(self, probe: LocalProbe, tree: Tree) -> None:
        assert probe.resolve(tree.common, tree.git("rev-parse", "main^{tree}")) is None
        assert probe.resolve(tree.common, tree.git("rev-parse", "main:README.md")) is None
        tree.git("tag", "-a", "-m", "tag", "v1")
        assert probe.resolve(tree.common, tree.git("rev-parse", "refs/tags/v1")) == tree.git("rev-parse", "main")

    def test_a_branch_named_like_an_id(self, probe: LocalProbe, tree: Tree) -> None:
        first = tree.git("rev-parse", "main")
        second = tree.commit()
        tree.git("update-ref", f"refs/heads/{first[:7]}", second)
        assert probe.resolve(tree.common, first[:7]) == first
        tree.git("update-ref", "refs/heads/beef", second)
        assert probe.resolve(tree.common, "beef") is None

    @pytest.mark.parametrize(
        "rev", ["", "abc", "main", "HEAD", "HEAD~1", "--all", "0" * 40, "0" * 64, "f" * 65, "12 34"]
    )
    def test_what_names_no_commit(self, probe: LocalProbe, tree: Tree, rev: str) -> None:
        assert probe.resolve(tree.common, rev) is None

    def test_what_names_two_commits(self, probe: LocalProbe, plain: Tree) -> None:
        """Two of 300 commits share their first four letters, or else more are made until they do."""
        oids: set[str] = set()
        while len({oid[:4] for oid in oids}) == len(oids):
            line = "commit refs/heads/x\ncommitter A <a@example.org> {} +0000\ndata 0\n\n"
            start = len(oids)
            plain.git("fast-import", "--quiet", "--force", stdin="".join(line.format(start + n) for n in range(300)))
            oids |= set(plain.git("rev-list", "x").split())
        shared = next(oid for oid in oids if sum(other[:4] == oid[:4] for other in oids) > 1)
        assert probe.resolve(plain.common, shared[:4]) is None
        assert probe.resolve(plain.common, shared) == shared

    def test_no_repository(self, probe: LocalProbe, tmp_path: Path) -> None:
        assert probe.resolve(str(tmp_path / "gone"), "0" * 40) is None


class TestMerge:
    """Two branches that change the same line."""

    @pytest.fixture(autouse=True)
    def conflict(self, tree: Tree) -> None:
        tree.git("checkout", "-q", "-b", "theirs")
        (tree.path / "README.md").write_text("theirs")
        tree.git("commit", "-q", "-a", "-m", "theirs")
        tree.git("checkout", "-q", "main")
        (tree.path / "README.md").write_text("ours")
        tree.git("commit", "-q", "-a", "-m", "ours")

    @pytest.mark.parametrize("verb", ["merge", "cherry-pick", "rebase"])
    def test_in_the_main_working_tree(self, probe: LocalProbe, tree: Tree, verb: str) -> None:
        assert not probe.has_merge_in_progress(tree.common)
        assert run(tree.path, verb, "theirs").returncode == 1
        assert probe.has_merge_in_progress(tree.common)
        tree.git(verb, "--abort")
        assert not probe.has_merge_in_progress(tree.common)

    def test_a_revert(self, probe: LocalProbe, tree: Tree) -> None:
        tree.git("revert", "--no-commit", "main")
        assert probe.has_merge_in_progress(tree.common)
        tree.commit()
        assert not probe.has_merge_in_progress(tree.common)

    def test_in_a_linked_working_tree(self, probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
        side = linked(tree, tmp_path)
        assert not probe.has_merge_in_progress(tree.common)
        assert run(side, "merge", "theirs").returncode == 1
        assert probe.has_merge_in_progress(tree.common)

    def test_a_linked_working_tree_that_was_removed_has_none(
        self, probe: LocalProbe, tree: Tree, tmp_path: Path
    ) -> None:
        side = linked(tree, tmp_path)
        assert run(side, "merge", "theirs").returncode == 1
        shutil.rmtree(side)
        assert not probe.has_merge_in_progress(tree.common)

    def test_a_locked_one_is_only_away(self, probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
        side = linked(tree, tmp_path)
        assert run(side, "merge", "theirs").returncode == 1
        tree.git("worktree", "lock", str(side))
        side.rename(tmp_path / "away")
        assert probe.has_merge_in_progress(tree.common)

    def test_no_repository(self, probe: LocalProbe, tmp_path: Path) -> None:
        assert not probe.has_merge_in_progress(str(tmp_path / "gone"))
