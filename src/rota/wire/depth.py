"""JSON representation of the queue depth."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.core.backpressure import DepthLimits, QueueDepth


class QueueDepthView(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs that are ready and not running, with its limits."""

    total: int
    """Number of ready jobs."""
    soft: int | None
    """Depth at which a submit succeeds with a warning; `null` if there is no soft limit."""
    hard: int | None
    """Depth at which a submit is deferred; `null` if there is no hard limit."""
    by_flow: Mapping[str, int]
    """Number of ready jobs of each flow. Jobs without a flow are not included."""


def render_depth(depth: QueueDepth, limits: DepthLimits) -> QueueDepthView:
    return QueueDepthView(total=depth.total, soft=limits.soft, hard=limits.hard, by_flow=depth.by_flow)
