"""Queue order: priority DESC, position ASC, created_at ASC, and total (INV-004, DEC-005)."""

from __future__ import annotations

from functools import cmp_to_key

from hypothesis import given
from hypothesis import strategies as st

from rota.core.queue import POSITION_GAP, Rank, position_of
from rota.ids import JobId

small = st.integers(-2, 2)
ranks = st.builds(Rank, small, small, small, st.integers(1, 99).map(JobId))


def _design(one: Rank, other: Rank) -> int:
    """The sentence of the design, one comparison for each word; ids break what ties remain."""
    if one.precedence != other.precedence:
        return -1 if -one.precedence > -other.precedence else 1
    if one.position != other.position:
        return -1 if one.position < other.position else 1
    if one.created_at != other.created_at:
        return -1 if one.created_at < other.created_at else 1
    return one.job - other.job


@given(st.lists(ranks))
def test_inv_004_ranks_sort_as_the_design_says(some: list[Rank]) -> None:
    assert sorted(some) == sorted(some, key=cmp_to_key(_design))


def test_inv_004_each_part_of_a_rank_outweighs_all_that_follow() -> None:
    first = Rank(precedence=-1, position=900, created_at=900, job=JobId(9))
    second = Rank(precedence=0, position=100, created_at=900, job=JobId(9))
    third = Rank(precedence=0, position=200, created_at=1, job=JobId(9))
    fourth = Rank(precedence=0, position=200, created_at=2, job=JobId(1))
    assert first < second < third < fourth


@given(st.lists(ranks, unique_by=lambda rank: rank.job))
def test_inv_004_no_two_jobs_share_a_rank(some: list[Rank]) -> None:
    """The order is total and stable: the same tail is not deferred each tick by chance."""
    assert len(set(some)) == len(some)


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_dec_005_new_jobs_go_to_the_end_with_room_between_them(one: int, other: int) -> None:
    gap = position_of(JobId(other)) - position_of(JobId(one))
    assert gap == (other - one) * POSITION_GAP
    assert POSITION_GAP == 100
