"""Back-pressure on submit. Without a limit that applies to the jobs, no queue depth is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from datetime import timedelta

import msgspec

from rota.core.backpressure import (
    DELAYED_WARNING,
    DepthLimits,
    QueueDepth,
    format_depth,
    format_full_queue,
    is_delayed,
    is_full,
)
from rota.engine.dispatch import plan_starts
from rota.engine.transaction import Transaction

RETRY_DELAY = timedelta(seconds=5)
"""Suggested delay before the retry of a deferred submit: a guess, as the ends of jobs cannot be predicted."""


class DeferredSubmit(msgspec.Struct, frozen=True, kw_only=True):
    depth: QueueDepth
    limits: DepthLimits
    """Limits of the whole queue."""
    message: str
    """Reason and remedy."""


class DelayWarning(msgspec.Struct, frozen=True, kw_only=True):
    depth: QueueDepth
    limits: DepthLimits
    message: str


def check_deferral(tx: Transaction, flows: Iterable[str]) -> DeferredSubmit | None:
    """Return the deferral of a submit of jobs of these flows, or None while the queue has room."""
    settings = tx.settings
    limits_by_flow = settings.queue.resolve_for_flows(sorted(flows), settings.pool_sizes)
    if all(limits.hard is None for limits in limits_by_flow.values()):
        return None
    depth = tx.queue.depth()
    for flow, limits in limits_by_flow.items():
        is_over_limit = is_full(depth.of_flow(flow), limits)
        if is_over_limit and is_full(depth.of_flow(flow) - _count_imminent_starts(tx, flow), limits):
            message = format_full_queue(flow, depth, limits)
            total_limits = settings.queue.resolve_total(settings.pool_sizes)
            return DeferredSubmit(depth=depth, limits=total_limits, message=message)
    return None


def _count_imminent_starts(tx: Transaction, flow: str | None) -> int:
    """Count the ready jobs that start before this turn ends. Only jobs stored in this turn can, and its plan names
    them."""
    settings = tx.settings
    if not tx.effects.has_new_jobs or settings.dispatch_interval is not None or settings.spawn_delay:
        return 0
    claims = plan_starts(tx, settings.pool_sizes, settings.batch_size, holds=tx.holds).claims
    if flow is None:
        return len(claims)
    lanes = {scope.lane for scope in tx.lanes.scopes() if scope.flow == flow}
    return sum(claim.lane in lanes for claim in claims)


def check_delays(tx: Transaction, flows_by_submit: Sequence[Set[str] | None]) -> list[DelayWarning | None]:
    """Return the delay warning of each submit, given the flows of its jobs; None stands for a submit that stored
    nothing. Call it at the end of a turn, after its dispatch."""
    settings = tx.settings
    limits_by_submit = [
        {} if flows is None else settings.queue.resolve_for_flows(flows, settings.pool_sizes)
        for flows in flows_by_submit
    ]
    if all(limits.soft is None for limits_by_flow in limits_by_submit for limits in limits_by_flow.values()):
        return [None] * len(flows_by_submit)
    depth = tx.queue.depth()
    total_limits = settings.queue.resolve_total(settings.pool_sizes)
    warning = DelayWarning(depth=depth, limits=total_limits, message=f"{DELAYED_WARNING}: {format_depth(depth)}")
    return [
        warning if any(is_delayed(depth.of_flow(flow), limits) for flow, limits in limits_by_flow.items()) else None
        for limits_by_flow in limits_by_submit
    ]
