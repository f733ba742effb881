"""Facts that cannot be read: UNREADABLE, logged once, and without effect on other facts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rota.kernel.facts import UNREADABLE, BranchFile, BranchHead, Fact, FactValue, FileExists
from rota.probe.git_command import Failures
from rota.probe.local import LocalProbe
from tests.probe.rig import GitTree, create_ref_storage_repository, create_repository, run_git


def logged_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def observe_three_times(probe: LocalProbe, facts: list[Fact]) -> dict[Fact, FactValue]:
    observations = [probe.observe(facts) for _ in range(3)]
    assert observations[0] == observations[1] == observations[2]
    return observations[0]


def test_bad_repository_does_not_affect_others(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = BranchHead(repository.common, "main")
    bad: list[Fact] = [
        BranchHead(f"{tmp_path}/gone", "main"),
        BranchFile(f"{tmp_path}/gone", "main", "x"),
        BranchHead("a\0b", "main"),
    ]
    file = FileExists(str(repository.path / "README.md"))
    observed = observe_three_times(probe, [*bad, good, file])
    assert observed == {
        bad[0]: None,
        bad[1]: False,
        bad[2]: UNREADABLE,
        good: repository.git("rev-parse", "main"),
        file: True,
    }
    assert len(logged_warnings(caplog)) == 2
    assert f"repository {tmp_path}/gone cannot be read" in caplog.text


def test_repository_below_a_file_does_not_exist(probe: LocalProbe, repository: GitTree) -> None:
    below = str(repository.path / "README.md/repo")
    head, fact = BranchHead(below, "main"), BranchFile(below, "main", "README.md")
    assert observe_three_times(probe, [head, fact]) == {head: None, fact: False}


def test_unreachable_repository_is_unreadable(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    head, fact = BranchHead(f"{ring}/.git", "main"), BranchFile(f"{ring}/.git", "gone", "README.md")
    assert observe_three_times(probe, [head, fact]) == {head: UNREADABLE, fact: UNREADABLE}
    assert len(logged_warnings(caplog)) == 1
    ring.unlink()
    assert probe.observe([head, fact]) == {head: None, fact: False}
    ring.symlink_to(repository.path)
    assert probe.observe([head, fact]) == {head: repository.git("rev-parse", "main"), fact: False}


def test_restored_repository_is_read_again(
    probe: LocalProbe, repository: GitTree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    head, oid = BranchHead(repository.common, "main"), repository.git("rev-parse", "main")
    assert probe.observe([head]) == {head: oid}
    repository.path.rename(tmp_path / "away")
    assert observe_three_times(probe, [head]) == {head: None}
    (tmp_path / "away").rename(repository.path)
    assert observe_three_times(probe, [head]) == {head: oid}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 41, b"nonsense\n", b"12345\n", b"ref: /etc/passwd", b"ref: refs/../x"]
)
def test_bad_ref_does_not_affect_others(
    probe: LocalProbe, repository: GitTree, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A power loss can leave refs without content."""
    Path(repository.common, "refs/heads/bad").write_bytes(content)
    good, bad, gone = (BranchHead(repository.common, branch) for branch in ("main", "bad", "gone"))
    held, within = (BranchFile(repository.common, branch, "README.md") for branch in ("main", "bad"))
    observed = observe_three_times(probe, [bad, within, good, held, gone])
    assert observed == {
        bad: UNREADABLE,
        within: UNREADABLE,
        good: repository.git("rev-parse", "main"),
        held: True,
        gone: None,
    }
    assert len(logged_warnings(caplog)) == 1
    assert f"branch bad of {repository.common} cannot be read" in caplog.text
    Path(repository.common, "refs/heads/bad").unlink()
    assert probe.observe([bad, within]) == {bad: None, within: False}


