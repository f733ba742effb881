"""`docs/guards.md`: every guard has its tests, every error that it names is one that a test has seen."""

from __future__ import annotations

import re

import pytest

from docs.page import ROOT, named_tests, rows

GUARDS = (
    [f"INV-{n:03}" for n in range(1, 7)] + [f"DEC-{n:03}" for n in range(1, 13)] + [f"CON-{n:03}" for n in range(1, 5)]
)
COMING: dict[str, str] = {}
"""Guards of nouns that are not built yet, and the stage that builds them."""
_TEXT = re.compile(r"`([^`]*)`")


def table() -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in rows("guards.md", "Guards")}


def test_there_is_a_row_for_every_guard_in_order() -> None:
    assert list(table()) == GUARDS


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_lives_in_files_that_exist(guard: str) -> None:
    _promise, place, *_ = table()[guard]
    if guard in COMING:
        assert place == f"to come: {COMING[guard]}"
        return
    files = [text for text in _TEXT.findall(place) if "/" in text or text.endswith(".py")]
    assert files
    for file in files:
        assert (ROOT / "src" / "rota" / file).exists(), file


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_has_a_unit_test_an_end_to_end_test_and_a_violation_that_is_refused(guard: str) -> None:
    _promise, _place, unit, end_to_end, refused = table()[guard]
    if guard in COMING:
        assert [unit, end_to_end, refused] == [f"to come: {COMING[guard]}"] * 3
        return
    assert named_tests(unit)
    assert named_tests(end_to_end)
    assert "`e2e/" in end_to_end
    sources = named_tests(refused)
    assert sources
    for error in (text for text in _TEXT.findall(refused) if "::" not in text):
        assert any(error.partition("…")[0] in source for source in sources), error


RISKS = [
    "SQLite write contention under load", "missed triggers", "orphaned jobs on crash",
    "queue starvation (high priority flood)", "webhook infinite retry loops",
]  # fmt: skip
RISKS_COMING: dict[str, str] = {}


def test_every_risk_has_an_answer_and_its_proof() -> None:
    risks = rows("guards.md", "Risks")
    assert [cells[0] for cells in risks] == RISKS
    for risk, answer, proof in risks:
        assert answer
        if risk in RISKS_COMING:
            assert proof == f"to come: {RISKS_COMING[risk]}"
        else:
            assert named_tests(proof), risk
