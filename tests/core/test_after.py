"""The after gate: every cell of the design's table, in its exact words."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import edge
from rota.core.after import AfterPolicy, EdgeFact, EdgeState, judge_edges, policies_met_by, state_of
from rota.core.status import ACTIVE, TERMINAL, Status
from rota.core.verdict import PASS, Block, Skip, Verdict, Wait
from rota.core.wait import WaitKind

SUCCESS, FINISHED, FAILED = AfterPolicy.SUCCESS, AfterPolicy.FINISHED, AfterPolicy.FAILED


def _waits(job: int) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS,
        kind=WaitKind.DEPENDENCIES,
        detail=f"waiting on job job-{job}",
        on=(f"job:{job}",),
    )


# What the policies success, finished and failed make of a predecessor that stands there.
# o open, m met, b unmeetable and the job is blocked, s unmeetable and the job is not needed.
TABLE = """
    QUEUED                 o o o
    WAITING_ON_DEPS        o o o
    WAITING_ON_LOCKS       o o o
    DISPATCHED             o o o
    RUNNING                o o o
    COMPLETED              m m s
    FAILED                 b m m
    SKIPPED                m m s
    CANCELLED              b m s
    BLOCKED_BY_DEPENDENCY  b m s
"""
CELLS = [
    (policy, Status(name), cell)
    for name, *cells in (line.split() for line in TABLE.strip().splitlines())
    for policy, cell in zip((SUCCESS, FINISHED, FAILED), cells, strict=True)
]


def test_the_table_is_whole() -> None:
    assert {(policy, status) for policy, status, _ in CELLS} == {(p, s) for p in AfterPolicy for s in Status}


@pytest.mark.parametrize(("policy", "status", "cell"), CELLS)
def test_a_policy_and_a_predecessor(policy: AfterPolicy, status: Status, cell: str) -> None:
    verdict, state = {
        "o": (_waits(7), EdgeState.OPEN),
        "m": (PASS, EdgeState.MET),
        "b": (Block(detail=f"dependency failed for job job-7 ({status.value})"), EdgeState.UNMEETABLE),
        "s": (Skip(reason=f"not needed: job-7 {status.value}"), EdgeState.UNMEETABLE),
    }[cell]
    assert judge_edges([edge(7, status, policy)]) == verdict
    assert state_of(policy, status) is state
    assert (policy in policies_met_by(status)) is (cell == "m")


def test_the_texts_are_those_of_the_design() -> None:
    """Written out once without any pattern."""
    assert judge_edges([edge(24, Status.FAILED)]) == Block(detail="dependency failed for job job-24 (FAILED)")
    assert judge_edges([edge(24, Status.COMPLETED, FAILED)]) == Skip(reason="not needed: job-24 COMPLETED")
    waiting = judge_edges([edge(24, Status.RUNNING)])
    assert isinstance(waiting, Wait)
    assert (waiting.status, waiting.kind, waiting.detail) == (
        "WAITING_ON_DEPS",
        "dependencies",
        "waiting on job job-24",
    )


@pytest.mark.parametrize("policy", AfterPolicy)
def test_a_missing_predecessor_blocks_whatever_the_policy(policy: AfterPolicy) -> None:
    assert judge_edges([edge(9, None, policy)]) == Block(detail="missing job dependency job-9")


@pytest.mark.parametrize("policy", AfterPolicy)
@pytest.mark.parametrize("status", [None, *Status])
def test_an_unreadable_predecessor_blocks_whatever_else_is_known(policy: AfterPolicy, status: Status | None) -> None:
    assert judge_edges([edge(9, status, policy, error="row is torn")]) == Block(
        detail="scheduler data error for job dependency job-9: row is torn"
    )


def test_no_edges_pass() -> None:
    assert judge_edges([]) == PASS


def test_the_first_unmet_edge_speaks() -> None:
    edges = [edge(1, Status.COMPLETED), edge(2, Status.RUNNING), edge(3, Status.QUEUED)]
    assert judge_edges(edges) == _waits(2)
    assert judge_edges(edges[::-1]) == _waits(3)


DECIDING = [
    (edge(4, Status.FAILED), Block(detail="dependency failed for job job-4 (FAILED)")),
    (edge(4, None), Block(detail="missing job dependency job-4")),
    (edge(4, None, error="torn"), Block(detail="scheduler data error for job dependency job-4: torn")),
    (edge(4, Status.COMPLETED, FAILED), Skip(reason="not needed: job-4 COMPLETED")),
]


@pytest.mark.parametrize(("fact", "verdict"), DECIDING)
def test_one_edge_that_can_no_longer_be_met_decides_at_once_wherever_it_stands(
    fact: EdgeFact, verdict: Verdict
) -> None:
    others = [edge(1, Status.COMPLETED), edge(2, Status.RUNNING), edge(3, Status.WAITING_ON_LOCKS, FINISHED)]
    for edges in permutations([fact, *others]):
        assert judge_edges(edges) == verdict


def test_of_two_that_can_no_longer_be_met_the_first_decides() -> None:
    blocked, unneeded = edge(1, Status.CANCELLED), edge(2, Status.SKIPPED, FAILED)
    assert judge_edges([blocked, unneeded]) == Block(detail="dependency failed for job job-1 (CANCELLED)")
    assert judge_edges([unneeded, blocked]) == Skip(reason="not needed: job-2 SKIPPED")


facts = st.builds(
    edge,
    st.integers(1, 9),
    st.sampled_from(Status) | st.none(),
    st.sampled_from(AfterPolicy),
    st.none() | st.just("torn"),
)


@given(st.lists(facts, max_size=6))
def test_all_edges_together_are_no_more_than_their_parts(edges: list[EdgeFact]) -> None:
    """By an oracle that asks each edge alone: the first that decides, else the first that waits, else pass."""
    alone = [judge_edges([fact]) for fact in edges]
    deciding = [verdict for verdict in alone if isinstance(verdict, (Block, Skip))]
    waiting = [verdict for verdict in alone if isinstance(verdict, Wait)]
    assert judge_edges(edges) == [*deciding, *waiting, PASS][0]


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_every_end_decides_every_edge_on_it(status: Status) -> None:
    """An edge that stays open after an end would wait for ever."""
    assert all(state_of(policy, status) is not EdgeState.OPEN for policy in AfterPolicy)
    assert FINISHED in policies_met_by(status)


@pytest.mark.parametrize("status", sorted(ACTIVE))
def test_nothing_is_met_by_what_has_not_ended(status: Status) -> None:
    assert policies_met_by(status) == ()
