"""The `after` gate: every combination of policy and status, with the exact messages."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kernel.edges import DependencyPolicy, EdgeState, UnmetEdge, edge_state, judge_edges, policies_met_by
from rota.kernel.status import ACTIVE, TERMINAL, Status
from rota.kernel.verdict import PASS, Block, SkipVerdict, Verdict, Wait, WaitKind
from tests.kernel.factories import edge

SUCCESS, FINISHED, FAILED = DependencyPolicy.SUCCESS, DependencyPolicy.FINISHED, DependencyPolicy.FAILED


def _waits(job: int) -> Wait:
    return Wait(
        status=Status.WAITING_ON_DEPS,
        kind=WaitKind.DEPENDENCIES,
        detail=f"waiting on job job-{job}",
        on=(f"job:{job}",),
    )


# Effect of the policies success, finished and failed for each status of the predecessor. o: open; m: met; b:
# unmeetable, the job is blocked; s: unmeetable, the job is skipped.
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
    UNREADABLE             o o o
"""
CELLS = [
    (policy, Status(name), cell)
    for name, *cells in (line.split() for line in TABLE.strip().splitlines())
    for policy, cell in zip((SUCCESS, FINISHED, FAILED), cells, strict=True)
]


def test_table_covers_every_policy_and_status() -> None:
    assert {(policy, status) for policy, status, _ in CELLS} == {(p, s) for p in DependencyPolicy for s in Status}


@pytest.mark.parametrize(("policy", "status", "cell"), CELLS)
def test_edge_verdict_for_each_policy_and_status(policy: DependencyPolicy, status: Status, cell: str) -> None:
    verdict, state = {
        "o": (_waits(7), EdgeState.OPEN),
        "m": (PASS, EdgeState.MET),
        "b": (Block(detail=f"dependency failed for job job-7 ({status.value})"), EdgeState.UNMEETABLE),
        "s": (SkipVerdict(reason=f"not needed: job-7 {status.value}"), EdgeState.UNMEETABLE),
    }[cell]
    assert judge_edges([edge(7, status, policy)]) == verdict
    assert edge_state(policy, status) is state
    assert (policy in policies_met_by(status)) is (cell == "m")


def test_edge_messages_are_literal() -> None:
    """The literal texts, without a pattern."""
    assert judge_edges([edge(24, Status.FAILED)]) == Block(detail="dependency failed for job job-24 (FAILED)")
    assert judge_edges([edge(24, Status.COMPLETED, FAILED)]) == SkipVerdict(reason="not needed: job-24 COMPLETED")
    waiting = judge_edges([edge(24, Status.RUNNING)])
    assert isinstance(waiting, Wait)
    assert (waiting.status, waiting.kind, waiting.detail) == (
        "WAITING_ON_DEPS",
        "dependencies",
        "waiting on job job-24",
    )


@pytest.mark.parametrize("policy", DependencyPolicy)
def test_missing_predecessor_blocks_with_every_policy(policy: DependencyPolicy) -> None:
    assert judge_edges([edge(9, None, policy)]) == Block(detail="missing job dependency job-9")


@pytest.mark.parametrize("policy", DependencyPolicy)
@pytest.mark.parametrize("status", [None, *Status])
def test_unreadable_predecessor_blocks_with_every_status(policy: DependencyPolicy, status: Status | None) -> None:
    verdict = judge_edges([edge(9, status, policy, error="row is torn")])
    assert isinstance(verdict, Block)
    assert verdict.detail == "scheduler data error for job dependency job-9: row is torn"
    assert verdict.interim is not None
    cause = "whose record cannot be read" if status is Status.UNREADABLE else "which cannot be checked"
    assert verdict.interim.detail == f"waiting on job job-9, {cause}: row is torn"


def test_no_edges_pass() -> None:
    assert judge_edges([]) == PASS


def test_first_open_edge_gives_the_reason() -> None:
    edges = [edge(1, Status.COMPLETED), edge(2, Status.RUNNING), edge(3, Status.QUEUED)]
    assert judge_edges(edges) == _waits(2)
    assert judge_edges(edges[::-1]) == _waits(3)


DECIDING = [
    (edge(4, Status.FAILED), Block(detail="dependency failed for job job-4 (FAILED)")),
    (edge(4, None), Block(detail="missing job dependency job-4")),
    (edge(4, None, error="torn"), judge_edges([edge(4, None, error="torn")])),
    (edge(4, Status.COMPLETED, FAILED), SkipVerdict(reason="not needed: job-4 COMPLETED")),
]


@pytest.mark.parametrize(("unmet", "verdict"), DECIDING)
def test_unmeetable_edge_decides_at_any_position(unmet: UnmetEdge, verdict: Verdict) -> None:
    others = [edge(1, Status.COMPLETED), edge(2, Status.RUNNING), edge(3, Status.WAITING_ON_LOCKS, FINISHED)]
    for edges in permutations([unmet, *others]):
        assert judge_edges(edges) == verdict


def test_first_of_two_unmeetable_edges_decides() -> None:
    blocked, unneeded = edge(1, Status.CANCELLED), edge(2, Status.SKIPPED, FAILED)
    assert judge_edges([blocked, unneeded]) == Block(detail="dependency failed for job job-1 (CANCELLED)")
    assert judge_edges([unneeded, blocked]) == SkipVerdict(reason="not needed: job-2 SKIPPED")


unmet_edges = st.builds(
    edge,
    st.integers(1, 9),
    st.sampled_from(Status) | st.none(),
    st.sampled_from(DependencyPolicy),
    st.none() | st.just("torn"),
)


@given(st.lists(unmet_edges, max_size=6))
def test_combined_verdict_matches_single_verdicts(edges: list[UnmetEdge]) -> None:
    """The oracle judges each edge alone: the first deciding verdict, else the first wait, else pass."""
    alone = [judge_edges([unmet]) for unmet in edges]
    deciding = [verdict for verdict in alone if isinstance(verdict, (Block, SkipVerdict))]
    waiting = [verdict for verdict in alone if isinstance(verdict, Wait)]
    assert judge_edges(edges) == [*deciding, *waiting, PASS][0]


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_terminal_status_decides_every_edge(status: Status) -> None:
    """An edge that stays open after a terminal status would wait forever."""
    assert all(edge_state(policy, status) is not EdgeState.OPEN for policy in DependencyPolicy)
    assert FINISHED in policies_met_by(status)


@pytest.mark.parametrize("status", sorted(ACTIVE))
def test_active_status_meets_no_policy(status: Status) -> None:
    assert policies_met_by(status) == ()
