"""Observations during concurrent changes of branches: every observed value was true at some time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

from rota.kernel.facts import BranchFile, BranchHead, Fact, FactValue
from rota.probe.local import LocalProbe
from tests.probe.rig import ENVIRONMENT, GitTree

ROUNDS = 40


def observe_during(probe: LocalProbe, facts: list[Fact], work: Callable[[], None]) -> list[dict[Fact, FactValue]]:
    """Return all observations during the work, and one after it."""
    observations: list[dict[Fact, FactValue]] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - asserted in the test thread
            errors.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    while worker.is_alive():
        observations.append(probe.observe(facts))
    worker.join()
    assert not errors, errors
    observations.append(probe.observe(facts))
    return observations


def run_script(tree: GitTree, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=tree.path, env=ENVIRONMENT, check=True, capture_output=True)


def test_head_is_valid_while_branch_is_moved_and_packed(probe: LocalProbe, any_repository: GitTree) -> None:
    oids = any_repository.commits(2)
    any_repository.git("branch", "draft/foo")
    fact = BranchHead(any_repository.common, "draft/foo")
    script = f"for i in $(seq {ROUNDS}); do git branch -f draft/foo {oids[0]}; git pack-refs --all; "
    script += f"git branch -f draft/foo {oids[1]}; git pack-refs --all; done"
    values = [observed[fact] for observed in observe_during(probe, [fact], lambda: run_script(any_repository, script))]
    assert set(values) <= set(oids)
    assert values[-1] == oids[1]


def test_deleted_branch_shows_no_older_value(probe: LocalProbe, any_repository: GitTree) -> None:
    """The packed ref has the first commit and the loose ref the second. A deletion never shows the first one."""
    old, new = any_repository.commits(2)
    fact = BranchHead(any_repository.common, "foo")
    for _ in range(ROUNDS // 4):
        any_repository.git("branch", "foo", old)
        any_repository.git("pack-refs", "--all")
        any_repository.git("branch", "-f", "foo", new)
        observations = observe_during(probe, [fact], lambda: run_script(any_repository, "git branch -D foo"))
        values = [observed[fact] for observed in observations]
        deleted_at = values.index(None)
        assert set(values[:deleted_at]) <= {new}
        assert set(values[deleted_at:]) == {None}


def test_head_and_file_are_consistent(probe: LocalProbe, repository: GitTree) -> None:
    without = repository.git("rev-parse", "main")
    with_it = repository.commit("plans/foo.md")
    head, document = BranchHead(repository.common, "main"), BranchFile(repository.common, "main", "plans/foo.md")
    script = f"for i in $(seq {ROUNDS}); do git update-ref refs/heads/main {without}; "
    script += f"git update-ref refs/heads/main {with_it}; done"
    for observed in observe_during(probe, [head, document], lambda: run_script(repository, script)):
        assert (observed[head], observed[document]) in {(without, False), (with_it, True)}


def test_files_are_found_during_repacking(probe: LocalProbe, repository: GitTree) -> None:
    facts: list[Fact] = [BranchFile(repository.common, "main", "README.md")]
    script = (
        f"for i in $(seq {ROUNDS // 2}); do git commit -q --allow-empty -m $i; git repack -q -a -d; git prune; done"
    )
    observations = observe_during(probe, facts, lambda: run_script(repository, script))
    assert all(observed[facts[0]] is True for observed in observations)


def test_probe_is_thread_safe(probe: LocalProbe, repository: GitTree) -> None:
    repository.commit(*(f"{number}.md" for number in range(20)))
    common, oid = repository.common, repository.git("rev-parse", "main")
    unexpected: list[object] = []

    def observe_repeatedly(number: int) -> None:
        facts: list[Fact] = [BranchFile(common, "main", f"{number}.md"), BranchHead(common, "main")]
        for _ in range(20):
            observed = probe.observe(facts)
            if list(observed.values()) != [True, oid]:
                unexpected.append(observed)

    threads = [threading.Thread(target=observe_repeatedly, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not unexpected
