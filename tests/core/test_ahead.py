"""What may be given ahead: one lane, in its order, and nobody whose end matters to another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.ahead import common_lane, next_up
from rota.ids import JobId, LaneId

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
def test_the_lane_in_which_all_stands(running: Sequence[int], ready: Sequence[int], lane: int | None) -> None:
    assert common_lane([LaneId(each) for each in running], [LaneId(each) for each in ready]) == lane


@given(running=LANES, ready=LANES)
def test_it_is_everybodys_lane_or_none(running: list[LaneId], ready: list[LaneId]) -> None:
    lane = common_lane(running, ready)
    if lane is None:
        assert not running or not ready or len({*running, *ready}) > 1
    else:
        assert {*running} == {*ready} == {lane}


@pytest.mark.parametrize(
    ("heads", "before", "plain", "behind"),
    [
        ((), (), (), ()),
        ((3, 4, 5), (), (3, 4, 5), (3, 4, 5)),
        ((5, 3, 4), (), (3, 4, 5), (5, 3, 4)),  # as they stand, not as they are numbered
        ((3, 4, 5), (), (3, 5), (3,)),  # up to the first whose end matters
        ((3, 4, 5), (), (4, 5), ()),
        ((3, 4, 5), (), (), ()),
        ((3, 4, 5), (3,), (4, 5), (4, 5)),  # nobody is given twice
        ((3, 4, 5), (3, 4), (5,), (5,)),
        ((3, 4, 5), (3, 4, 5), (), ()),
        ((9, 3, 4), (3,), (4, 9), ()),  # somebody came before those that are given
        ((4, 5), (3,), (4, 5), ()),  # one of them is gone
        ((4, 3, 5), (3, 4), (5,), ()),
        ((3,), (3, 4), (), ()),
        ((), (3,), (), ()),
    ],
)
def test_who_is_given_behind_those_that_are(
    heads: Sequence[int], before: Sequence[int], plain: Sequence[int], behind: Sequence[int]
) -> None:
    assert list(next_up(jobs(*heads), jobs(*before), frozenset(jobs(*plain)))) == jobs(*behind)


@given(heads=JOBS, before=JOBS, plain=st.frozensets(st.integers(1, 9).map(JobId)))
def test_what_is_given_is_the_head_of_the_queue_without_a_gap(
    heads: list[JobId], before: list[JobId], plain: frozenset[JobId]
) -> None:
    behind = list(next_up(heads, before, plain))
    assert plain >= {*behind}
    if behind:
        assert heads[: len(before) + len(behind)] == [*before, *behind]