@pytest.mark.xfail(reason="a ref that git skips with a warning in its list of branches counts as missing")
@pytest.mark.parametrize("content", ["", "nonsense\n"])
def test_bad_ref_in_git_only_storage_is_unreadable(probe: LocalProbe, tmp_path: Path, content: str) -> None:
    tree = create_ref_storage_repository(tmp_path / "repo")
    oid = tree.commit("README.md")
    Path(tree.common, "refs/heads/bad").write_text(content)
    good, bad, within = (
        BranchHead(tree.common, "main"),
        BranchHead(tree.common, "bad"),
        BranchFile(tree.common, "bad", "README.md"),
    )
    assert probe.observe([good, bad, within]) == {good: oid, bad: UNREADABLE, within: UNREADABLE}


def test_broken_loose_ref_hides_packed_ref(probe: LocalProbe, repository: GitTree) -> None:
    repository.git("pack-refs", "--all")
    Path(repository.common, "refs/heads/main").write_bytes(b"")
    assert probe.observe([BranchHead(repository.common, "main")]) == {BranchHead(repository.common, "main"): UNREADABLE}


@pytest.mark.parametrize("is_ring", [True, False], ids=["ring", "folder"])
def test_unreadable_packed_refs(
    probe: LocalProbe, repository: GitTree, is_ring: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A branch with a loose ref is still known. Any other branch is unreadable, because it may be packed."""
    oid, packed = repository.git("rev-parse", "main"), Path(repository.common, "packed-refs")
    packed.symlink_to(packed) if is_ring else packed.mkdir()
    loose, other = BranchHead(repository.common, "main"), BranchHead(repository.common, "other")
    assert observe_three_times(probe, [loose, other]) == {loose: oid, other: UNREADABLE}
    assert len(logged_warnings(caplog)) == 1
    packed.unlink() if is_ring else packed.rmdir()
    assert probe.observe([loose, other]) == {loose: oid, other: None}


@pytest.mark.parametrize("ending", [b"\0" * 70, b"nonsense\n", None], ids=["zeros", "nonsense", "cut off"])
def test_damaged_packed_refs(probe: LocalProbe, repository: GitTree, ending: bytes | None) -> None:
    repository.git("pack-refs", "--all")
    packed = Path(repository.common, "packed-refs")
    packed.write_bytes(packed.read_bytes()[:-3] if ending is None else ending)
    assert "line in .git/packed-refs" in run_git(repository.path, "rev-parse", "main").stderr
    facts: list[Fact] = [BranchHead(repository.common, "main"), BranchHead(repository.common, "ma")]
    assert probe.observe(facts) == dict.fromkeys(facts, UNREADABLE)


def test_unreadable_config_makes_all_facts_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    """Without its config, the ref storage of the repository is unknown."""
    common, config = repository.common, Path(repository.common, "config")
    config.unlink()
    config.symlink_to(config)
    facts: list[Fact] = [
        BranchHead(common, "main"),
        BranchHead(common, "gone"),
        BranchFile(common, "main", "README.md"),
    ]
    assert observe_three_times(probe, facts) == dict.fromkeys(facts, UNREADABLE)
    assert len(logged_warnings(caplog)) == 1


def test_failed_list_of_branches_makes_all_facts_unreadable(probe: LocalProbe, tmp_path: Path) -> None:
    tree = create_ref_storage_repository(tmp_path / "repo")
    oid, common = tree.commit("README.md"), tree.common
    facts: list[Fact] = [
        BranchHead(common, "main"),
        BranchHead(common, "gone"),
        BranchFile(common, "main", "README.md"),
    ]
    assert list(probe.observe(facts).values()) == [oid, None, True]
    config = Path(common, "config").read_text()
    Path(common, "config").write_text(f"{config}[nonsense")
    assert observe_three_times(probe, facts) == dict.fromkeys(facts, UNREADABLE)
    Path(common, "config").write_text(config)
    assert list(probe.observe(facts).values()) == [oid, None, True]


def test_fifo_in_place_of_ref_does_not_block(probe: LocalProbe, repository: GitTree) -> None:
    os.mkfifo(f"{repository.common}/refs/heads/pipe")
    assert probe.observe([BranchHead(repository.common, "pipe")]) == {BranchHead(repository.common, "pipe"): UNREADABLE}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_refs_without_permission_are_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    head, refs = BranchHead(repository.common, "main"), Path(repository.common, "refs/heads")
    refs.chmod(0)
    observed = observe_three_times(probe, [head])
    refs.chmod(0o700)
    assert observed == {head: UNREADABLE}
    assert len(logged_warnings(caplog)) == 1


def test_ref_with_symlink_loop_is_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    ring = Path(repository.common, "refs/heads/ring")
    ring.symlink_to("ring")
    head = BranchHead(repository.common, "ring")
    assert observe_three_times(probe, [head]) == {head: UNREADABLE}
    assert len(logged_warnings(caplog)) == 1


def test_file_of_lost_commit_is_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    lost = "1" * 40
    Path(repository.common, "refs/heads/lost").write_text(f"{lost}\n")
    facts: list[Fact] = [BranchFile(repository.common, branch, "README.md") for branch in ("lost", "main")]
    assert list(observe_three_times(probe, [*facts, BranchHead(repository.common, "lost")]).values()) == [
        UNREADABLE,
        True,
        lost,
    ]
    assert len(logged_warnings(caplog)) == 1


@pytest.mark.parametrize("length", [0, 20, -6], ids=["nothing", "the beginning", "nearly all"])
def test_corrupt_tree_does_not_affect_other_branches(
    probe: LocalProbe,
    repository: GitTree,
    length: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Git reports some corrupt objects as missing, and exits on others."""
    common = repository.common
    for number in range(8):
        repository.git("checkout", "-q", "-b", f"b{number}")
        repository.commit(f"plans/{number}.md")
    facts = [BranchFile(common, f"b{number}", f"plans/{number}.md") for number in range(8)]
    tree = repository.git("rev-parse", "b5:plans")
    path = Path(common, "objects", tree[:2], tree[2:])
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:length])
    expected: dict[Fact, FactValue] = {fact: UNREADABLE if number == 5 else True for number, fact in enumerate(facts)}
    assert observe_three_times(probe, list(facts)) == expected
    assert len(logged_warnings(caplog)) == 1
    path.write_bytes(content)
    monkeypatch.setattr("rota.probe.branch_files.time.monotonic", lambda: 1e12)
    assert probe.observe(facts) == dict.fromkeys(facts, True), "read again after the retry interval"


