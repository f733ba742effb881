"""The state machine: the transition table, `advance`, and the docs (DEC-006)."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kernel.status import (
    ACTIVE,
    STARTED,
    STORED,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    IllegalTransition,
    Status,
    advance,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts/lifecycle.md").read_text()

# One row for each current status and one column for each next status, in the order of the rows. x: allowed; r: by
# rewind only.
TABLE = """
    QUEUED                 . x x x . . x x x x .
    WAITING_ON_DEPS        x . x . . . x x x x .
    WAITING_ON_LOCKS       x x . . . . x x x x .
    DISPATCHED             x . . . x x x x x . .
    RUNNING                . . . . . x x x x . .
    COMPLETED              r . . . . . . . . . .
    FAILED                 r . . . . . . . . . .
    SKIPPED                r . . . . . . . . . .
    CANCELLED              r . . . . . . . . . .
    BLOCKED_BY_DEPENDENCY  r . . . . . . . . . .
    UNREADABLE             . . . . . x x x x . .
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
NAMES = [row[0] for row in ROWS]
CELLS = {(row[0], name): cell for row in ROWS for name, cell in zip(NAMES, row[1:], strict=True)}

RUN_STATUSES = {"COMPLETED", "FAILED", "SKIPPED", "CANCELLED"}


def test_dec_006_statuses_are_exactly_the_documented_set() -> None:
    assert [status.value for status in Status] == NAMES


@pytest.mark.parametrize(("status", "to"), CELLS)
def test_dec_006_advance_follows_the_table(status: str, to: str) -> None:
    cell = CELLS[status, to]
    for rewind in (False, True):
        if cell == "x" or (cell == "r" and rewind):
            assert advance(Status(status), Status(to), rewind=rewind) is Status(to)
        else:
            with pytest.raises(IllegalTransition, match=f"^{status} -> {to}$"):
                advance(Status(status), Status(to), rewind=rewind)
    assert (Status(to) in TRANSITIONS[Status(status)]) is (cell != ".")


def test_derived_status_sets() -> None:
    assert {Status.QUEUED, Status.WAITING_ON_DEPS, Status.WAITING_ON_LOCKS} == WAITING
    assert {Status.DISPATCHED, Status.RUNNING} == STARTED
    assert WAITING | STARTED | {Status.UNREADABLE} == ACTIVE
    assert {Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED, Status.BLOCKED_BY_DEPENDENCY} == TERMINAL
    assert set(Status) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


@given(st.lists(st.sampled_from(Status)))
def test_dec_006_completed_job_never_changes_without_rewind(attempts: list[Status]) -> None:
    status = Status.COMPLETED
    for to in attempts:
        with pytest.raises(IllegalTransition):
            advance(status, to)


@given(st.lists(st.tuples(st.sampled_from(Status), st.booleans()), max_size=60))
def test_dec_006_only_rewind_leaves_a_terminal_status(attempts: list[tuple[Status, bool]]) -> None:
    """A terminal status is followed only by QUEUED, whatever is attempted."""
    path = [Status.QUEUED]
    for to, rewind in attempts:
        try:
            path.append(advance(path[-1], to, rewind=rewind))
        except IllegalTransition:
            continue
        if path[-2] in TERMINAL:
            assert rewind
    assert all(after is Status.QUEUED for before, after in pairwise(path) if before in TERMINAL)


def test_every_status_is_reachable_and_every_active_job_can_end() -> None:
    reached, frontier = {Status.QUEUED}, {Status.QUEUED}
    while frontier:
        frontier = {to for status in frontier for to in TRANSITIONS[status]} - reached
        reached |= frontier
    assert reached == STORED
    for status in ACTIVE:
        assert Status.CANCELLED in TRANSITIONS[status]
        assert Status.FAILED in TRANSITIONS[status]


def test_only_queued_jobs_can_be_dispatched() -> None:
    assert [status for status in Status if Status.DISPATCHED in TRANSITIONS[status]] == [Status.QUEUED]
    assert [status for status in Status if Status.RUNNING in TRANSITIONS[status]] == [Status.DISPATCHED]


@pytest.mark.parametrize("status", Status)
def test_dec_006_only_dispatched_has_another_public_status(status: Status) -> None:
    assert status.public is (Status.RUNNING if status is Status.DISPATCHED else status)


def test_run_statuses_are_the_ends_of_a_started_job() -> None:
    """A started job and its run have the same final statuses."""
    assert {to.value for status in STARTED for to in TRANSITIONS[status] if to in TERMINAL} == RUN_STATUSES


def _arrows() -> list[tuple[str, str]]:
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE, re.DOTALL)
    assert diagram is not None
    arrows = []
    for line in diagram[1].splitlines():
        if line.strip():
            arrow = re.fullmatch(r"    (\S+) --> (\S+)( : [a-z ]+)?", line)
            assert arrow is not None, line
            arrows.append((arrow[1], arrow[2]))
    return arrows


def test_dec_006_docs_diagram_matches_the_table() -> None:
    arrows = _arrows()
    assert len(arrows) == len(set(arrows))
    expected = {(status.value, to.value) for status, to in product(Status, Status) if to in TRANSITIONS[status]}
    assert set(arrows) == expected | {("[*]", "QUEUED")}


def test_dec_006_docs_classify_every_status() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| (active|terminal) \|$", PAGE, re.MULTILINE)
    assert rows == [(status.value, "active" if status in ACTIVE else "terminal") for status in Status]
