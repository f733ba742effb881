"""What the tip of a branch holds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from probe.rig import Tree, make
from rota.core.fact import Document, Head, Seen
from rota.probe import document
from rota.probe.local import LocalProbe
from rota.probe.program import ask_closely


def has(probe: LocalProbe, tree: Tree, branch: str, path: str) -> Seen:
    fact = Document(tree.common, branch, path)
    return probe.look([fact])[fact]


def test_a_document_appears_and_goes_with_its_branch(probe: LocalProbe, tree: Tree) -> None:
    assert has(probe, tree, "main", "plans/foo.md") is False
    tree.git("checkout", "-q", "-b", "draft/foo")
    tree.commit("plans/foo.md")
    assert has(probe, tree, "draft/foo", "plans/foo.md") is True
    assert has(probe, tree, "main", "plans/foo.md") is False
    tree.git("rm", "-q", "plans/foo.md")
    tree.commit()
    assert has(probe, tree, "draft/foo", "plans/foo.md") is False
    assert has(probe, tree, "gone", "plans/foo.md") is False


def test_what_is_only_in_the_working_tree_or_index_is_not_in_the_branch(probe: LocalProbe, tree: Tree) -> None:
    (tree.path / "new.md").write_text("")
    assert has(probe, tree, "main", "new.md") is False
    tree.git("add", "new.md")
    assert has(probe, tree, "main", "new.md") is False
    tree.commit()
    assert has(probe, tree, "main", "new.md") is True


def test_a_packed_branch_and_packed_objects(probe: LocalProbe, tree: Tree) -> None:
    tree.commit("plans/foo.md")
    tree.git("branch", "draft/foo")
    tree.git("gc", "-q", "--prune=now")
    assert has(probe, tree, "draft/foo", "plans/foo.md") is True
    tree.commit("plans/bar.md")
    tree.git("branch", "-f", "draft/foo")
    tree.git("gc", "-q", "--prune=now")
    assert has(probe, tree, "draft/foo", "plans/bar.md") is True
    assert has(probe, tree, "draft/foo", "plans/foo.md") is True


def test_a_folder_is_no_document(probe: LocalProbe, tree: Tree) -> None:
    tree.commit("plans/deep/foo.md", "plan")
    for path in ("plans", "plans/deep", "plans/deep/", ""):
        assert has(probe, tree, "main", path) is False, path
    assert has(probe, tree, "main", "plan") is True
    assert has(probe, tree, "main", "plan/foo.md") is False, "a document is no folder"


def test_a_submodule_is_no_document_and_a_link_is_one(probe: LocalProbe, tree: Tree) -> None:
    oid = tree.git("rev-parse", "main")
    tree.git("update-index", "--add", "--cacheinfo", f"160000,{oid},module")
    (tree.path / "link").symlink_to("nowhere")
    tree.git("add", "link")
    tree.commit()
    assert has(probe, tree, "main", "module") is False
    assert has(probe, tree, "main", "module/foo.md") is False
    assert has(probe, tree, "main", "link") is True


@pytest.mark.parametrize("path", ["a b/c d.md", "größe/日本.md", "a:b/c", "-x", "a*b", "tab\there", "x missing"])
def test_paths(probe: LocalProbe, tree: Tree, path: str) -> None:
    assert has(probe, tree, "main", path) is False
    tree.commit(path)
    assert has(probe, tree, "main", path) is True
    assert has(probe, tree, "main", f"./{path}") is True


@pytest.mark.parametrize("path", ["/README.md", "../README.md", "..", "a\nb", "a/\n/b", "a\0b", "\ud800", "\ud800/a"])
def test_paths_that_no_branch_has_spoil_no_other(probe: LocalProbe, plain: Tree, path: str) -> None:
    good, bad = Document(plain.common, "main", "README.md"), Document(plain.common, "main", path)
    assert probe.look([bad, good]) == {good: True, bad: False}


def test_many_documents_take_one_git_and_what_is_known_none(
    probe: LocalProbe, plain: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.commit(*(f"plans/{number}.md" for number in range(50)))
    common = plain.common
    asked: list[str] = []
    real = subprocess.run

    def noted(argv: list[str], **named: Any) -> subprocess.CompletedProcess[bytes]:
        asked.append(argv[2])
        return real(argv, **named)

    monkeypatch.setattr(subprocess, "run", noted)
    facts = [Document(common, "main", f"plans/{number}.md") for number in range(100)]
    seen = probe.look(facts)
    assert [seen[fact] for fact in facts] == [True] * 50 + [False] * 50
    assert probe.look(facts) == seen
    assert asked == ["cat-file"]


def test_heads_alone_take_no_git(probe: LocalProbe, plain: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    common, oid = plain.common, plain.git("rev-parse", "main")
    monkeypatch.setenv("PATH", "/nowhere")
    assert probe.look([Head(common, "main")]) == {Head(common, "main"): oid}


def test_content_that_a_partial_clone_has_not_fetched_is_there(probe: LocalProbe, plain: Tree, tmp_path: Path) -> None:
    plain.commit("plans/foo.md")
    plain.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    plain.git("clone", "-q", "--filter=blob:none", "--no-checkout", plain.path.as_uri(), str(clone))
    plain.path.rename(tmp_path / "away")
    assert has(probe, Tree(clone), "main", "plans/foo.md") is True
    assert has(probe, Tree(clone), "main", "plans/bar.md") is False


def test_replaced_objects_do_not_count(probe: LocalProbe, plain: Tree) -> None:
    first = plain.git("rev-parse", "main")
    second = plain.commit("new.md")
    plain.git("replace", second, first)
    assert has(probe, plain, "main", "new.md") is True


def test_a_document_where_a_folder_was_expected_is_not_read(
    probe: LocalProbe, plain: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain.path / "plans").write_bytes(b"\n" * 1_000_000)
    plain.git("add", "plans")
    plain.commit()
    sizes: list[int] = []
    real = ask_closely

    def measured(*given: Any, **named: Any) -> tuple[bytes, str | None]:
        said = real(*given, **named)
        sizes.append(len(said[0]))
        return said

    monkeypatch.setattr(document, "ask_closely", measured)
    assert has(probe, plain, "main", "plans/foo.md") is False
    assert len(sizes) == 1
    assert sizes[0] < 1000


def test_an_unborn_branch_has_no_documents(probe: LocalProbe, tmp_path: Path) -> None:
    assert has(probe, make(tmp_path / "new"), "main", "README.md") is False
