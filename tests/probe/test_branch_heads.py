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


def test_head_equals_the_head_that_git_reports(probe: LocalProbe, any_repository: GitTree) -> None:
    first = observe_head(probe, any_repository, "main")
    assert first == any_repository.git("rev-parse", "main")
    assert observe_head(probe, any_repository, "main") == first
    second = any_repository.commit()
    assert observe_head(probe, any_repository, "main") == second != first


def test_missing_branch_has_no_head(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("branch", "draft/foo")
    assert observe_head(probe, any_repository, "gone") is None
    assert observe_head(probe, any_repository, "draft") is None, "a folder of branches is not a branch"
    assert observe_head(probe, any_repository, "main/foo") is None, "a branch is not a folder"


def test_head_of_branch_that_is_packed_moved_and_deleted(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("branch", "draft/foo")
    first = observe_head(probe, any_repository, "draft/foo")
    any_repository.git("pack-refs", "--all")
    assert observe_head(probe, any_repository, "draft/foo") == first is not None
    second = any_repository.commit()
    any_repository.git("branch", "-f", "draft/foo", "main")
    assert observe_head(probe, any_repository, "draft/foo") == second, "the loose ref wins over the packed one"
    any_repository.git("pack-refs", "--all")
    assert observe_head(probe, any_repository, "draft/foo") == second
    any_repository.git("branch", "-D", "draft/foo")
    assert observe_head(probe, any_repository, "draft/foo") is None, "deleted while packed"
    any_repository.git("branch", "draft/foo", "main~1")
    assert observe_head(probe, any_repository, "draft/foo") == first


@pytest.mark.parametrize("branch", ["a/b/c", "größe/ünïcode-日本", "#'quotes'", "@", "-dash", "refs/heads/main"])
def test_unusual_branch_names(probe: LocalProbe, any_repository: GitTree, branch: str) -> None:
    oid = any_repository.git("rev-parse", "main")
    any_repository.git("update-ref", f"refs/heads/{branch}", oid)
    assert observe_head(probe, any_repository, branch) == oid
    any_repository.git("pack-refs", "--all")
    assert observe_head(probe, any_repository, branch) == oid


def test_tag_with_the_same_name_is_ignored(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("tag", "-a", "-m", "tag", "v1", "main")
    assert observe_head(probe, any_repository, "v1") is None
    tagged = any_repository.git("rev-parse", "main")
    any_repository.git("tag", "-f", "-a", "-m", "tag", "main", "main")
    second = any_repository.commit()
    any_repository.git("pack-refs", "--all")
    assert observe_head(probe, any_repository, "main") == second != tagged


def test_tag_named_like_a_full_ref_is_ignored(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("update-ref", "refs/tags/refs/heads/gone", "HEAD")
    any_repository.git("update-ref", "refs/heads/refs/heads/gone", "HEAD")
    assert observe_head(probe, any_repository, "gone") is None


def test_empty_folder_does_not_hide_packed_branch(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    repository.git("branch", "draft")
    repository.git("pack-refs", "--all")
    Path(repository.common, "refs/heads/draft/foo").mkdir(parents=True)
    assert (
        observe_head(probe, repository, "draft")
        == repository.git("rev-parse", "draft")
        == repository.git("rev-parse", "main")
    )
    assert observe_head(probe, repository, "draft/foo") is None
    assert not caplog.records


def test_symbolic_refs_are_followed(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    any_repository.git("symbolic-ref", "refs/heads/remote", "refs/remotes/origin/main")
    assert observe_head(probe, any_repository, "remote") is None
    first = any_repository.git("rev-parse", "main")
    any_repository.git("update-ref", "refs/remotes/origin/main", first)
    any_repository.git("pack-refs", "--all")
    second = any_repository.commit()
    assert observe_head(probe, any_repository, "alias") == second
    assert observe_head(probe, any_repository, "remote") == first
    any_repository.git("symbolic-ref", "refs/heads/alias", "refs/heads/nothing")
    assert observe_head(probe, any_repository, "alias") is None


def test_symbolic_ref_as_symlink(probe: LocalProbe, repository: GitTree) -> None:
    Path(repository.common, "refs/heads/alias").symlink_to("refs/heads/main")
    assert observe_head(probe, repository, "alias") == repository.git("rev-parse", "main")
    repository.git("pack-refs", "--all")
    assert (
        observe_head(probe, repository, "alias")
        == repository.git("rev-parse", "alias")
        == repository.git("rev-parse", "main")
    )


def test_cyclic_symbolic_refs_are_unreadable(probe: LocalProbe, repository: GitTree) -> None:
    Path(repository.common, "refs/heads/ping").write_text("ref: refs/heads/pong\n")
    Path(repository.common, "refs/heads/pong").write_text("ref: refs/heads/ping\n")
    assert observe_head(probe, repository, "ping") is UNREADABLE
    assert observe_head(probe, repository, "pong") is UNREADABLE


def test_unborn_branch_has_no_head(probe: LocalProbe, tmp_path: Path) -> None:
    tree = create_repository(tmp_path / "new")
    assert observe_head(probe, tree, "main") is None
    assert observe_head(probe, tree, "main") is None
    assert observe_head(probe, tree, "main") != tree.commit()
    assert observe_head(probe, tree, "main") == tree.git("rev-parse", "main")


def test_detached_head_does_not_move_branches(probe: LocalProbe, any_repository: GitTree) -> None:
    first = any_repository.git("rev-parse", "main")
    any_repository.git("checkout", "-q", "--detach")
    any_repository.commit()
    assert observe_head(probe, any_repository, "main") == first
    assert observe_head(probe, any_repository, "HEAD") is None


def test_linked_working_trees_share_branches(probe: LocalProbe, any_repository: GitTree, tmp_path: Path) -> None:
    any_repository.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    side = GitTree(tmp_path / "side")
    oid = side.commit()
    assert side.common == any_repository.common
    assert observe_head(probe, side, "side") == observe_head(probe, any_repository, "side") == oid
    assert observe_head(probe, side, "main") == any_repository.git("rev-parse", "main")


def test_head_in_bare_repository(probe: LocalProbe, any_repository: GitTree, tmp_path: Path) -> None:
    any_repository.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    assert observe_head(probe, GitTree(tmp_path / "bare.git"), "main") == any_repository.git("rev-parse", "main")


def test_heads_after_git_gc(probe: LocalProbe, any_repository: GitTree) -> None:
    any_repository.git("branch", "old")
    first = observe_head(probe, any_repository, "old")
    any_repository.commits(3)
    any_repository.git("gc", "-q", "--prune=now")
    assert observe_head(probe, any_repository, "old") == first
    assert observe_head(probe, any_repository, "main") == any_repository.git("rev-parse", "main")


def test_thousand_heads_in_one_observation(probe: LocalProbe, any_repository: GitTree) -> None:
    oids = [any_repository.git("rev-parse", "main"), any_repository.commit()]
    branches = {f"draft/{number}": oids[number % 2] for number in range(1000)}
    packed = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(branches.items())[:500])
    loose = "".join(f"create refs/heads/{branch} {oid}\n" for branch, oid in list(branches.items())[500:])
    any_repository.git("update-ref", "--stdin", stdin=packed)
    any_repository.git("pack-refs", "--all")
    any_repository.git("update-ref", "--stdin", stdin=loose)
    common = any_repository.common
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
def test_invalid_branch_name_has_no_head(probe: LocalProbe, repository: GitTree, name: str) -> None:
    assert run_git(repository.path, "check-ref-format", f"refs/heads/{name}").returncode == 1
    assert not is_ref_name(f"refs/heads/{name}")
    assert observe_head(probe, repository, name) is None


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_name_that_no_file_system_can_store_has_no_head(probe: LocalProbe, repository: GitTree, name: str) -> None:
    assert observe_head(probe, repository, name) is None


@given(name=st.text(alphabet="ab/.@{}-lock~ é", min_size=1, max_size=12))
@settings(max_examples=sample(30))
def test_ref_name_rule_agrees_with_git(name: str) -> None:
    assert is_ref_name(f"refs/heads/{name}") == (
        run_git(Path("/"), "check-ref-format", f"refs/heads/{name}").returncode == 0
    )


def test_branch_name_cannot_escape_the_repository(probe: LocalProbe, repository: GitTree) -> None:
    (repository.path / "secret").write_text("1" * 40)
    assert observe_head(probe, repository, "../../../secret") is None


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


@pytest.mark.parametrize("name", ["packed-refs", "config"])
def test_missing_packed_refs_and_config_are_accepted(probe: LocalProbe, repository: GitTree, name: str) -> None:
    Path(repository.common, name).unlink(missing_ok=True)
    fact = BranchHead(repository.common, "main")
    assert isinstance(probe.observe([fact])[fact], str)
