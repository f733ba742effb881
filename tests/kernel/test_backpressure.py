"""Back-pressure: automatic limits and their precedence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.kernel.backpressure import (
    AutoLimit,
    DepthLimits,
    QueueDepth,
    QueueLimit,
    QueueLimits,
    format_depth,
    format_full_queue,
    is_delayed,
    is_full,
)
from rota.kernel.pools import PoolSizes

Limit = int | AutoLimit | None
LIMITS = st.none() | st.just("auto") | st.integers(1, 1000)


@pytest.mark.parametrize(
    ("size", "soft", "hard"), [(0, 8, 16), (1, 8, 16), (2, 8, 16), (3, 12, 24), (10, 40, 80), (None, None, None)]
)
def test_auto_limits_scale_with_pool_size(size: int | None, soft: int | None, hard: int | None) -> None:
    assert QueueLimit(soft="auto", hard="auto").resolve(size) == DepthLimits(soft=soft, hard=hard)


@pytest.mark.parametrize(
    ("configured_soft", "configured_hard", "soft", "hard"),
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
def test_auto_limit_yields_to_configured_limit(
    configured_soft: Limit, configured_hard: Limit, soft: int | None, hard: int | None
) -> None:
    assert QueueLimit(soft=configured_soft, hard=configured_hard).resolve(3) == DepthLimits(soft=soft, hard=hard)


@given(soft=LIMITS, hard=LIMITS, size=st.none() | st.integers(0, 300))
def test_disabled_limits_stay_off_and_auto_soft_never_exceeds_hard(soft: Limit, hard: Limit, size: int | None) -> None:
    limits = QueueLimit(soft=soft, hard=hard).resolve(size)
    assert (limits.soft is None) == (soft is None or (soft == "auto" and size is None))
    assert (limits.hard is None) == (hard is None or (hard == "auto" and size is None))
    if limits.soft is not None and limits.hard is not None and "auto" in (soft, hard):
        assert limits.soft <= limits.hard


@given(depth=st.integers(0, 40), soft=st.integers(1, 20), more=st.integers(0, 20))
def test_full_queue_is_also_delayed(depth: int, soft: int, more: int) -> None:
    limits = DepthLimits(soft=soft, hard=soft + more)
    assert is_full(depth, limits) == (depth >= soft + more)
    assert is_delayed(depth, limits) == (depth >= soft)
    assert is_delayed(depth, limits) or not is_full(depth, limits)
    assert not is_full(depth, DepthLimits())
    assert not is_delayed(depth, DepthLimits())


def test_flow_has_its_own_limit_and_the_total_limit() -> None:
    auto = QueueLimit(soft="auto", hard="auto")
    queue = QueueLimits(total=QueueLimit(hard=50), flows={"plan": auto, "build": QueueLimit(soft=2), "chat": auto})
    limits = PoolSizes({"global": 4, "flow/*": 3, "flow/chat": -1})
    assert queue.resolve_for_flows([], limits) == {None: DepthLimits(hard=50)}
    assert queue.resolve_for_flows(["plan", "build", "other", "chat"], limits) == {
        None: DepthLimits(hard=50),
        "plan": DepthLimits(soft=12, hard=24),
        "build": DepthLimits(soft=2),
    }


def test_unlimited_queue_has_no_depth_limits() -> None:
    assert QueueLimits().resolve_for_flows(["plan"], PoolSizes({"global": 1})) == {}
    assert (
        QueueLimits(total=QueueLimit(soft="auto", hard="auto")).resolve_for_flows([], PoolSizes({"global": -1})) == {}
    )


def test_depth_is_formatted_in_total_and_by_flow() -> None:
    depth = QueueDepth(total=9, by_flow={"build": 5, "plan": 3})
    assert format_depth(depth) == "9 ready (by flow: build 5, plan 3)"
    assert format_depth(QueueDepth(total=9)) == "9 ready"
    assert (depth.of_flow(None), depth.of_flow("plan"), depth.of_flow("other")) == (9, 3, 0)
    assert format_full_queue(None, depth, DepthLimits(hard=8)).startswith(
        "the queue is full, 9 of 8 ready; nothing was stored"
    )
    assert format_full_queue("plan", depth, DepthLimits(hard=3)).startswith(
        "the queue of flow plan is full, 3 of 3 ready"
    )