@pytest.mark.xfail(reason="git reports a lost folder like one that never existed, and the result is cached forever")
@pytest.mark.parametrize("folder", ["plans", "plans/deep"])
def test_file_in_lost_folder_is_unreadable(
    probe: LocalProbe, repository: GitTree, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit("plans/deep/foo.md")
    oid = repository.git("rev-parse", f"main:{folder}")
    path = Path(repository.common, "objects", oid[:2], oid[2:])
    path.rename(repository.path / "away")
    facts = [BranchFile(repository.common, "main", name) for name in ("plans/deep/foo.md", "README.md", "gone/foo.md")]
    assert list(probe.observe(facts).values()) == [UNREADABLE, True, False]
    (repository.path / "away").rename(path)
    monkeypatch.setattr("rota.probe.branch_files.time.monotonic", lambda: 1e12)
    assert list(probe.observe(facts).values()) == [True, True, False]


def test_files_in_lost_root_tree_are_unreadable(probe: LocalProbe, repository: GitTree) -> None:
    oid = repository.git("rev-parse", "main^{tree}")
    Path(repository.common, "objects", oid[:2], oid[2:]).unlink()
    facts = [
        BranchFile(repository.common, "main", name) for name in ("README.md", "gone.md", "plans/foo.md", "/no/path")
    ]
    assert list(observe_three_times(probe, list(facts)).values()) == [UNREADABLE, UNREADABLE, UNREADABLE, False]


def test_git_warning_does_not_hide_readable_files(probe: LocalProbe, repository: GitTree) -> None:
    """The object store of an alternate repository is gone: git prints an error each time and continues.

    Printed folders are reliable, and so is a file that they lack. A folder that was not printed may be lost.
    """
    Path(repository.common, "objects/info").mkdir(exist_ok=True)
    Path(repository.common, "objects/info/alternates").write_text("/nowhere/objects\n")
    assert "error:" in run_git(repository.path, "cat-file", "-t", "main").stderr
    facts: list[Fact] = [
        BranchFile(repository.common, "main", path) for path in ("README.md", "gone.md", "plans/foo.md")
    ]
    assert list(observe_three_times(probe, facts).values()) == [True, False, UNREADABLE]


def test_unreadable_commit_is_not_read_on_every_observation(
    probe: LocalProbe, repository: GitTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = BranchFile(repository.common, "lost", "README.md")
    Path(repository.common, "refs/heads/lost").write_text("1" * 40)
    assert probe.observe([fact]) == {fact: UNREADABLE}
    monkeypatch.setattr("rota.probe.branch_files.run_git_with_error", lambda *_, **__: pytest.fail("git was run"))
    assert observe_three_times(probe, [fact]) == {fact: UNREADABLE}


def test_repository_with_broken_config_is_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture
) -> None:
    common = repository.common
    Path(common, "config").write_text("[nonsense")
    fact = BranchFile(common, "main", "README.md")
    assert observe_three_times(probe, [fact]) == {fact: UNREADABLE}
    assert len(logged_warnings(caplog)) == 1
    assert "bad config" in caplog.text
    assert probe.find_worktree_root(str(repository.path)) is None
    assert probe.resolve_commit(common, "0" * 40) is None


def test_missing_git_program_makes_files_unreadable(
    probe: LocalProbe, repository: GitTree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, fact = BranchHead(repository.common, "main"), BranchFile(repository.common, "main", "README.md")
    oid = repository.git("rev-parse", "main")
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    gone = BranchFile(repository.common, "gone", "README.md")
    assert observe_three_times(probe, [head, fact, gone]) == {head: oid, fact: UNREADABLE, gone: False}
    assert len(logged_warnings(caplog)) == 1
    assert "git cannot be run" in caplog.text
    monkeypatch.setenv("PATH", path)
    assert probe.observe([fact]) == {fact: True}


def test_slow_git_times_out(
    probe: LocalProbe,
    repository: GitTree,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hanging_git = tmp_path / "bin/git"
    hanging_git.parent.mkdir()
    hanging_git.write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 1000\n")
    hanging_git.chmod(0o755)
    fact = BranchFile(repository.common, "main", "README.md")
    monkeypatch.setenv("PATH", str(hanging_git.parent))
    monkeypatch.setattr("rota.probe.git_command._GIT_TIMEOUT", 0.05)
    assert probe.observe([fact]) == {fact: UNREADABLE}
    assert "took longer" in caplog.text


def test_empty_folder_is_not_a_repository(probe: LocalProbe, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert probe.observe([BranchHead(f"{tmp_path}/empty", "main")]) == {BranchHead(f"{tmp_path}/empty", "main"): None}


@pytest.mark.parametrize("lost", ["HEAD", "refs"])
def test_repository_without_head_or_refs_is_unreadable(probe: LocalProbe, repository: GitTree, lost: str) -> None:
    """All objects exist, but git does not accept the repository."""
    head, fact = BranchHead(repository.common, "main"), BranchFile(repository.common, "main", "README.md")
    Path(repository.common, lost).rename(repository.path / "away")
    assert "not a git repository" in run_git(repository.path, "rev-parse", "main").stderr
    assert probe.observe([head, fact]) == {head: UNREADABLE, fact: UNREADABLE}


def test_replaced_repository_is_read_again(probe: LocalProbe, repository: GitTree) -> None:
    repository.git("pack-refs", "--all")
    head, fact = BranchHead(repository.common, "main"), BranchFile(repository.common, "main", "new.md")
    assert probe.observe([head, fact]) == {head: repository.git("rev-parse", "main"), fact: False}
    shutil.rmtree(repository.path)
    new = create_repository(repository.path)
    assert probe.observe([head, fact]) == {head: None, fact: False}
    assert probe.observe([head, fact]) != {head: new.commit("new.md"), fact: True}
    assert probe.observe([head, fact]) == {head: new.git("rev-parse", "main"), fact: True}


def test_number_of_reported_failures_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    failures = Failures()
    for number in range(2500):
        failures.report(f"file {number}", "no")
        failures.report(f"file {number}", "no")
    assert len(logged_warnings(caplog)) == 2500
    assert len(failures._reported) <= 1000
