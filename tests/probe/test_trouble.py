"""What cannot be read is neither there nor gone, is said once, and spoils nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from probe.rig import Tree, make, make_named, run
from rota.core.fact import UNREADABLE, Document, Fact, File, Head, Seen
from rota.probe.local import LocalProbe
from rota.probe.trouble import Troubles


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def look_thrice(probe: LocalProbe, facts: list[Fact]) -> dict[Fact, Seen]:
    seen = [probe.look(facts) for _ in range(3)]
    assert seen[0] == seen[1] == seen[2]
    return seen[0]


def test_one_bad_repository_spoils_no_other(
    probe: LocalProbe, plain: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = Head(plain.common, "main")
    bad: list[Fact] = [
        Head(f"{tmp_path}/gone", "main"),
        Document(f"{tmp_path}/gone", "main", "x"),
        Head("a\0b", "main"),
    ]
    file = File(str(plain.path / "README.md"))
    seen = look_thrice(probe, [*bad, good, file])
    assert seen == {bad[0]: None, bad[1]: False, bad[2]: UNREADABLE, good: plain.git("rev-parse", "main"), file: True}
    assert len(warnings(caplog)) == 2
    assert f"repository {tmp_path}/gone cannot be read" in caplog.text


def test_a_repository_where_no_folder_can_be_is_not_there(probe: LocalProbe, plain: Tree) -> None:
    below = str(plain.path / "README.md/repo")
    head, fact = Head(below, "main"), Document(below, "main", "README.md")
    assert look_thrice(probe, [head, fact]) == {head: None, fact: False}


def test_a_repository_that_cannot_be_reached(
    probe: LocalProbe, plain: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    head, fact = Head(f"{ring}/.git", "main"), Document(f"{ring}/.git", "gone", "README.md")
    assert look_thrice(probe, [head, fact]) == {head: UNREADABLE, fact: UNREADABLE}
    assert len(warnings(caplog)) == 1
    ring.unlink()
    assert probe.look([head, fact]) == {head: None, fact: False}
    ring.symlink_to(plain.path)
    assert probe.look([head, fact]) == {head: plain.git("rev-parse", "main"), fact: False}


def test_a_repository_that_comes_back(
    probe: LocalProbe, plain: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    head, oid = Head(plain.common, "main"), plain.git("rev-parse", "main")
    assert probe.look([head]) == {head: oid}
    plain.path.rename(tmp_path / "away")
    assert look_thrice(probe, [head]) == {head: None}
    (tmp_path / "away").rename(plain.path)
    assert look_thrice(probe, [head]) == {head: oid}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 41, b"nonsense\n", b"12345\n", b"ref: /etc/passwd", b"ref: refs/../x"]
)
def test_one_bad_ref_spoils_no_other(
    probe: LocalProbe, plain: Tree, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine that lost its power leaves files without content."""
    Path(plain.common, "refs/heads/bad").write_bytes(content)
    good, bad, gone = (Head(plain.common, branch) for branch in ("main", "bad", "gone"))
    held, within = (Document(plain.common, branch, "README.md") for branch in ("main", "bad"))
    seen = look_thrice(probe, [bad, within, good, held, gone])
    assert seen == {bad: UNREADABLE, within: UNREADABLE, good: plain.git("rev-parse", "main"), held: True, gone: None}
    assert len(warnings(caplog)) == 1
    assert f"branch bad of {plain.common} cannot be read" in caplog.text
    Path(plain.common, "refs/heads/bad").unlink()
    assert probe.look([bad, within]) == {bad: None, within: False}


@pytest.mark.xfail(reason="what git only warns of in its list of branches is taken for not there")
@pytest.mark.parametrize("content", ["", "nonsense\n"])
def test_a_bad_ref_in_a_storage_that_only_git_reads(probe: LocalProbe, tmp_path: Path, content: str) -> None:
    tree = make_named(tmp_path / "repo")
    oid = tree.commit("README.md")
    Path(tree.common, "refs/heads/bad").write_text(content)
    good, bad, within = Head(tree.common, "main"), Head(tree.common, "bad"), Document(tree.common, "bad", "README.md")
    assert probe.look([good, bad, within]) == {good: oid, bad: UNREADABLE, within: UNREADABLE}


