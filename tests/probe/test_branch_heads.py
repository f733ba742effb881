"""Probe of branch heads in every ref storage of git."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.kernel.facts import UNREADABLE, BranchHead, FactValue
from rota.probe.local import LocalProbe
from rota.probe.refs import is_ref_name
from tests.probe.rig import GitTree, create_ref_storage_repository, create_repository, run_git
from tests.sample import sample


def observe_head(probe: LocalProbe, tree: GitTree, branch: str) -> FactValue:
    fact = BranchHead(tree.common, branch)
    return probe.observe([fact])[fact]


def test_head_equals_the_head_that_git_reports(probe: LocalProbe, tree: GitTree) -> None:
    first = observe_head(probe, tree, "main")
    assert first == tree.git("rev-parse", "main")
    assert observe_head(probe, tree, "main") == first
    second = tree.commit()
    assert observe_head(probe, tree, "main") == second != first


def test_missing_branch_has_no_head(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("branch", "draft/foo")
    assert observe_head(probe, tree, "gone") is None
    assert observe_head(probe, tree, "draft") is None, "a folder of branches is not a branch"
    assert observe_head(probe, tree, "main/foo") is None, "a branch is not a folder"


def test_head_of_branch_that_is_packed_moved_and_deleted(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("branch", "draft/foo")
    first = observe_head(probe, tree, "draft/foo")
    tree.git("pack-refs", "--all")
    assert observe_head(probe, tree, "draft/foo") == first is not None
    second = tree.commit()
    tree.git("branch", "-f", "draft/foo", "main")
    assert observe_head(probe, tree, "draft/foo") == second, "the loose ref wins over the packed one"
    tree.git("pack-refs", "--all")
    assert observe_head(probe, tree, "draft/foo") == second
    tree.git("branch", "-D", "draft/foo")
    assert observe_head(probe, tree, "draft/foo") is None, "deleted while packed"
    tree.git("branch", "draft/foo", "main~1")
    assert observe_head(probe, tree, "draft/foo") == first


@pytest.mark.parametrize("branch", ["a/b/c", "größe/ünïcode-日本", "#'quotes'", "@", "-dash", "refs/heads/main"])
def test_unusual_branch_names(probe: LocalProbe, tree: GitTree, branch: str) -> None:
    oid = tree.git("rev-parse", "main")
    tree.git("update-ref", f"refs/heads/{branch}", oid)
    assert observe_head(probe, tree, branch) == oid
    tree.git("pack-refs", "--all")
    assert observe_head(probe, tree, branch) == oid


def test_tag_with_the_same_name_is_ignored(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("tag", "-a", "-m", "tag", "v1", "main")
    assert observe_head(probe, tree, "v1") is None
    tagged = tree.git("rev-parse", "main")
    tree.git("tag", "-f", "-a", "-m", "tag", "main", "main")
    second = tree.commit()
    tree.git("pack-refs", "--all")
    assert observe_head(probe, tree, "main") == second != tagged


def test_tag_named_like_a_full_ref_is_ignored(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("update-ref", "refs/tags/refs/heads/gone", "HEAD")
    tree.git("update-ref", "refs/heads/refs/heads/gone", "HEAD")
    assert observe_head(probe, tree, "gone") is None


def test_empty_folder_does_not_hide_packed_branch(
    probe: LocalProbe, plain: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    plain.git("branch", "draft")
    plain.git("pack-refs", "--all")
    Path(plain.common, "refs/heads/draft/foo").mkdir(parents=True)
    assert observe_head(probe, plain, "draft") == plain.git("rev-parse", "draft") == plain.git("rev-parse", "main")
    assert observe_head(probe, plain, "draft/foo") is None
    assert not caplog.records


def test_symbolic_refs_are_followed(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    tree.git("symbolic-ref", "refs/heads/remote", "refs/remotes/origin/main")
    assert observe_head(probe, tree, "remote") is None
    first = tree.git("rev-parse", "main")
    tree.git("update-ref", "refs/remotes/origin/main", first)
    tree.git("pack-refs", "--all")
    second = tree.commit()
    assert observe_head(probe, tree, "alias") == second
    assert observe_head(probe, tree, "remote") == first
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/nothing")
    assert observe_head(probe, tree, "alias") is None


def test_symbolic_ref_as_symlink(probe: LocalProbe, plain: GitTree) -> None:
    Path(plain.common, "refs/heads/alias").symlink_to("refs/heads/main")
    assert observe_head(probe, plain, "alias") == plain.git("rev-parse", "main")
    plain.git("pack-refs", "--all")
    assert observe_head(probe, plain, "alias") == plain.git("rev-parse", "alias") == plain.git("rev-parse", "main")


def test_cyclic_symbolic_refs_are_unreadable(probe: LocalProbe, plain: GitTree) -> None:
    Path(plain.common, "refs/heads/ping").write_text("ref: refs/heads/pong\n")
    Path(plain.common, "refs/heads/pong").write_text("ref: refs/heads/ping\n")
    assert observe_head(probe, plain, "ping") is UNREADABLE
    assert observe_head(probe, plain, "pong") is UNREADABLE


def test_unborn_branch_has_no_head(probe: LocalProbe, tmp_path: Path) -> None:
    tree = create_repository(tmp_path / "new")
    assert observe_head(probe, tree, "main") is None
    assert observe_head(probe, tree, "main") is None
    assert observe_head(probe, tree, "main") != tree.commit()
    assert observe_head(probe, tree, "main") == tree.git("rev-parse", "main")


def test_detached_head_does_not_move_branches(probe: LocalProbe, tree: GitTree) -> None:
    first = tree.git("rev-parse", "main")
    tree.git("checkout", "-q", "--detach")
    tree.commit()
    assert observe_head(probe, tree, "main") == first
    assert observe_head(probe, tree, "HEAD") is None


def test_linked_working_trees_share_branches(probe: LocalProbe, tree: GitTree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = GitTree(tmp_path / "side")
    oid = side.commit()
    assert side.common == tree.common
    assert observe_head(probe, side, "side") == observe_head(probe, tree, "side") == oid
    assert observe_head(probe, side, "main") == tree.git("rev-parse", "main")


def test_head_in_bare_repository(probe: LocalProbe, tree: GitTree, tmp_path: Path) -> None:
    tree.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert observe_head(probe, GitTree(tmp_path / "bare.git"), "main") == tree.git("rev-parse", "main")


def test_heads_after_git_gc(probe: LocalProbe, tree: GitTree) -> None:
    tree.git("branch", "old")
    first = observe_head(probe, tree, "old")
    tree.commits(3)
    tree.git("gc", "-q", "--prune=now")
    assert observe_head(probe, tree, "old") == first
    assert observe_head(probe, tree, "main") == tree.git("rev-parse", "main")


def test_thousand_heads_in_one_observation(probe: LocalProbe, tree: GitTree) -> None:
    oids = [tree.git("rev-parse", "main"), tree.commit()]
    branches = {f"draft/{number}": oids[number % 2] for number in range(1000)}
    packed = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(branches.items())[:500])
    loose = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(branches.items())[500:])
    tree.git("update-ref", "--stdin", stdin=packed)
    tree.git("pack-refs", "--all")
    tree.git("update-ref", "--stdin", stdin=loose)
    common = tree.common
    observed = probe.observe([BranchHead(common, branch) for branch in [*branches, "gone"]])
    assert observed == {BranchHead(common, branch): oid for branch, oid in branches.items()} | {
        BranchHead(common, "gone"): None
    }


INVALID_NAMES = [
    "",
    "/",
    "a//b",
    "../x",
    "a/../b",
    "a/.b",
    ".a",
    "a.lock",
    "a.lock/b",
    "a b",
    "a~1",
    "a^",
    "a:b",
    "a?",
    "a*",
]
INVALID_NAMES += ["a[b", "a\\b", "a@{b", "a.", "a/", "a\nb", "a\x7f", "a..b", "\x01"]


@pytest.mark.parametrize("name", INVALID_NAMES)
def test_invalid_branch_name_has_no_head(probe: LocalProbe, plain: GitTree, name: str) -> None:
    assert run_git(plain.path, "check-ref-format", f"refs/heads/{name}").returncode == 1
    assert not is_ref_name(f"refs/heads/{name}")
    assert observe_head(probe, plain, name) is None


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_name_that_no_file_system_can_store_has_no_head(probe: LocalProbe, plain: GitTree, name: str) -> None:
    assert observe_head(probe, plain, name) is None


@given(name=st.text(alphabet="ab/.@{}-lock~ é", min_size=1, max_size=12))
@settings(max_examples=sample(30))
def test_ref_name_rule_agrees_with_git(name: str) -> None:
    assert is_ref_name(f"refs/heads/{name}") == (
        run_git(Path("/"), "check-ref-format", f"refs/heads/{name}").returncode == 0
    )


def test_branch_name_cannot_escape_the_repository(probe: LocalProbe, plain: GitTree) -> None:
    (plain.path / "secret").write_text("1" * 40)
    assert observe_head(probe, plain, "../../../secret") is None


def test_reftable_branches_are_listed_again_after_a_change(probe: LocalProbe, tmp_path: Path) -> None:
    tree = create_ref_storage_repository(tmp_path / "repo")
    first = tree.commit()
    tables = Path(tree.common, "reftable/tables.list")
    tables.parent.mkdir()
    tables.write_text("one.ref\n")
    assert observe_head(probe, tree, "main") == first
    second = tree.commit()
    assert observe_head(probe, tree, "main") == first, "git is not run while the list of tables is unchanged"
    tables.write_text("one.ref\ntwo.ref\n")
    assert observe_head(probe, tree, "main") == second
