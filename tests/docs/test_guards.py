"""`docs/dev/guards.md`: every guard has tests, and a test covers every error that it names."""

from __future__ import annotations

import re

import pytest

from tests.docs.page import ROOT, named_tests, rows

GUARDS = (
    [f"INV-{n:03}" for n in range(1, 7)] + [f"DEC-{n:03}" for n in range(1, 13)] + [f"CON-{n:03}" for n in range(1, 5)]
)
PLANNED: dict[str, str] = {}
"""Guards that are not implemented yet, with the stage that implements them."""
_TEXT = re.compile(r"`([^`]*)`")


def guard_rows() -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in rows("dev/guards.md", "Guards")}


def test_every_guard_has_a_row_in_order() -> None:
    assert list(guard_rows()) == GUARDS


@pytest.mark.parametrize("guard", GUARDS)
def test_files_of_guard_exist(guard: str) -> None:
    _promise, files_cell, *_ = guard_rows()[guard]
    if guard in PLANNED:
        assert files_cell == f"to come: {PLANNED[guard]}"
        return
    files = [text for text in _TEXT.findall(files_cell) if "/" in text or text.endswith(".py")]
    assert files
    for file in files:
        assert (ROOT / "src" / "rota" / file).exists(), file


@pytest.mark.parametrize("guard", GUARDS)
def test_guard_names_unit_end_to_end_and_refusal_tests(guard: str) -> None:
    _promise, _files, unit, end_to_end, refused = guard_rows()[guard]
    if guard in PLANNED:
        assert [unit, end_to_end, refused] == [f"to come: {PLANNED[guard]}"] * 3
        return
    assert named_tests(unit)
    assert named_tests(end_to_end)
    assert "`e2e/" in end_to_end
    sources = named_tests(refused)
    assert sources
    for error in (text for text in _TEXT.findall(refused) if "::" not in text):
        assert any(error.partition("…")[0] in source for source in sources), error


RISKS = [
    "SQLite write contention under load",
    "missed triggers",
    "orphaned jobs on crash",
    "queue starvation (high priority flood)",
    "webhook infinite retry loops",
]
PLANNED_RISKS: dict[str, str] = {}


def test_every_risk_has_a_response_and_tests() -> None:
    risks = rows("dev/guards.md", "Risks")
    assert [cells[0] for cells in risks] == RISKS
    for risk, response, proof in risks:
        assert response
        if risk in PLANNED_RISKS:
            assert proof == f"to come: {PLANNED_RISKS[risk]}"
        else:
            assert named_tests(proof), risk
