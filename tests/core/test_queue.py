"""Queue order: priority DESC, position ASC, created_at ASC, and total (INV-004, DEC-005)."""

from __future__ import annotations

from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.queue import POSITION_GAP, Rank, are_told_apart, position_behind, position_between, position_of
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


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_dec_005_between_two_is_strictly_between_them_as_long_as_there_is_room(lower: int, gap: int) -> None:
    position = position_between(lower, lower + gap)
    assert (position is None) == (gap == 1)
    assert position is None or lower < position < lower + gap
    assert position_between(None, lower) == lower - POSITION_GAP


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_behind_the_last_is_before_whatever_is_submitted_later(last: int, upcoming: int) -> None:
    position = position_behind(last, JobId(upcoming))
    assert (position is None) == (upcoming * POSITION_GAP - last <= 1)
    assert position is None or last < position < upcoming * POSITION_GAP


def test_many_can_go_to_the_end_before_the_gap_is_used_up() -> None:
    last, count = position_of(JobId(9)), 0
    while (position := position_behind(last, JobId(10))) is not None:
        last, count = position, count + 1
    assert last == position_of(JobId(10)) - 1
    assert count > 20


@pytest.mark.parametrize(("positions", "are"), [([], True), ([3, 1, 2], True), ([1, 2, 1], False)])
def test_positions_that_two_share_tell_nobody_apart(positions: list[int], are: bool) -> None:
    assert are_told_apart(positions) == are


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60))
def test_dec_005_moves_by_positions_are_moves_in_a_plain_list(moves: list[tuple[int, int]]) -> None:
    """Each takes the job at one place to another; where there is no gap all positions are made anew."""
    upcoming = JobId(11)
    order = [JobId(n) for n in range(1, 11)]
    positions = {job: position_of(job) for job in order}
    for start, goal in moves:
        job = order.pop(start)
        order.insert(goal, job)
        others = [each for each in order if each != job]
        if _position(others, positions, goal, upcoming) is None:
            was = sorted(positions, key=positions.__getitem__)
            for n, each in enumerate(was):
                positions[each] = position_of(JobId(upcoming - len(was) + n))
        found = _position(others, positions, goal, upcoming)
        assert found is not None, "gaps made anew leave room everywhere"
        positions[job] = found
        assert sorted(positions, key=positions.__getitem__) == order
        assert max(positions.values()) < position_of(upcoming)


def _position(others: list[JobId], positions: dict[JobId, int], goal: int, upcoming: JobId) -> int | None:
    if goal == len(others):
        return position_behind(positions[others[-1]], upcoming)
    return position_between(positions[others[goal - 1]] if goal else None, positions[others[goal]])
