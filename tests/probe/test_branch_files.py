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


def test_file_exists_only_in_branches_that_contain_it(probe: LocalProbe, any_repository: GitTree) -> None:
    assert observe_file(probe, any_repository, "main", "plans/foo.md") is False
    any_repository.git("checkout", "-q", "-b", "draft/foo")
    any_repository.commit("plans/foo.md")
    assert observe_file(probe, any_repository, "draft/foo", "plans/foo.md") is True
    assert observe_file(probe, any_repository, "main", "plans/foo.md") is False
    any_repository.git("rm", "-q", "plans/foo.md")
    any_repository.commit()
    assert observe_file(probe, any_repository, "draft/foo", "plans/foo.md") is False
    assert observe_file(probe, any_repository, "gone", "plans/foo.md") is False


def test_uncommitted_file_is_not_in_the_branch(probe: LocalProbe, any_repository: GitTree) -> None:
    (any_repository.path / "new.md").write_text("")
    assert observe_file(probe, any_repository, "main", "new.md") is False
    any_repository.git("add", "new.md")
    assert observe_file(probe, any_repository, "main", "new.md") is False
    any_repository.commit()
    assert observe_file(probe, any_repository, "main", "new.md") is True


def test_file_in_packed_branch_and_packed_objects(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.commit("plans/foo.md")
    any_repository.git("branch", "draft/foo")
    any_repository.git("gc", "-q", "--prune=now")
    assert observe_file(probe, any_repository, "draft/foo", "plans/foo.md") is True
    any_repository.commit("plans/bar.md")
    any_repository.git("branch", "-f", "draft/foo")
    any_repository.git("gc", "-q", "--prune=now")
    assert observe_file(probe, any_repository, "draft/foo", "plans/bar.md") is True
    assert observe_file(probe, any_repository, "draft/foo", "plans/foo.md") is True


def test_folder_is_not_a_file(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.commit("plans/deep/foo.md", "plan")
    for path in ("plans", "plans/deep", "plans/deep/", ""):
        assert observe_file(probe, any_repository, "main", path) is False, path
    assert observe_file(probe, any_repository, "main", "plan") is True
    assert observe_file(probe, any_repository, "main", "plan/foo.md") is False, "a file is not a folder"


def test_submodule_is_not_a_file_and_symlink_is(probe: LocalProbe, any_repository: GitTree) -> None:
    oid = any_repository.git("rev-parse", "main")
    any_repository.git("update-index", "--add", "--cacheinfo", f"160000,{oid},module")
    (any_repository.path / "link").symlink_to("nowhere")
    any_repository.git("add", "link")
    any_repository.commit()
    assert observe_file(probe, any_repository, "main", "module") is False
    assert observe_file(probe, any_repository, "main", "module/foo.md") is False
    assert observe_file(probe, any_repository, "main", "link") is True


@pytest.mark.parametrize("path", ["a b/c d.md", "größe/日本.md", "a:b/c", "-x", "a*b", "tab\there", "x missing"])
def test_unusual_paths(probe: LocalProbe, any_repository: GitTree, path: str) -> None:
    assert observe_file(probe, any_repository, "main", path) is False
    any_repository.commit(path)
    assert observe_file(probe, any_repository, "main", path) is True
    assert observe_file(probe, any_repository, "main", f"./{path}") is True


@pytest.mark.parametrize("path", ["/README.md", "../README.md", "..", "a\nb", "a/\n/b", "a\0b", "\ud800", "\ud800/a"])
def test_impossible_path_does_not_affect_other_facts(probe: LocalProbe, repository: GitTree, path: str) -> None:
    good, bad = BranchFile(repository.common, "main", "README.md"), BranchFile(repository.common, "main", path)
    assert probe.observe([bad, good]) == {good: True, bad: False}


def test_one_git_process_reads_many_files_and_results_are_cached(
    probe: LocalProbe, repository: GitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit(*(f"plans/{number}.md" for number in range(50)))
    common = repository.common
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


def test_heads_are_read_without_git(probe: LocalProbe, repository: GitTree, monkeypatch: pytest.MonkeyPatch) -> None:
    common, oid = repository.common, repository.git("rev-parse", "main")
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe.observe([BranchHead(common, "main")]) == {BranchHead(common, "main"): oid}


def test_unfetched_content_of_a_partial_clone_counts_as_existing(
    probe: LocalProbe, repository: GitTree, tmp_path: Path
) -> None:
    repository.commit("plans/foo.md")
    repository.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    repository.git("clone", "-q", "--filter=blob:none", "--no-checkout", repository.path.as_uri(), str(clone))
    repository.path.rename(tmp_path / "away")
    assert observe_file(probe, GitTree(clone), "main", "plans/foo.md") is True
    assert observe_file(probe, GitTree(clone), "main", "plans/bar.md") is False


def test_replacement_objects_are_ignored(probe: LocalProbe, repository: GitTree) -> None:
    first = repository.git("rev-parse", "main")
    second = repository.commit("new.md")
    repository.git("replace", second, first)
    assert observe_file(probe, repository, "main", "new.md") is True


def test_file_in_place_of_a_folder_is_not_read(
    probe: LocalProbe, repository: GitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.path / "plans").write_bytes(b"\n" * 1_000_000)
    repository.git("add", "plans")
    repository.commit()
    sizes: list[int] = []

    def measure_output(*arguments: Any, **options: Any) -> tuple[bytes, str | None]:
        result = run_git_with_error(*arguments, **options)
        sizes.append(len(result[0]))
        return result

    monkeypatch.setattr(branch_files, "run_git_with_error", measure_output)
    assert observe_file(probe, repository, "main", "plans/foo.md") is False
    assert len(sizes) == 1
    assert sizes[0] < 1000


def test_unborn_branch_has_no_files(probe: LocalProbe, tmp_path: Path) -> None:
    assert observe_file(probe, create_repository(tmp_path / "new"), "main", "README.md") is False
