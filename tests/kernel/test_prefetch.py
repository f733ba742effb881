"""Prefetching: only jobs of a single lane, in queue order, whose end affects no other job."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId, LaneId
from rota.kernel.prefetch import find_common_lane, next_to_offer

LANES = st.lists(st.integers(1, 3).map(LaneId), max_size=4)
JOBS = st.lists(st.integers(1, 9).map(JobId), unique=True, max_size=9)


def jobs(*numbers: int) -> list[JobId]:
    return [JobId(number) for number in numbers]


@pytest.mark.parametrize(
    ("running", "ready", "lane"),
    [
        ([1], [1], 1),
        ([1, 1, 1], [1], 1),
        ([], [], None),
        ([], [1], None),
        ([1], [], None),
        ([1], [2], None),
        ([1], [1, 2], None),
        ([1, 2], [1], None),
        ([2, 2], [2], 2),
    ],
)
def test_common_lane_requires_running_and_ready_jobs_in_one_lane(
    running: Sequence[int], ready: Sequence[int], lane: int | None
) -> None:
    assert find_common_lane([LaneId(n) for n in running], [LaneId(n) for n in ready]) == lane


@given(running=LANES, ready=LANES)
def test_common_lane_contains_all_jobs(running: list[LaneId], ready: list[LaneId]) -> None:
    lane = find_common_lane(running, ready)
    if lane is None:
        assert not running or not ready or len({*running, *ready}) > 1
    else:
        assert {*running} == {*ready} == {lane}


@pytest.mark.parametrize(
    ("heads", "offered", "prefetchable", "expected"),
    [
        ((), (), (), ()),
        ((3, 4, 5), (), (3, 4, 5), (3, 4, 5)),
        ((5, 3, 4), (), (3, 4, 5), (5, 3, 4)),  # queue order, not number order
        ((3, 4, 5), (), (3, 5), (3,)),  # up to the first job that is not prefetchable
        ((3, 4, 5), (), (4, 5), ()),
        ((3, 4, 5), (), (), ()),
        ((3, 4, 5), (3,), (4, 5), (4, 5)),  # jobs are not offered twice
        ((3, 4, 5), (3, 4), (5,), (5,)),
        ((3, 4, 5), (3, 4, 5), (), ()),
        ((9, 3, 4), (3,), (4, 9), ()),  # another job precedes the offered jobs
        ((4, 5), (3,), (4, 5), ()),  # an offered job is gone
        ((4, 3, 5), (3, 4), (5,), ()),
        ((3,), (3, 4), (), ()),
        ((), (3,), (), ()),
    ],
)
def test_next_offer_extends_the_offered_jobs(
    heads: Sequence[int], offered: Sequence[int], prefetchable: Sequence[int], expected: Sequence[int]
) -> None:
    assert list(next_to_offer(jobs(*heads), jobs(*offered), frozenset(jobs(*prefetchable)))) == jobs(*expected)


@given(heads=JOBS, offered=JOBS, prefetchable=st.frozensets(st.integers(1, 9).map(JobId)))
def test_offered_jobs_are_the_head_of_the_queue_without_gaps(
    heads: list[JobId], offered: list[JobId], prefetchable: frozenset[JobId]
) -> None:
    following = list(next_to_offer(heads, offered, prefetchable))
    assert prefetchable >= {*following}
    if following:
        assert heads[: len(offered) + len(following)] == [*offered, *following]
