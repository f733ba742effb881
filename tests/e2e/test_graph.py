"""Dependency graphs of several shapes, run by real jobs in a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.e2e.rig import ChildControl, Rota


def _commits(repository: Path) -> list[str]:
    log = ["git", "log", "--reverse", "--format=%s"]
    return subprocess.run(log, cwd=repository, check=True, capture_output=True, text=True).stdout.split()


COMMIT = ["--", "sh", "-c", 'git commit -q --allow-empty -m "$0"']
"""Fails when two of them run at the same time, because git takes index.lock."""


def test_chain_runs_in_order(rota: Rota, repository: Path) -> None:
    """LESSONS Dispatch: finish, route and tick were three steps: a successor started too early."""
    rota.run("pool", "set", "global", "-1")
    previous: list[str] = []
    jobs = []
    for name in ("one", "two", "three", "four"):
        jobs.append(rota.submit("--name", name, *previous, *COMMIT, name, cwd=repository))
        previous = ["--after", jobs[-1]]
    rota.wait(*jobs)
    assert _commits(repository) == ["begin", "one", "two", "three", "four"]


def test_fan_out_and_fan_in_wait_for_all_branches(rota: Rota, children: ChildControl, repository: Path) -> None:
    """The branches run concurrently, and the merge runs after all of them."""
    rota.run("pool", "set", "global", "-1")
    top = rota.submit(*children.gated("top"), cwd=repository)
    branches = ("left", "middle", "right")
    sides = [rota.submit("--after", top, *children.gated(side), cwd=repository) for side in branches]
    after = [word for side in sides for word in ("--after", side)]
    bottom = rota.submit(*after, *children.immediate("bottom"), cwd=repository)
    assert children.read_lines() == ["top begins"]
    assert rota.show(sides[0])["wait"] == {
        "kind": "dependencies",
        "detail": f"waiting on job {top}",
        "topics": ["job:1"],
    }
    assert rota.show(bottom)["wait"]["detail"] == f"waiting on job {sides[0]}"
    assert rota.show(bottom)["after"] == [{"job": side, "policy": "success"} for side in sides]
    children.release("top")
    assert children.read_lines() == ["top ends"]
    assert sorted(children.read_lines(3)) == [f"{side} begins" for side in branches], (
        "all branches begin before the first one ends"
    )
    for side in branches:
        children.release(side)
    assert sorted(children.read_lines(3)) == [f"{side} ends" for side in branches]
    rota.wait(bottom)
    assert children.read_available() == ["bottom begins", "bottom ends"]
    assert rota.show(bottom)["waited_on"] == ["dependencies"]
    assert rota.show(bottom)["wait"] is None


def test_failure_blocks_all_dependents_immediately(rota: Rota, children: ChildControl) -> None:
    bad = rota.submit(*children.gated("bad"))
    second = rota.submit("--after", bad, *children.immediate("second"))
    third = rota.submit("--after", second, *children.immediate("third"))
    fourth = rota.submit("--after", third, *children.immediate("fourth"))
    children.release("bad", 5)
    rota.wait(bad, code=5)
    texts = {
        second: f"dependency failed for job {bad} (FAILED)",
        third: f"dependency failed for job {second} (BLOCKED_BY_DEPENDENCY)",
        fourth: f"dependency failed for job {third} (BLOCKED_BY_DEPENDENCY)",
    }
    for job, text in texts.items():
        shown = rota.show(job)
        assert shown["status"] == "BLOCKED_BY_DEPENDENCY"
        assert (shown["reason"], shown["wait"]["detail"], shown["run"]) == (text, text, None)
        assert rota.run("why", job).out == f"{job} is BLOCKED_BY_DEPENDENCY: {text}\n"
    assert children.read_available() == ["bad begins", "bad ends"]
    late = rota.submit("--after", bad, *children.immediate("late"))
    rota.wait(late, code=1)
    assert rota.show(late)["reason"] == f"dependency failed for job {bad} (FAILED)"


def test_dependency_policies_finished_and_failed(rota: Rota, children: ChildControl) -> None:
    bad = rota.submit(*children.immediate("bad", 3))
    good = rota.submit(*children.immediate("good"))
    cancelled = rota.submit("--delay", "1h", *children.immediate("gone"))
    jobs = {
        "cleaner": rota.submit("--after", f"{bad}:finished", *children.immediate("cleaner")),
        "medic": rota.submit("--after", f"{bad}:failed", *children.immediate("medic")),
        "idler": rota.submit("--after", f"{good}:failed", *children.immediate("idler")),
        "behind": rota.submit("--after", "job-6", *children.immediate("behind")),
        "unlucky": rota.submit("--after", f"{cancelled}:failed", *children.immediate("unlucky")),
        "undeterred": rota.submit("--after", f"{cancelled}:finished", *children.immediate("undeterred")),
    }
    rota.run("cancel", cancelled)
    rota.wait(*jobs.values())
    assert {line.split()[0] for line in children.read_available()} == {
        "bad",
        "good",
        "cleaner",
        "medic",
        "behind",
        "undeterred",
    }
    assert rota.show(jobs["idler"])["status"] == "SKIPPED"
    assert rota.show(jobs["idler"])["reason"] == f"not needed: {good} COMPLETED"
    assert rota.show(jobs["idler"])["run"] is None
    assert rota.show(jobs["unlucky"])["reason"] == f"not needed: {cancelled} CANCELLED"


def test_why_explains_the_whole_chain_of_dependencies(rota: Rota, children: ChildControl) -> None:
    first = rota.submit("--pool", "global=1", *children.gated("first"))
    second = rota.submit("--after", first, *children.immediate("second"))
    third = rota.submit("--after", second, *children.immediate("third"))
    rota.wait_for_start(first)
    lines = rota.run("why", third).lines
    assert lines[:2] == [
        f"{third} is WAITING_ON_DEPS: waiting on job {second}",
        f"  {second} is WAITING_ON_DEPS: waiting on job {first}",
    ]
    assert lines[2].startswith(f"    {first} is RUNNING: it runs as pid ")
    children.release("first")
    rota.wait(third)


def test_jobs_start_by_priority_then_submission_order(rota: Rota, children: ChildControl) -> None:
    """INV-004."""
    rota.submit(*children.gated("gatekeeper"))
    rota.submit("--priority", "-1", *children.immediate("last"))
    rota.submit(*children.immediate("third"))
    rota.submit("--priority", "5", *children.immediate("first"))
    rota.submit("--priority", "5", *children.immediate("second"))
    children.release("gatekeeper")
    rota.wait("job-2")
    started = [line.split()[0] for line in children.read_available() if line.endswith("begins")]
    assert started == ["gatekeeper", "first", "second", "third", "last"]
