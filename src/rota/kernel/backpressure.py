"""Back-pressure: how many jobs may be ready before a submit is warned or deferred.

    depth before a submit ≥ hard    deferred: the submit is refused and nothing is stored
    depth after it        ≥ soft    stored, with a warning

The depth counts jobs that are ready but not running: only a pause or a pool holds them. Both limits are off by default.
They can be set for all jobs together and for each flow. "auto" follows the current size of the pool, so a resized pool
takes effect immediately; an unlimited pool has an unlimited queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from rota.kernel.pools import PoolSizes
from rota.naming import GLOBAL

DELAYED_WARNING = "Queue delayed; respecting caps"
JOBS_PER_SLOT = 4
MIN_AUTO_LIMIT = 8

AutoLimit = Literal["auto"]


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Number of jobs that are ready and not running."""

    total: int
    by_flow: Mapping[str, int] = {}

    def of_flow(self, flow: str | None) -> int:
        """Return the depth of a flow, or the total for `None`."""
        return self.total if flow is None else self.by_flow.get(flow, 0)


class DepthLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Effective limits; `None` is off."""

    soft: int | None = None
    hard: int | None = None


class QueueLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Configured limits."""

    soft: int | AutoLimit | None = None
    hard: int | AutoLimit | None = None

    def resolve(self, pool_size: int | None) -> DepthLimits:
        """Return the effective limits for a pool size; `None` is an unlimited pool.

        An automatic limit yields to a number: an automatic hard limit is twice the soft limit, and an automatic soft
        limit is never above the hard limit.
        """
        automatic = None if pool_size is None else max(MIN_AUTO_LIMIT, JOBS_PER_SLOT * pool_size)
        soft, hard = self.soft, self.hard
        if hard == "auto":
            hard = None if automatic is None else 2 * (soft if isinstance(soft, int) else automatic)
        if soft == "auto":
            soft = automatic if automatic is None or hard is None else min(automatic, hard)
        return DepthLimits(soft=soft, hard=hard)


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    total: QueueLimit = QueueLimit()
    flows: Mapping[str, QueueLimit] = {}

    def resolve_total(self, pool_sizes: PoolSizes) -> DepthLimits:
        return self.total.resolve(pool_sizes.size(GLOBAL))

    def resolve_for_flows(self, flows: Iterable[str], pool_sizes: PoolSizes) -> dict[str | None, DepthLimits]:
        """Return the limits that apply to jobs of these flows, by flow; `None` is the key for all jobs. Flows without
        limits are left out."""
        if self == _NO_LIMITS:
            return {}
        limits: dict[str | None, DepthLimits] = {None: self.resolve_total(pool_sizes)}
        for flow in flows:
            if flow in self.flows:
                limits[flow] = self.flows[flow].resolve(pool_sizes.size(f"flow/{flow}"))
        return {flow: limit for flow, limit in limits.items() if limit != DepthLimits()}


def is_full(depth: int, limits: DepthLimits) -> bool:
    return limits.hard is not None and depth >= limits.hard


def is_delayed(depth: int, limits: DepthLimits) -> bool:
    return limits.soft is not None and depth >= limits.soft


def format_depth(depth: QueueDepth) -> str:
    """Format the total depth and the depth of each flow for display."""
    flows = ", ".join(f"{flow} {count}" for flow, count in depth.by_flow.items())
    return f"{depth.total} ready" + (f" (by flow: {flows})" if flows else "")


def format_full_queue(flow: str | None, depth: QueueDepth, limits: DepthLimits) -> str:
    queue = "the queue" if flow is None else f"the queue of flow {flow}"
    reason = f"{queue} is full, {depth.of_flow(flow)} of {limits.hard} ready"
    return f"{reason}; nothing was stored: try again later, or raise the limit of a pool or of the queue"


_NO_LIMITS = QueueLimits()
