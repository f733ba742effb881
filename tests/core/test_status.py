"""The state machine: the table cell by cell, the door, and that the docs say the same (DEC-006)."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.status import ACTIVE, STARTED, TERMINAL, TRANSITIONS, WAITING, IllegalTransition, Status, advance

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/job.md").read_text()

# One row for each status as it is, one column for each as it may become, in the order of the rows:
# x always, r by rewind only.
TABLE = """
    QUEUED                 . x x x . . x x x x
    WAITING_ON_DEPS        x . x . . . x x x x
    WAITING_ON_LOCKS       x x . . . . x x x x
    DISPATCHED             x . . . x x x x x .
    RUNNING                . . . . . x x x x .
    COMPLETED              r . . . . . . . . .
    FAILED                 r . . . . . . . . .
    SKIPPED                r . . . . . . . . .
    CANCELLED              r . . . . . . . . .
    BLOCKED_BY_DEPENDENCY  r . . . . . . . . .
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]
NAMES = [row[0] for row in ROWS]
CELLS = {(row[0], name): cell for row in ROWS for name, cell in zip(NAMES, row[1:], strict=True)}

RUN_STATUSES = {"COMPLETED", "FAILED", "SKIPPED", "CANCELLED"}


def test_dec_006_the_statuses_are_exactly_these() -> None:
    assert [status.value for status in Status] == NAMES


@pytest.mark.parametrize(("status", "to"), CELLS)
def test_dec_006_the_door_opens_where_the_table_says(status: str, to: str) -> None:
    cell = CELLS[status, to]
    for rewind in (False, True):
        if cell == "x" or (cell == "r" and rewind):
            assert advance(Status(status), Status(to), rewind=rewind) is Status(to)
        else:
            with pytest.raises(IllegalTransition, match=f"^{status} -> {to}$"):
                advance(Status(status), Status(to), rewind=rewind)
    assert (Status(to) in TRANSITIONS[Status(status)]) is (cell != ".")


def test_derived_sets() -> None:
    assert {Status.QUEUED, Status.WAITING_ON_DEPS, Status.WAITING_ON_LOCKS} == WAITING
    assert {Status.DISPATCHED, Status.RUNNING} == STARTED
    assert ACTIVE == WAITING | STARTED
    assert {
        Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED, Status.BLOCKED_BY_DEPENDENCY,
    } == TERMINAL  # fmt: skip
    assert set(Status) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


@given(st.lists(st.sampled_from(Status)))
def test_dec_006_a_completed_job_never_becomes_failed_whatever_is_tried(attempts: list[Status]) -> None:
    status = Status.COMPLETED
    for to in attempts:
        with pytest.raises(IllegalTransition):
            advance(status, to)


@given(st.lists(st.tuples(st.sampled_from(Status), st.booleans()), max_size=60))
def test_dec_006_between_two_terminal_statuses_lies_a_rewind(attempts: list[tuple[Status, bool]]) -> None:
    """However a job is pushed about, a terminal status is followed by QUEUED and nothing else."""
    way = [Status.QUEUED]
    for to, rewind in attempts:
        try:
            way.append(advance(way[-1], to, rewind=rewind))
        except IllegalTransition:
            continue
        if way[-2] in TERMINAL:
            assert rewind
    assert all(after is Status.QUEUED for before, after in pairwise(way) if before in TERMINAL)


def test_every_status_can_be_reached_and_every_active_one_can_end() -> None:
    reached, border = {Status.QUEUED}, {Status.QUEUED}
    while border:
        border = {to for status in border for to in TRANSITIONS[status]} - reached
        reached |= border
    assert reached == set(Status)
    for status in ACTIVE:
        assert Status.CANCELLED in TRANSITIONS[status]
        assert Status.FAILED in TRANSITIONS[status]


def test_only_a_claim_starts_a_job_and_only_from_the_queue() -> None:
    assert [status for status in Status if Status.DISPATCHED in TRANSITIONS[status]] == [Status.QUEUED]
    assert [status for status in Status if Status.RUNNING in TRANSITIONS[status]] == [Status.DISPATCHED]


@pytest.mark.parametrize("status", Status)
def test_dec_006_dispatched_is_shown_as_running_and_the_rest_as_they_are(status: Status) -> None:
    assert status.shown is (Status.RUNNING if status is Status.DISPATCHED else status)


def test_a_finished_job_carries_its_runs_status() -> None:
    """What a run can end as is what a started job can end as."""
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


def test_dec_006_the_diagram_in_the_docs_has_exactly_the_arrows_of_the_table() -> None:
    arrows = _arrows()
    assert len(arrows) == len(set(arrows))
    expected = {(status.value, to.value) for status, to in product(Status, Status) if to in TRANSITIONS[status]}
    assert set(arrows) == expected | {("[*]", "QUEUED")}


def test_dec_006_the_docs_list_every_status_and_call_it_what_it_is() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| (active|terminal) \|$", PAGE, re.MULTILINE)
    assert rows == [(status.value, "active" if status in ACTIVE else "terminal") for status in Status]
