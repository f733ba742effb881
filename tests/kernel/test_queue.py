"""Queue order: priority DESC, position ASC, created_at ASC, and total (INV-004, DEC-005)."""

from __future__ import annotations

from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId
from rota.kernel.queue import (
    POSITION_GAP,
    Rank,
    has_distinct_positions,
    initial_position,
    position_after,
    position_between,
)

small = st.integers(-2, 2)
ranks = st.builds(Rank, small, small, small, st.integers(1, 99).map(JobId))


def _compare(first: Rank, second: Rank) -> int:
    """Compare by the documented order, field by field; ids break remaining ties."""
    if first.precedence != second.precedence:
        return -1 if -first.precedence > -second.precedence else 1
    if first.position != second.position:
        return -1 if first.position < second.position else 1
    if first.created_at != second.created_at:
        return -1 if first.created_at < second.created_at else 1
    return first.job - second.job


@given(st.lists(ranks))
def test_inv_004_ranks_sort_by_the_documented_order(ranks_: list[Rank]) -> None:
    assert sorted(ranks_) == sorted(ranks_, key=cmp_to_key(_compare))


def test_inv_004_earlier_rank_fields_outweigh_later_fields() -> None:
    first = Rank(precedence=-1, position=900, created_at=900, job=JobId(9))
    second = Rank(precedence=0, position=100, created_at=900, job=JobId(9))
    third = Rank(precedence=0, position=200, created_at=1, job=JobId(9))
    fourth = Rank(precedence=0, position=200, created_at=2, job=JobId(1))
    assert first < second < third < fourth


@given(st.lists(ranks, unique_by=lambda rank: rank.job))
def test_inv_004_no_two_jobs_share_a_rank(ranks_: list[Rank]) -> None:
    """The order is total and stable, so that no job is deferred repeatedly by chance."""
    assert len(set(ranks_)) == len(ranks_)


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_dec_005_new_jobs_go_to_the_end_with_gaps(first: int, second: int) -> None:
    gap = initial_position(JobId(second)) - initial_position(JobId(first))
    assert gap == (second - first) * POSITION_GAP
    assert POSITION_GAP == 100


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_dec_005_position_between_is_strictly_between(lower: int, gap: int) -> None:
    position = position_between(lower, lower + gap)
    assert (position is None) == (gap == 1)
    assert position is None or lower < position < lower + gap
    assert position_between(None, lower) == lower - POSITION_GAP


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_position_after_precedes_later_submits(last: int, upcoming: int) -> None:
    position = position_after(last, JobId(upcoming))
    assert (position is None) == (upcoming * POSITION_GAP - last <= 1)
    assert position is None or last < position < upcoming * POSITION_GAP


def test_many_jobs_fit_after_the_last_position() -> None:
    last, count = initial_position(JobId(9)), 0
    while (position := position_after(last, JobId(10))) is not None:
        last, count = position, count + 1
    assert last == initial_position(JobId(10)) - 1
    assert count > 20


@pytest.mark.parametrize(("positions", "are_distinct"), [([], True), ([3, 1, 2], True), ([1, 2, 1], False)])
def test_shared_positions_are_not_distinct(positions: list[int], are_distinct: bool) -> None:
    assert has_distinct_positions(positions) == are_distinct


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60))
def test_dec_005_moves_by_position_match_list_moves(moves: list[tuple[int, int]]) -> None:
    """Each move takes a job from one index to another. Without a gap, all positions are reassigned."""
    upcoming = JobId(11)
    order = [JobId(n) for n in range(1, 11)]
    positions = {job: initial_position(job) for job in order}
    for start, goal in moves:
        job = order.pop(start)
        order.insert(goal, job)
        others = [other for other in order if other != job]
        if _position(others, positions, goal, upcoming) is None:
            previous_order = sorted(positions, key=positions.__getitem__)
            for n, moved in enumerate(previous_order):
                positions[moved] = initial_position(JobId(upcoming - len(previous_order) + n))
        position = _position(others, positions, goal, upcoming)
        assert position is not None, "reassigned positions leave gaps everywhere"
        positions[job] = position
        assert sorted(positions, key=positions.__getitem__) == order
        assert max(positions.values()) < initial_position(upcoming)


def _position(others: list[JobId], positions: dict[JobId, int], goal: int, upcoming: JobId) -> int | None:
    if goal == len(others):
        return position_after(positions[others[-1]], upcoming)
    return position_between(positions[others[goal - 1]] if goal else None, positions[others[goal]])