def test_a_broken_loose_ref_does_not_bring_back_the_packed_one(probe: LocalProbe, plain: Tree) -> None:
    plain.git("pack-refs", "--all")
    Path(plain.common, "refs/heads/main").write_bytes(b"")
    assert probe.look([Head(plain.common, "main")]) == {Head(plain.common, "main"): UNREADABLE}


@pytest.mark.parametrize("is_ring", [True, False], ids=["ring", "folder"])
def test_packed_refs_that_cannot_be_read(
    probe: LocalProbe, plain: Tree, is_ring: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A branch of its own file is known still; of any other nobody can say that it is not there."""
    oid, packed = plain.git("rev-parse", "main"), Path(plain.common, "packed-refs")
    packed.symlink_to(packed) if is_ring else packed.mkdir()
    loose, other = Head(plain.common, "main"), Head(plain.common, "other")
    assert look_thrice(probe, [loose, other]) == {loose: oid, other: UNREADABLE}
    assert len(warnings(caplog)) == 1
    packed.unlink() if is_ring else packed.rmdir()
    assert probe.look([loose, other]) == {loose: oid, other: None}


@pytest.mark.parametrize("ending", [b"\0" * 70, b"nonsense\n", None], ids=["zeros", "nonsense", "cut off"])
def test_packed_refs_that_are_broken(probe: LocalProbe, plain: Tree, ending: bytes | None) -> None:
    plain.git("pack-refs", "--all")
    packed = Path(plain.common, "packed-refs")
    packed.write_bytes(packed.read_bytes()[:-3] if ending is None else ending)
    assert "line in .git/packed-refs" in run(plain.path, "rev-parse", "main").stderr
    facts: list[Fact] = [Head(plain.common, "main"), Head(plain.common, "ma")]
    assert probe.look(facts) == dict.fromkeys(facts, UNREADABLE)


def test_settings_that_cannot_be_read(probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody knows how this repository keeps its refs."""
    common, config = plain.common, Path(plain.common, "config")
    config.unlink()
    config.symlink_to(config)
    facts: list[Fact] = [Head(common, "main"), Head(common, "gone"), Document(common, "main", "README.md")]
    assert look_thrice(probe, facts) == dict.fromkeys(facts, UNREADABLE)
    assert len(warnings(caplog)) == 1


def test_a_list_of_branches_that_git_refuses(probe: LocalProbe, tmp_path: Path) -> None:
    tree = make_named(tmp_path / "repo")
    oid, common = tree.commit("README.md"), tree.common
    facts: list[Fact] = [Head(common, "main"), Head(common, "gone"), Document(common, "main", "README.md")]
    assert list(probe.look(facts).values()) == [oid, None, True]
    whole = Path(common, "config").read_text()
    Path(common, "config").write_text(f"{whole}[nonsense")
    assert look_thrice(probe, facts) == dict.fromkeys(facts, UNREADABLE)
    Path(common, "config").write_text(whole)
    assert list(probe.look(facts).values()) == [oid, None, True]


def test_a_pipe_in_the_place_of_a_ref_holds_nobody_up(probe: LocalProbe, plain: Tree) -> None:
    os.mkfifo(f"{plain.common}/refs/heads/pipe")
    assert probe.look([Head(plain.common, "pipe")]) == {Head(plain.common, "pipe"): UNREADABLE}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_refs_that_may_not_be_read(probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture) -> None:
    head, refs = Head(plain.common, "main"), Path(plain.common, "refs/heads")
    refs.chmod(0)
    seen = look_thrice(probe, [head])
    refs.chmod(0o700)
    assert seen == {head: UNREADABLE}
    assert len(warnings(caplog)) == 1


def test_a_ref_that_leads_in_a_ring(probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture) -> None:
    ring = Path(plain.common, "refs/heads/ring")
    ring.symlink_to("ring")
    head = Head(plain.common, "ring")
    assert look_thrice(probe, [head]) == {head: UNREADABLE}
    assert len(warnings(caplog)) == 1


def test_a_branch_whose_commit_is_lost(probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture) -> None:
    lost = "1" * 40
    Path(plain.common, "refs/heads/lost").write_text(f"{lost}\n")
    facts: list[Fact] = [Document(plain.common, branch, "README.md") for branch in ("lost", "main")]
    assert list(look_thrice(probe, [*facts, Head(plain.common, "lost")]).values()) == [UNREADABLE, True, lost]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("length", [0, 20, -6], ids=["nothing", "the beginning", "nearly all"])
def test_one_corrupt_commit_spoils_no_other(
    probe: LocalProbe, plain: Tree, length: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some broken objects git says that they are missing, at others it ends."""
    common = plain.common
    for number in range(8):
        plain.git("checkout", "-q", "-b", f"b{number}")
        plain.commit(f"plans/{number}.md")
    facts = [Document(common, f"b{number}", f"plans/{number}.md") for number in range(8)]
    tree = plain.git("rev-parse", "b5:plans")
    path = Path(common, "objects", tree[:2], tree[2:])
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(whole[:length])
    expected: dict[Fact, Seen] = {fact: UNREADABLE if number == 5 else True for number, fact in enumerate(facts)}
    assert look_thrice(probe, list(facts)) == expected
    assert len(warnings(caplog)) == 1
    path.write_bytes(whole)
    monkeypatch.setattr("rota.probe.document.time.monotonic", lambda: 1e12)
    assert probe.look(facts) == dict.fromkeys(facts, True), "looked at again when some time has passed"


@pytest.mark.xfail(reason="git says of a lost folder what it says of one that never was, and it is kept for good")
@pytest.mark.parametrize("folder", ["plans", "plans/deep"])
def test_a_folder_that_is_lost(probe: LocalProbe, plain: Tree, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.commit("plans/deep/foo.md")
    oid = plain.git("rev-parse", f"main:{folder}")
    path = Path(plain.common, "objects", oid[:2], oid[2:])
    path.rename(plain.path / "away")
    facts = [Document(plain.common, "main", name) for name in ("plans/deep/foo.md", "README.md", "gone/foo.md")]
    assert list(probe.look(facts).values()) == [UNREADABLE, True, False]
    (plain.path / "away").rename(path)
    monkeypatch.setattr("rota.probe.document.time.monotonic", lambda: 1e12)
    assert list(probe.look(facts).values()) == [True, True, False]


def test_the_top_folder_of_a_commit_that_is_lost(probe: LocalProbe, plain: Tree) -> None:
    oid = plain.git("rev-parse", "main^{tree}")
    Path(plain.common, "objects", oid[:2], oid[2:]).unlink()
    facts = [Document(plain.common, "main", name) for name in ("README.md", "gone.md", "plans/foo.md", "/no/path")]
    assert list(look_thrice(probe, list(facts)).values()) == [UNREADABLE, UNREADABLE, UNREADABLE, False]


def test_what_git_only_mentions_does_not_hide_what_is_there(probe: LocalProbe, plain: Tree) -> None:
    """Objects borrowed from a repository that is gone: git says so each time and goes on.

    What was shown is certain, and so is what is missing from it. A folder that was not shown may be among the lost.
    """
    Path(plain.common, "objects/info").mkdir(exist_ok=True)
    Path(plain.common, "objects/info/alternates").write_text("/nowhere/objects\n")
    assert "error:" in run(plain.path, "cat-file", "-t", "main").stderr
    facts: list[Fact] = [Document(plain.common, "main", path) for path in ("README.md", "gone.md", "plans/foo.md")]
    assert list(look_thrice(probe, facts).values()) == [True, False, UNREADABLE]


def test_git_is_not_asked_every_second_for_a_commit_that_it_cannot_read(
    probe: LocalProbe, plain: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact = Document(plain.common, "lost", "README.md")
    Path(plain.common, "refs/heads/lost").write_text("1" * 40)
    assert probe.look([fact]) == {fact: UNREADABLE}
    monkeypatch.setattr("rota.probe.document.ask_closely", lambda *_, **__: pytest.fail("asked"))
    assert look_thrice(probe, [fact]) == {fact: UNREADABLE}


def test_a_repository_with_broken_settings(probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture) -> None:
    common = plain.common
    Path(common, "config").write_text("[nonsense")
    fact = Document(common, "main", "README.md")
    assert look_thrice(probe, [fact]) == {fact: UNREADABLE}
    assert len(warnings(caplog)) == 1
    assert "bad config" in caplog.text
    assert probe.top_of(str(plain.path)) is None
    assert probe.resolve(common, "0" * 40) is None


def test_without_git(
    probe: LocalProbe, plain: Tree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, fact = Head(plain.common, "main"), Document(plain.common, "main", "README.md")
    oid = plain.git("rev-parse", "main")
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", "/nowhere")
    gone = Document(plain.common, "gone", "README.md")
    assert look_thrice(probe, [head, fact, gone]) == {head: oid, fact: UNREADABLE, gone: False}
    assert len(warnings(caplog)) == 1
    assert "git cannot be run" in caplog.text
    monkeypatch.setenv("PATH", path)
    assert probe.look([fact]) == {fact: True}


def test_a_git_that_takes_too_long(
    probe: LocalProbe, plain: Tree, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = tmp_path / "bin/git"
    stuck.parent.mkdir()
    stuck.write_text(f"#!/bin/sh\nexec {shutil.which('sleep')} 1000\n")
    stuck.chmod(0o755)
    fact = Document(plain.common, "main", "README.md")
    monkeypatch.setenv("PATH", str(stuck.parent))
    monkeypatch.setattr("rota.probe.program._TIMEOUT", 0.05)
    assert probe.look([fact]) == {fact: UNREADABLE}
    assert "took longer" in caplog.text


def test_an_empty_folder_in_the_place_of_a_repository(probe: LocalProbe, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert probe.look([Head(f"{tmp_path}/empty", "main")]) == {Head(f"{tmp_path}/empty", "main"): None}


@pytest.mark.parametrize("lost", ["HEAD", "refs"])
def test_a_repository_that_has_lost_a_part(probe: LocalProbe, plain: Tree, lost: str) -> None:
    """Its objects are all there, and to git it is no repository any more."""
    head, fact = Head(plain.common, "main"), Document(plain.common, "main", "README.md")
    Path(plain.common, lost).rename(plain.path / "away")
    assert "not a git repository" in run(plain.path, "rev-parse", "main").stderr
    assert probe.look([head, fact]) == {head: UNREADABLE, fact: UNREADABLE}


def test_a_new_repository_in_the_place_of_an_old_one(probe: LocalProbe, plain: Tree) -> None:
    plain.git("pack-refs", "--all")
    head, fact = Head(plain.common, "main"), Document(plain.common, "main", "new.md")
    assert probe.look([head, fact]) == {head: plain.git("rev-parse", "main"), fact: False}
    shutil.rmtree(plain.path)
    again = make(plain.path)
    assert probe.look([head, fact]) == {head: None, fact: False}
    assert probe.look([head, fact]) != {head: again.commit("new.md"), fact: True}
    assert probe.look([head, fact]) == {head: again.git("rev-parse", "main"), fact: True}


def test_troubles_are_not_kept_without_bound(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles()
    for number in range(2500):
        troubles.tell(f"file {number}", "no")
        troubles.tell(f"file {number}", "no")
    assert len(warnings(caplog)) == 2500
    assert len(troubles._told) <= 1000
