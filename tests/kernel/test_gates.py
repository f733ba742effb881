"""The gates in their order: the first that fails decides, and the docs have the same messages."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rota.kernel.breaker import OpenState
from rota.kernel.edges import DependencyPolicy
from rota.kernel.facts import BranchHead, Fact, FactValue, FileExists
from rota.kernel.gates import BEFORE_LOCKS, GATES, first_verdict
from rota.kernel.locks import LockFront
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Block, Pass, SkipVerdict, Undecided, Verdict, Wait, WaitKind
from tests.kernel.factories import EXCLUSIVE, NOW, REPOSITORY, candidate, edge, gate_context, need, pin

PAGE = (Path(__file__).parents[2] / "docs/concepts/gates.md").read_text()
ORDER = ("after", "artifacts", "pinned head", "delay", "paused", "size", "locks", "reservation", "pools")

SIZES = {"global": 1, "resource/gpu": 4}

# Inputs that fail each gate, and the resulting verdict.
CANDIDATE_FIELDS: dict[str, dict[str, Any]] = {
    "after": {"edges": (edge(9, Status.RUNNING),)},
    "artifacts": {"needs": (need("file:/plan.md", Status.RUNNING),)},
    "pinned head": {"pin": pin("main", "a" * 40)},
    "delay": {"not_before": NOW + timedelta(hours=1)},
    "size": {"demand": {"global": 1, "resource/gpu": 9}},
    "locks": {"locks": ["repo"]},
}
CONTEXT_FIELDS: dict[str, dict[str, Any]] = {
    "pinned head": {"observed": {BranchHead(REPOSITORY, "main"): "b" * 40}},
    "paused": {"paused": ["global"]},
    "size": {"sizes": SIZES},
    "locks": {"fronts": {"repo": LockFront(held=EXCLUSIVE)}},
    "reservation": {"sizes": SIZES, "reserved": {"global": 1}},
    "pools": {"sizes": SIZES, "usage": {"global": 1}},
}
VERDICTS = {
    "after": (Status.WAITING_ON_DEPS, WaitKind.DEPENDENCIES, "waiting on job job-9"),
    "artifacts": (Status.WAITING_ON_DEPS, WaitKind.DEPENDENCIES, "waiting on file:/plan.md"),
    "pinned head": (Status.WAITING_ON_DEPS, WaitKind.PINNED_HEAD, "pinned head mismatch on main"),
    "delay": (Status.QUEUED, WaitKind.DELAY, "not before 2026-01-31T13:00:00Z"),
    "paused": (Status.QUEUED, WaitKind.PAUSED, "paused by user"),
    "size": (Status.QUEUED, WaitKind.CAPACITY, "needs 9 of resource/gpu, whose size is 4"),
    "locks": (Status.WAITING_ON_LOCKS, WaitKind.LOCKS, "waiting on locks"),
    "reservation": (Status.QUEUED, WaitKind.RESERVATION, "direct execution has the next slot"),
    "pools": (Status.QUEUED, WaitKind.CAPACITY, "waiting on pool global (1/1)"),
}
SUBSETS = [chosen for count in range(len(ORDER) + 1) for chosen in combinations(ORDER, count)]


def _first_verdict(failing: tuple[str, ...]) -> Verdict:
    job = {name: value for gate in failing for name, value in CANDIDATE_FIELDS.get(gate, {}).items()}
    world = {name: value for gate in failing for name, value in CONTEXT_FIELDS.get(gate, {}).items()}
    return first_verdict(candidate(**job), gate_context(**world))


def test_gate_order_is_fixed() -> None:
    assert tuple(gate.name for gate in GATES) == ORDER


@pytest.mark.parametrize("failing", SUBSETS, ids="+".join)
def test_first_failing_gate_gives_the_verdict(failing: tuple[str, ...]) -> None:
    """Every pair and every other set of gates fails at once."""
    verdict = _first_verdict(failing)
    if not failing:
        assert verdict == PASS
        return
    assert isinstance(verdict, Wait)
    assert (verdict.status, verdict.kind, verdict.detail) == VERDICTS[failing[0]]


@pytest.mark.parametrize("failing", [chosen for chosen in SUBSETS if "after" not in chosen], ids="+".join)
def test_failed_dependency_takes_precedence_over_other_gates(failing: tuple[str, ...]) -> None:
    job = {name: value for gate in failing for name, value in CANDIDATE_FIELDS.get(gate, {}).items()}
    world = {name: value for gate in failing for name, value in CONTEXT_FIELDS.get(gate, {}).items()}
    blocked = candidate(edges=(edge(9, Status.FAILED),), **job)
    unneeded = candidate(edges=(edge(9, Status.COMPLETED, DependencyPolicy.FAILED),), **job)
    assert first_verdict(blocked, gate_context(**world)) == Block(detail="dependency failed for job job-9 (FAILED)")
    assert first_verdict(unneeded, gate_context(**world)) == SkipVerdict(reason="not needed: job-9 COMPLETED")


def test_each_gate_fails_alone() -> None:
    """Each input in the tables above fails only its own gate; otherwise the combinations would prove nothing."""
    for name in ORDER:
        job, world = candidate(**CANDIDATE_FIELDS.get(name, {})), gate_context(**CONTEXT_FIELDS.get(name, {}))
        failing = [gate.name for gate in GATES if gate.judge(job, world) != PASS]
        # An oversized demand fails the pools gate too.
        assert failing == (["size", "pools"] if name == "size" else [name])


def test_gates_before_locks() -> None:
    assert [gate.name for gate in BEFORE_LOCKS] == ["after", "artifacts", "pinned head", "delay", "paused", "size"]


def _documented_rows() -> list[tuple[str, str, str, str]]:
    matches = re.findall(r"^\| ([a-z ]*?) ?\| `([A-Z_]+)` \| (?:`([a-z_]+)`)? ?\| `([^`]+)` \|$", PAGE, re.MULTILINE)
    gate, documented = "", []
    for name, status, kind, text in matches:
        gate = name or gate
        documented.append((gate, status, kind, text))
    return documented


def test_docs_list_gates_in_order_with_exact_texts() -> None:
    edges = [
        edge(9, Status.RUNNING),
        edge(9, Status.FAILED),
        edge(9, None),
        edge(9, None, error="…"),
        edge(9, Status.COMPLETED, DependencyPolicy.FAILED),
    ]
    rows = [_make_row("after", first_verdict(candidate(edges=(unmet,)), gate_context())) for unmet in edges]
    missing: dict[Fact, FactValue] = {FileExists("/a"): False}
    needs = [
        need("file:/a", Status.QUEUED),
        need("file:/a", may_wait=True),
        need("file:/a"),
        need("file:/a", Status.FAILED),
    ]
    rows += [
        _make_row("artifacts", first_verdict(candidate(needs=(needed,)), gate_context(observed=missing)))
        for needed in needs
    ]
    rows += [_make_row(gate, _first_verdict((gate,))) for gate in ORDER[2:]]
    open_breaker = gate_context(breakers={"type/story": OpenState(NOW + timedelta(minutes=70))})
    rows.insert(12, _make_row("paused", first_verdict(candidate(breaker_keys=("type/story",)), open_breaker)))
    rows.insert(12, _make_row("paused", first_verdict(candidate(), gate_context(hold_text="disk swap until noon"))))
    assert _documented_rows() == [
        (gate, status, kind, text.replace("job-9", "job-N").replace("file:/a", "<artifact>"))
        for gate, status, kind, text in rows
    ]


def _make_row(gate: str, verdict: Verdict) -> tuple[str, str, str, str]:
    match verdict:
        case Wait():
            return (gate, verdict.status.value, verdict.kind.value, verdict.detail)
        case Block():
            return (gate, "BLOCKED_BY_DEPENDENCY", "", verdict.detail)
        case SkipVerdict():
            return (gate, "SKIPPED", "", verdict.reason)
        case Pass() | Undecided():
            return (gate, "", "", "")
