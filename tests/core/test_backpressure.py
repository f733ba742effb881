"""Back-pressure: the figures of the seed, and what gives way to what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.backpressure import (
    Auto,
    Depth,
    Figures,
    QueueLimit,
    QueueLimits,
    is_delayed,
    is_full,
    show_depth,
    show_full,
)
from rota.core.pool import Limits

Mark = int | Auto | None
MARKS = st.none() | st.just("auto") | st.integers(1, 1000)


@pytest.mark.parametrize(
    ("size", "soft", "hard"),
    [(0, 8, 16), (1, 8, 16), (2, 8, 16), (3, 12, 24), (10, 40, 80), (None, None, None)],
)
def test_auto_is_four_for_each_place_and_at_least_eight_and_twice_that(
    size: int | None, soft: int | None, hard: int | None
) -> None:
    assert QueueLimit(soft="auto", hard="auto").figures(size) == Figures(soft=soft, hard=hard)


@pytest.mark.parametrize(
    ("given_soft", "given_hard", "soft", "hard"),
    [
        (None, None, None, None),
        (5, None, 5, None),
        (None, 5, None, 5),
        (5, 6, 5, 6),
        (6, 6, 6, 6),
        ("auto", None, 12, None),
        (None, "auto", None, 24),
        (100, "auto", 100, 200),
        (3, "auto", 3, 6),
        ("auto", 5, 5, 5),
        ("auto", 100, 12, 100),
    ],
)
def test_an_automatic_limit_gives_way_to_one_that_was_set(
    given_soft: Mark, given_hard: Mark, soft: int | None, hard: int | None
) -> None:
    assert QueueLimit(soft=given_soft, hard=given_hard).figures(3) == Figures(soft=soft, hard=hard)


@given(soft=MARKS, hard=MARKS, size=st.none() | st.integers(0, 300))
def test_what_is_off_stays_off_and_no_automatic_limit_crosses_the_other(
    soft: Mark, hard: Mark, size: int | None
) -> None:
    figures = QueueLimit(soft=soft, hard=hard).figures(size)
    assert (figures.soft is None) == (soft is None or (soft == "auto" and size is None))
    assert (figures.hard is None) == (hard is None or (hard == "auto" and size is None))
    if figures.soft is not None and figures.hard is not None and "auto" in (soft, hard):
        assert figures.soft <= figures.hard


@given(depth=st.integers(0, 40), soft=st.integers(1, 20), more=st.integers(0, 20))
def test_a_full_queue_is_a_delayed_one(depth: int, soft: int, more: int) -> None:
    figures = Figures(soft=soft, hard=soft + more)
    assert is_full(depth, figures) == (depth >= soft + more)
    assert is_delayed(depth, figures) == (depth >= soft)
    assert is_delayed(depth, figures) or not is_full(depth, figures)
    assert not is_full(depth, Figures())
    assert not is_delayed(depth, Figures())


def test_a_flow_heeds_its_own_limit_and_that_of_all() -> None:
    auto = QueueLimit(soft="auto", hard="auto")
    queue = QueueLimits(whole=QueueLimit(hard=50), flows={"plan": auto, "build": QueueLimit(soft=2), "chat": auto})
    limits = Limits({"global": 4, "flow/*": 3, "flow/chat": -1})
    assert queue.concerning([], limits) == {None: Figures(hard=50)}
    assert queue.concerning(["plan", "build", "other", "chat"], limits) == {
        None: Figures(hard=50),
        "plan": Figures(soft=12, hard=24),
        "build": Figures(soft=2),
    }


def test_where_nothing_is_set_there_is_nothing_to_heed() -> None:
    assert QueueLimits().concerning(["plan"], Limits({"global": 1})) == {}
    assert QueueLimits(whole=QueueLimit(soft="auto", hard="auto")).concerning([], Limits({"global": -1})) == {}


def test_the_depth_is_said_in_all_and_by_flow() -> None:
    depth = Depth(total=9, by_flow={"build": 5, "plan": 3})
    assert show_depth(depth) == "9 ready (by flow: build 5, plan 3)"
    assert show_depth(Depth(total=9)) == "9 ready"
    assert (depth.of(None), depth.of("plan"), depth.of("other")) == (9, 3, 0)
    assert show_full(None, depth, Figures(hard=8)).startswith("the queue is full, 9 of 8 ready; nothing was stored")
    assert show_full("plan", depth, Figures(hard=3)).startswith("the queue of flow plan is full, 3 of 3 ready")
