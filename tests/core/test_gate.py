"""The gates in their order: whoever stands first speaks, and the docs have the same words."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from core.making import EXCLUSIVE, NOW, REPOSITORY, edge, facts, need, pin, standing
from rota.core.after import AfterPolicy
from rota.core.breaker import Open
from rota.core.fact import Fact, File, Head, Seen
from rota.core.gate import BEFORE_LOCKS, GATES, first_verdict
from rota.core.lock import Front
from rota.core.status import Status
from rota.core.verdict import PASS, Block, Pass, Skip, Unknown, Verdict, Wait
from rota.core.wait import WaitKind

PAGE = (Path(__file__).parents[2] / "docs/job.md").read_text()
ORDER = ("after", "artifacts", "pinned head", "delay", "paused", "locks", "slot", "pools")

# How to fail each gate, and what it then says.
JOB: dict[str, dict[str, Any]] = {
    "after": {"edges": (edge(9, Status.RUNNING),)},
    "artifacts": {"needs": (need("file:/plan.md", Status.RUNNING),)},
    "pinned head": {"pin": pin("main", "a" * 40)},
    "delay": {"not_before": NOW + timedelta(hours=1)},
    "locks": {"locks": ["repo"]},
}
WORLD: dict[str, dict[str, Any]] = {
    "pinned head": {"seen": {Head(REPOSITORY, "main"): "b" * 40}},
    "paused": {"paused": ["global"]},
    "locks": {"fronts": {"repo": Front(held=EXCLUSIVE)}},
    "slot": {"sizes": {"global": 1}, "reserved": {"global": 1}},
    "pools": {"sizes": {"global": 1}, "used": {"global": 1}},
}
SAYS = {
    "after": (Status.WAITING_ON_DEPS, WaitKind.DEPENDENCIES, "waiting on job job-9"),
    "artifacts": (Status.WAITING_ON_DEPS, WaitKind.DEPENDENCIES, "waiting on file:/plan.md"),
    "pinned head": (Status.WAITING_ON_DEPS, WaitKind.PINNED_HEAD, "pinned head mismatch on main"),
    "delay": (Status.QUEUED, WaitKind.DELAY, "not before 2026-01-31T13:00:00Z"),
    "paused": (Status.QUEUED, WaitKind.PAUSED, "paused by ann"),
    "locks": (Status.WAITING_ON_LOCKS, WaitKind.LOCKS, "waiting on locks"),
    "slot": (Status.QUEUED, WaitKind.SLOT, "direct execution has the next slot"),
    "pools": (Status.QUEUED, WaitKind.CAPACITY, "waiting on pool global (1/1)"),
}
SUBSETS = [chosen for count in range(len(ORDER) + 1) for chosen in combinations(ORDER, count)]


def _ask(failing: tuple[str, ...]) -> Verdict:
    job = {name: value for gate in failing for name, value in JOB.get(gate, {}).items()}
    world = {name: value for gate in failing for name, value in WORLD.get(gate, {}).items()}
    return first_verdict(standing(**job), facts(**world))


def test_the_order_is_fixed() -> None:
    assert tuple(gate.name for gate in GATES) == ORDER


@pytest.mark.parametrize("failing", SUBSETS, ids="+".join)
def test_the_first_gate_that_does_not_pass_speaks_for_the_job(failing: tuple[str, ...]) -> None:
    """All pairs, and all other sets of gates failed at once."""
    verdict = _ask(failing)
    if not failing:
        assert verdict == PASS
        return
    assert isinstance(verdict, Wait)
    assert (verdict.status, verdict.kind, verdict.detail) == SAYS[failing[0]]


@pytest.mark.parametrize("failing", [chosen for chosen in SUBSETS if "after" not in chosen], ids="+".join)
def test_a_job_that_can_never_start_is_told_so_whatever_else_holds_it(failing: tuple[str, ...]) -> None:
    job = {name: value for gate in failing for name, value in JOB.get(gate, {}).items()}
    world = {name: value for gate in failing for name, value in WORLD.get(gate, {}).items()}
    blocked = standing(edges=(edge(9, Status.FAILED),), **job)
    unneeded = standing(edges=(edge(9, Status.COMPLETED, AfterPolicy.FAILED),), **job)
    assert first_verdict(blocked, facts(**world)) == Block(detail="dependency failed for job job-9 (FAILED)")
    assert first_verdict(unneeded, facts(**world)) == Skip(reason="not needed: job-9 COMPLETED")


def test_each_gate_fails_by_itself_and_no_other_does() -> None:
    """The table above fails what it says: otherwise the pairs would prove nothing."""
    for name in ORDER:
        job, world = standing(**JOB.get(name, {})), facts(**WORLD.get(name, {}))
        assert [gate.name for gate in GATES if gate.judge(job, world) != PASS] == [name]


def test_a_job_held_at_a_gate_before_locks_gives_up_its_turn_there() -> None:
    assert [gate.name for gate in BEFORE_LOCKS] == ["after", "artifacts", "pinned head", "delay", "paused"]


def _documented() -> list[tuple[str, str, str, str]]:
    rows = re.findall(r"^\| ([a-z ]*?) ?\| `([A-Z_]+)` \| (?:`([a-z_]+)`)? ?\| `([^`]+)` \|$", PAGE, re.MULTILINE)
    gate, named = "", []
    for name, status, kind, text in rows:
        gate = name or gate
        named.append((gate, status, kind, text))
    return named


def test_the_docs_have_the_gates_in_order_with_their_exact_texts() -> None:
    edges = [
        edge(9, Status.RUNNING),
        edge(9, Status.FAILED),
        edge(9, None),
        edge(9, None, error="…"),
        edge(9, Status.COMPLETED, AfterPolicy.FAILED),
    ]
    said = [_said("after", first_verdict(standing(edges=(fact,)), facts())) for fact in edges]
    missing: dict[Fact, Seen] = {File("/a"): False}
    needs = [
        need("file:/a", Status.QUEUED),
        need("file:/a", may_wait=True),
        need("file:/a"),
        need("file:/a", Status.FAILED),
    ]
    said += [_said("artifacts", first_verdict(standing(needs=(each,)), facts(seen=missing))) for each in needs]
    said += [_said(gate, _ask((gate,))) for gate in ORDER[2:]]
    broken = facts(breakers={"type/story": Open(NOW + timedelta(minutes=70))})
    said.insert(12, _said("paused", first_verdict(standing(keys=("type/story",)), broken)))
    said.insert(12, _said("paused", first_verdict(standing(), facts(held="disk swap until noon"))))
    assert _documented() == [
        (gate, status, kind, text.replace("job-9", "job-N").replace("file:/a", "<artifact>"))
        for gate, status, kind, text in said
    ]


def _said(gate: str, verdict: Verdict) -> tuple[str, str, str, str]:
    match verdict:
        case Wait():
            return (gate, verdict.status.value, verdict.kind.value, verdict.detail)
        case Block():
            return (gate, "BLOCKED_BY_DEPENDENCY", "", verdict.detail)
        case Skip():
            return (gate, "SKIPPED", "", verdict.reason)
        case Pass() | Unknown():
            return (gate, "", "", "")
