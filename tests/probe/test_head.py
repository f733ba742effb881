"""Where a branch stands, in every form that git keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe.rig import Tree, make, make_named, run
from rota.core.fact import UNREADABLE, Head, Seen
from rota.probe.local import LocalProbe
from rota.probe.ref import is_ref_name
from sample import sample


def head(probe: LocalProbe, tree: Tree, branch: str) -> Seen:
    fact = Head(tree.common, branch)
    return probe.look([fact])[fact]


def test_a_branch_is_where_git_says(probe: LocalProbe, tree: Tree) -> None:
    first = head(probe, tree, "main")
    assert first == tree.git("rev-parse", "main")
    assert head(probe, tree, "main") == first
    second = tree.commit()
    assert head(probe, tree, "main") == second != first


def test_a_branch_that_is_not_there(probe: LocalProbe, tree: Tree) -> None:
    tree.git("branch", "draft/foo")
    assert head(probe, tree, "gone") is None
    assert head(probe, tree, "draft") is None, "a folder of branches is no branch"
    assert head(probe, tree, "main/foo") is None, "a branch is no folder"


def test_a_branch_packed_moved_and_deleted_by_others(probe: LocalProbe, tree: Tree) -> None:
    tree.git("branch", "draft/foo")
    first = head(probe, tree, "draft/foo")
    tree.git("pack-refs", "--all")
    assert head(probe, tree, "draft/foo") == first is not None
    second = tree.commit()
    tree.git("branch", "-f", "draft/foo", "main")
    assert head(probe, tree, "draft/foo") == second, "the loose ref stands before the packed one"
    tree.git("pack-refs", "--all")
    assert head(probe, tree, "draft/foo") == second
    tree.git("branch", "-D", "draft/foo")
    assert head(probe, tree, "draft/foo") is None, "deleted while it was packed"
    tree.git("branch", "draft/foo", "main~1")
    assert head(probe, tree, "draft/foo") == first


@pytest.mark.parametrize("branch", ["a/b/c", "größe/ünïcode-日本", "#'quotes'", "@", "-dash", "refs/heads/main"])
def test_names(probe: LocalProbe, tree: Tree, branch: str) -> None:
    oid = tree.git("rev-parse", "main")
    tree.git("update-ref", f"refs/heads/{branch}", oid)
    assert head(probe, tree, branch) == oid
    tree.git("pack-refs", "--all")
    assert head(probe, tree, branch) == oid


def test_a_tag_of_the_same_name_is_another_ref(probe: LocalProbe, tree: Tree) -> None:
    tree.git("tag", "-a", "-m", "tag", "v1", "main")
    assert head(probe, tree, "v1") is None
    tagged = tree.git("rev-parse", "main")
    tree.git("tag", "-f", "-a", "-m", "tag", "main", "main")
    second = tree.commit()
    tree.git("pack-refs", "--all")
    assert head(probe, tree, "main") == second != tagged


def test_a_tag_that_spells_a_whole_ref_does_not_stand_in_for_a_branch(probe: LocalProbe, tree: Tree) -> None:
    tree.git("update-ref", "refs/tags/refs/heads/gone", "HEAD")
    tree.git("update-ref", "refs/heads/refs/heads/gone", "HEAD")
    assert head(probe, tree, "gone") is None


def test_an_empty_folder_does_not_hide_a_packed_branch(
    probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    plain.git("branch", "draft")
    plain.git("pack-refs", "--all")
    Path(plain.common, "refs/heads/draft/foo").mkdir(parents=True)
    assert head(probe, plain, "draft") == plain.git("rev-parse", "draft") == plain.git("rev-parse", "main")
    assert head(probe, plain, "draft/foo") is None
    assert not caplog.records


def test_symbolic_refs(probe: LocalProbe, tree: Tree) -> None:
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    tree.git("symbolic-ref", "refs/heads/remote", "refs/remotes/origin/main")
    assert head(probe, tree, "remote") is None
    first = tree.git("rev-parse", "main")
    tree.git("update-ref", "refs/remotes/origin/main", first)
    tree.git("pack-refs", "--all")
    second = tree.commit()
    assert head(probe, tree, "alias") == second
    assert head(probe, tree, "remote") == first
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/nothing")
    assert head(probe, tree, "alias") is None


def test_a_symbolic_ref_of_the_old_kind(probe: LocalProbe, plain: Tree) -> None:
    Path(plain.common, "refs/heads/alias").symlink_to("refs/heads/main")
    assert head(probe, plain, "alias") == plain.git("rev-parse", "main")
    plain.git("pack-refs", "--all")
    assert head(probe, plain, "alias") == plain.git("rev-parse", "alias") == plain.git("rev-parse", "main")


def test_symbolic_refs_in_a_ring(probe: LocalProbe, plain: Tree) -> None:
    Path(plain.common, "refs/heads/ping").write_text("ref: refs/heads/pong\n")
    Path(plain.common, "refs/heads/pong").write_text("ref: refs/heads/ping\n")
    assert head(probe, plain, "ping") is UNREADABLE
    assert head(probe, plain, "pong") is UNREADABLE


def test_an_unborn_branch(probe: LocalProbe, tmp_path: Path) -> None:
    tree = make(tmp_path / "new")
    assert head(probe, tree, "main") is None
    assert head(probe, tree, "main") is None
    assert head(probe, tree, "main") != tree.commit()
    assert head(probe, tree, "main") == tree.git("rev-parse", "main")


def test_a_detached_head_leaves_branches_alone(probe: LocalProbe, tree: Tree) -> None:
    first = tree.git("rev-parse", "main")
    tree.git("checkout", "-q", "--detach")
    tree.commit()
    assert head(probe, tree, "main") == first
    assert head(probe, tree, "HEAD") is None


def test_branches_belong_to_all_working_trees(probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
    tree.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = Tree(tmp_path / "side")
    oid = side.commit()
    assert side.common == tree.common
    assert head(probe, side, "side") == head(probe, tree, "side") == oid
    assert head(probe, side, "main") == tree.git("rev-parse", "main")


def test_a_bare_repository(probe: LocalProbe, tree: Tree, tmp_path: Path) -> None:
    tree.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert head(probe, Tree(tmp_path / "bare.git"), "main") == tree.git("rev-parse", "main")


def test_after_gc_and_in_a_new_pack(probe: LocalProbe, tree: Tree) -> None:
    tree.git("branch", "old")
    first = head(probe, tree, "old")
    tree.commits(3)
    tree.git("gc", "-q", "--prune=now")
    assert head(probe, tree, "old") == first
    assert head(probe, tree, "main") == tree.git("rev-parse", "main")


def test_a_thousand_heads_in_one_look(probe: LocalProbe, tree: Tree) -> None:
    oids = [tree.git("rev-parse", "main"), tree.commit()]
    made = {f"draft/{number}": oids[number % 2] for number in range(1000)}
    packed = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(made.items())[:500])
    loose = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(made.items())[500:])
    tree.git("update-ref", "--stdin", stdin=packed)
    tree.git("pack-refs", "--all")
    tree.git("update-ref", "--stdin", stdin=loose)
    common = tree.common
    seen = probe.look([Head(common, branch) for branch in [*made, "gone"]])
    assert seen == {Head(common, branch): oid for branch, oid in made.items()} | {Head(common, "gone"): None}


REFUSED = ["", "/", "a//b", "../x", "a/../b", "a/.b", ".a", "a.lock", "a.lock/b", "a b", "a~1", "a^", "a:b", "a?", "a*"]
REFUSED += ["a[b", "a\\b", "a@{b", "a.", "a/", "a\nb", "a\x7f", "a..b", "\x01"]


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_git_refuses_lead_nowhere(probe: LocalProbe, plain: Tree, name: str) -> None:
    assert run(plain.path, "check-ref-format", f"refs/heads/{name}").returncode == 1
    assert not is_ref_name(f"refs/heads/{name}")
    assert head(probe, plain, name) is None


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_file_system_has(probe: LocalProbe, plain: Tree, name: str) -> None:
    assert head(probe, plain, name) is None


@given(name=st.text(alphabet="ab/.@{}-lock~ é", min_size=1, max_size=12))
@settings(max_examples=sample(30))
def test_names_are_judged_as_git_does(name: str) -> None:
    assert is_ref_name(f"refs/heads/{name}") == (
        run(Path("/"), "check-ref-format", f"refs/heads/{name}").returncode == 0
    )


def test_a_name_cannot_lead_out_of_the_repository(probe: LocalProbe, plain: Tree) -> None:
    (plain.path / "secret").write_text("1" * 40)
    assert head(probe, plain, "../../../secret") is None


def test_a_storage_that_can_be_watched_is_listed_again_when_it_changed(probe: LocalProbe, tmp_path: Path) -> None:
    tree = make_named(tmp_path / "repo")
    first = tree.commit()
    tables = Path(tree.common, "reftable/tables.list")
    tables.parent.mkdir()
    tables.write_text("one.ref\n")
    assert head(probe, tree, "main") == first
    second = tree.commit()
    assert head(probe, tree, "main") == first, "git was not asked"
    tables.write_text("one.ref\ntwo.ref\n")
    assert head(probe, tree, "main") == second
