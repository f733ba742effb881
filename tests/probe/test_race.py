"""Others move, pack and delete branches while we look: every answer is one that was true."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from probe.rig import ENVIRONMENT, Tree
from rota.core.fact import Document, Fact, Head, Seen
from rota.probe.local import LocalProbe

ROUNDS = 40


def looks_until(probe: LocalProbe, facts: list[Fact], work: Callable[[], None]) -> list[dict[Fact, Seen]]:
    """All that was seen while the work went on, and once after it."""
    seen: list[dict[Fact, Seen]] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    while worker.is_alive():
        seen.append(probe.look(facts))
    worker.join()
    assert not failed, failed
    seen.append(probe.look(facts))
    return seen


def script(tree: Tree, text: str) -> None:
    subprocess.run(["sh", "-ec", text], cwd=tree.path, env=ENVIRONMENT, check=True, capture_output=True)


def test_a_branch_that_is_moved_and_packed_is_never_torn_nor_gone(probe: LocalProbe, tree: Tree) -> None:
    oids = tree.commits(2)
    tree.git("branch", "draft/foo")
    fact = Head(tree.common, "draft/foo")
    text = f"for i in $(seq {ROUNDS}); do git branch -f draft/foo {oids[0]}; git pack-refs --all; "
    text += f"git branch -f draft/foo {oids[1]}; git pack-refs --all; done"
    seen = [answer[fact] for answer in looks_until(probe, [fact], lambda: script(tree, text))]
    assert set(seen) <= set(oids)
    assert seen[-1] == oids[1]


def test_a_packed_branch_that_is_deleted_shows_no_older_value(probe: LocalProbe, tree: Tree) -> None:
    """Packed at the first commit, loose at the second: nobody may see the first again while it is deleted."""
    old, new = tree.commits(2)
    fact = Head(tree.common, "foo")
    for _ in range(ROUNDS // 4):
        tree.git("branch", "foo", old)
        tree.git("pack-refs", "--all")
        tree.git("branch", "-f", "foo", new)
        seen = [answer[fact] for answer in looks_until(probe, [fact], lambda: script(tree, "git branch -D foo"))]
        gone = seen.index(None)
        assert set(seen[:gone]) <= {new}
        assert set(seen[gone:]) == {None}


def test_a_head_and_its_document_agree(probe: LocalProbe, plain: Tree) -> None:
    without = plain.git("rev-parse", "main")
    with_it = plain.commit("plans/foo.md")
    head, document = Head(plain.common, "main"), Document(plain.common, "main", "plans/foo.md")
    text = f"for i in $(seq {ROUNDS}); do git update-ref refs/heads/main {without}; "
    text += f"git update-ref refs/heads/main {with_it}; done"
    for answer in looks_until(probe, [head, document], lambda: script(plain, text)):
        assert (answer[head], answer[document]) in {(without, False), (with_it, True)}


def test_new_commits_while_everything_is_repacked(probe: LocalProbe, plain: Tree) -> None:
    facts: list[Fact] = [Document(plain.common, "main", "README.md")]
    text = f"for i in $(seq {ROUNDS // 2}); do git commit -q --allow-empty -m $i; git repack -q -a -d; git prune; done"
    assert all(answer[facts[0]] is True for answer in looks_until(probe, facts, lambda: script(plain, text)))


def test_several_threads_may_look(probe: LocalProbe, plain: Tree) -> None:
    plain.commit(*(f"{number}.md" for number in range(20)))
    common, oid = plain.common, plain.git("rev-parse", "main")
    wrong: list[object] = []

    def look(number: int) -> None:
        facts: list[Fact] = [Document(common, "main", f"{number}.md"), Head(common, "main")]
        for _ in range(20):
            seen = probe.look(facts)
            if list(seen.values()) != [True, oid]:
                wrong.append(seen)

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["packed-refs", "config"])
def test_files_that_are_not_there(probe: LocalProbe, plain: Tree, name: str) -> None:
    Path(plain.common, name).unlink(missing_ok=True)
    fact = Head(plain.common, "main")
    assert isinstance(probe.look([fact])[fact], str)
