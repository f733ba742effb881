"""Probe of files in the head of a branch."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from rota.kernel.facts import BranchFile, BranchHead, FactValue
from rota.probe import branch_files
from rota.probe.git_command import run_git_with_error
from rota.probe.local import LocalProbe
from tests.probe.rig import GitTree, create_repository


def observe_file(probe: LocalProbe, tree: GitTree, branch: str, path: str) -> FactValue:
    fact = BranchFile(tree.common, branch, path)
    return probe.observe([fact])[fact]


def test_file_exists_only_in_branches_that_contain_it(probe: LocalProbe, tree: GitTree) -> None:
    assert observe_file(probe, tree, "main", "plans/foo.md") is False
    tree.git("checkout", "-q", "-b", "draft/foo")
    tree.commit("plans/foo.md")
    assert observe_file(probe, tree, "draft/foo", "plans/foo.md") is True
    assert observe_file(probe, tree, "main", "plans/foo.md") is False
    tree.git("rm", "-q", "plans/foo.md")
    tree.commit()
    assert observe_file(probe, tree, "draft/foo", "plans/foo.md") is False
    assert observe_file(probe, tree, "gone", "plans/foo.md") is False


def test_uncommitted_file_is_not_in_the_branch(probe: LocalProbe, tree: GitTree) -> None:
    (tree.path / "new.md").write_text("")
    assert observe_file(probe, tree, "main", "new.md") is False
    tree.git("add", "new.md")
    assert observe_file(probe, tree, "main", "new.md") is False
    tree.commit()
    assert observe_file(probe, tree, "main", "new.md") is True


def test_file_in_packed_branch_and_packed_objects(probe: LocalProbe, tree: GitTree) -> None:
    tree.commit("plans/foo.md")
    tree.git("branch", "draft/foo")
    tree.git("gc", "-q", "--prune=now")
    assert observe_file(probe, tree, "draft/foo", "plans/foo.md") is True
    tree.commit("plans/bar.md")
    tree.git("branch", "-f", "draft/foo")
    tree.git("gc", "-q", "--prune=now")
    assert observe_file(probe, tree, "draft/foo", "plans/bar.md") is True
    assert observe_file(probe, tree, "draft/foo", "plans/foo.md") is True


def test_folder_is_not_a_file(probe: LocalProbe, tree: GitTree) -> None:
    tree.commit("plans/deep/foo.md", "plan")
    for path in ("plans", "plans/deep", "plans/deep/", ""):
        assert observe_file(probe, tree, "main", path) is False, path
    assert observe_file(probe, tree, "main", "plan") is True
    assert observe_file(probe, tree, "main", "plan/foo.md") is False, "a file is not a folder"


def test_submodule_is_not_a_file_and_symlink_is(probe: LocalProbe, tree: GitTree) -> None:
    oid = tree.git("rev-parse", "main")
    tree.git("update-index", "--add", "--cacheinfo", f"160000,{oid},module")
    (tree.path / "link").symlink_to("nowhere")
    tree.git("add", "link")
    tree.commit()
    assert observe_file(probe, tree, "main", "module") is False
    assert observe_file(probe, tree, "main", "module/foo.md") is False
    assert observe_file(probe, tree, "main", "link") is True


@pytest.mark.parametrize("path", ["a b/c d.md", "größe/日本.md", "a:b/c", "-x", "a*b", "tab\there", "x missing"])
def test_unusual_paths(probe: LocalProbe, tree: GitTree, path: str) -> None:
    assert observe_file(probe, tree, "main", path) is False
    tree.commit(path)
    assert observe_file(probe, tree, "main", path) is True
    assert observe_file(probe, tree, "main", f"./{path}") is True


@pytest.mark.parametrize("path", ["/README.md", "../README.md", "..", "a\nb", "a/\n/b", "a\0b", "\ud800", "\ud800/a"])
def test_impossible_path_does_not_affect_other_facts(probe: LocalProbe, plain: GitTree, path: str) -> None:
    good, bad = BranchFile(plain.common, "main", "README.md"), BranchFile(plain.common, "main", path)
    assert probe.observe([bad, good]) == {good: True, bad: False}


def test_one_git_process_reads_many_files_and_results_are_cached(
    probe: LocalProbe, plain: GitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.commit(*(f"plans/{number}.md" for number in range(50)))
    common = plain.common
    commands: list[str] = []
    real_run = subprocess.run

    def record_run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(argv[2])
        return real_run(argv, **options)

    monkeypatch.setattr(subprocess, "run", record_run)
    facts = [BranchFile(common, "main", f"plans/{number}.md") for number in range(100)]
    observed = probe.observe(facts)
    assert [observed[fact] for fact in facts] == [True] * 50 + [False] * 50
    assert probe.observe(facts) == observed
    assert commands == ["cat-file"]


def test_heads_are_read_without_git(probe: LocalProbe, plain: GitTree, monkeypatch: pytest.MonkeyPatch) -> None:
    common, oid = plain.common, plain.git("rev-parse", "main")
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe.observe([BranchHead(common, "main")]) == {BranchHead(common, "main"): oid}


def test_unfetched_content_of_a_partial_clone_counts_as_existing(
    probe: LocalProbe, plain: GitTree, tmp_path: Path
) -> None:
    plain.commit("plans/foo.md")
    plain.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    plain.git("clone", "-q", "--filter=blob:none", "--no-checkout", plain.path.as_uri(), str(clone))
    plain.path.rename(tmp_path / "away")
    assert observe_file(probe, GitTree(clone), "main", "plans/foo.md") is True
    assert observe_file(probe, GitTree(clone), "main", "plans/bar.md") is False


def test_replacement_objects_are_ignored(probe: LocalProbe, plain: GitTree) -> None:
    first = plain.git("rev-parse", "main")
    second = plain.commit("new.md")
    plain.git("replace", second, first)
    assert observe_file(probe, plain, "main", "new.md") is True


def test_file_in_place_of_a_folder_is_not_read(
    probe: LocalProbe, plain: GitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain.path / "plans").write_bytes(b"\n" * 1_000_000)
    plain.git("add", "plans")
    plain.commit()
    sizes: list[int] = []

    def measure_output(*arguments: Any, **options: Any) -> tuple[bytes, str | None]:
        result = run_git_with_error(*arguments, **options)
        sizes.append(len(result[0]))
        return result

    monkeypatch.setattr(branch_files, "run_git_with_error", measure_output)
    assert observe_file(probe, plain, "main", "plans/foo.md") is False
    assert len(sizes) == 1
    assert sizes[0] < 1000


def test_unborn_branch_has_no_files(probe: LocalProbe, tmp_path: Path) -> None:
    assert observe_file(probe, create_repository(tmp_path / "new"), "main", "README.md") is False
