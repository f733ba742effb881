"""Shapes of work, each proven by what real children did in a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.rig import Rota, Stage


def _commits(repository: Path) -> list[str]:
    log = ["git", "log", "--reverse", "--format=%s"]
    return subprocess.run(log, cwd=repository, check=True, capture_output=True, text=True).stdout.split()


COMMIT = ["--", "sh", "-c", 'git commit -q --allow-empty -m "$0"']
"""Fails if two of them meet: git takes index.lock."""


def test_a_chain_commits_in_its_order(rota: Rota, repository: Path) -> None:
    """LESSONS Dispatch: finish, route and tick were three steps: a successor started too early."""
    rota.ask("pool", "set", "global", "-1")
    previous: list[str] = []
    jobs = []
    for name in ("one", "two", "three", "four"):
        jobs.append(rota.submit("--name", name, *previous, *COMMIT, name, cwd=repository))
        previous = ["--after", jobs[-1]]
    rota.wait(*jobs)
    assert _commits(repository) == ["begin", "one", "two", "three", "four"]


def test_fan_out_and_fan_in(rota: Rota, stage: Stage, repository: Path) -> None:
    """A diamond: the branches are there at the same time, and their merge sees both."""
    rota.ask("pool", "set", "global", "-1")
    top = rota.submit(*stage.actor("top"), cwd=repository)
    branches = ("left", "middle", "right")
    sides = [rota.submit("--after", top, *stage.actor(side), cwd=repository) for side in branches]
    after = [word for side in sides for word in ("--after", side)]
    bottom = rota.submit(*after, *stage.walk_on("bottom"), cwd=repository)
    assert stage.hear() == ["top begins"]
    assert rota.show(sides[0])["wait"] == {
        "kind": "dependencies",
        "detail": f"waiting on job {top}",
        "on": ["job:1"],
    }
    assert rota.show(bottom)["wait"]["detail"] == f"waiting on job {sides[0]}"
    assert rota.show(bottom)["after"] == [{"job": side, "policy": "success"} for side in sides]
    stage.release("top")
    assert stage.hear() == ["top ends"]
    assert sorted(stage.hear(3)) == [f"{side} begins" for side in branches], "all of them before any of them ends"
    for side in branches:
        stage.release(side)
    assert sorted(stage.hear(3)) == [f"{side} ends" for side in branches]
    rota.wait(bottom)
    assert stage.heard() == ["bottom begins", "bottom ends"]
    assert rota.show(bottom)["waited_on"] == ["dependencies"]
    assert rota.show(bottom)["wait"] is None


def test_a_failure_blocks_everything_behind_it_at_once(rota: Rota, stage: Stage) -> None:
    bad = rota.submit(*stage.actor("bad"))
    second = rota.submit("--after", bad, *stage.walk_on("second"))
    third = rota.submit("--after", second, *stage.walk_on("third"))
    fourth = rota.submit("--after", third, *stage.walk_on("fourth"))
    stage.release("bad", 5)
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
        assert rota.ask("why", job).out == f"{job} is BLOCKED_BY_DEPENDENCY: {text}\n"
    assert stage.heard() == ["bad begins", "bad ends"]
    late = rota.submit("--after", bad, *stage.walk_on("late"))
    rota.wait(late, code=1)
    assert rota.show(late)["reason"] == f"dependency failed for job {bad} (FAILED)"


def test_the_other_policies(rota: Rota, stage: Stage) -> None:
    bad = rota.submit(*stage.walk_on("bad", 3))
    good = rota.submit(*stage.walk_on("good"))
    gone = rota.submit("--delay", "1h", *stage.walk_on("gone"))
    jobs = {
        "cleaner": rota.submit("--after", f"{bad}:finished", *stage.walk_on("cleaner")),
        "medic": rota.submit("--after", f"{bad}:failed", *stage.walk_on("medic")),
        "idler": rota.submit("--after", f"{good}:failed", *stage.walk_on("idler")),
        "behind": rota.submit("--after", "job-6", *stage.walk_on("behind")),
        "unlucky": rota.submit("--after", f"{gone}:failed", *stage.walk_on("unlucky")),
        "undeterred": rota.submit("--after", f"{gone}:finished", *stage.walk_on("undeterred")),
    }
    rota.ask("cancel", gone)
    rota.wait(*jobs.values())
    assert {line.split()[0] for line in stage.heard()} == {"bad", "good", "cleaner", "medic", "behind", "undeterred"}
    assert rota.show(jobs["idler"])["status"] == "SKIPPED"
    assert rota.show(jobs["idler"])["reason"] == f"not needed: {good} COMPLETED"
    assert rota.show(jobs["idler"])["run"] is None
    assert rota.show(jobs["unlucky"])["reason"] == f"not needed: {gone} CANCELLED"


def test_why_names_what_holds_up_what_it_waits_for(rota: Rota, stage: Stage) -> None:
    first = rota.submit("--pool", "global=1", *stage.actor("first"))
    second = rota.submit("--after", first, *stage.walk_on("second"))
    third = rota.submit("--after", second, *stage.walk_on("third"))
    rota.running(first)
    lines = rota.ask("why", third).lines
    assert lines[:2] == [f"{third} is WAITING_ON_DEPS: waiting on job {second}",
                         f"  {second} is WAITING_ON_DEPS: waiting on job {first}"]  # fmt: skip
    assert lines[2].startswith(f"    {first} is RUNNING: it runs as pid ")
    stage.release("first")
    rota.wait(third)


def test_priority_then_the_order_of_submission(rota: Rota, stage: Stage) -> None:
    """INV-004."""
    rota.submit(*stage.actor("gatekeeper"))
    rota.submit("--priority", "-1", *stage.walk_on("last"))
    rota.submit(*stage.walk_on("third"))
    rota.submit("--priority", "5", *stage.walk_on("first"))
    rota.submit("--priority", "5", *stage.walk_on("second"))
    stage.release("gatekeeper")
    rota.wait("job-2")
    begun = [line.split()[0] for line in stage.heard() if line.endswith("begins")]
    assert begun == ["gatekeeper", "first", "second", "third", "last"]
