"""Back-pressure: how many jobs may stand ready before a submit is warned, or put off.

    depth before a submit ≥ hard    deferred: nothing of it is stored
    depth after it        ≥ soft    stored, with a warning

The depth is of jobs that are ready and do not run: only a pause or a pool holds them. Both limits are off unless they
are set, for all jobs together and for each flow by itself. "auto" follows the pool: its size is asked for each time, so
a limit that is raised counts at once, and where nothing limits the pool nothing limits its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from rota.core.pool import Limits
from rota.names import GLOBAL

DELAYED = "Queue delayed; respecting caps"
PER_PLACE = 4
LEAST = 8

Auto = Literal["auto"]


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs are ready and do not run."""

    total: int
    by_flow: Mapping[str, int] = {}

    def of(self, flow: str | None) -> int:
        """Of one flow; none for all."""
        return self.total if flow is None else self.by_flow.get(flow, 0)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Both limits as they stand now; none is off."""

    soft: int | None = None
    hard: int | None = None


class QueueLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Both limits as they were set."""

    soft: int | Auto | None = None
    hard: int | Auto | None = None

    def figures(self, size: int | None) -> Figures:
        """Where the pool has this size; none is no limit. An automatic limit gives way to one that was set: the hard
        one is twice the soft one, and the soft one is never above the hard one."""
        automatic = None if size is None else max(LEAST, PER_PLACE * size)
        soft, hard = self.soft, self.hard
        if hard == "auto":
            hard = None if automatic is None else 2 * (soft if isinstance(soft, int) else automatic)
        if soft == "auto":
            soft = automatic if automatic is None or hard is None else min(automatic, hard)
        return Figures(soft=soft, hard=hard)


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    whole: QueueLimit = QueueLimit()
    flows: Mapping[str, QueueLimit] = {}

    def of_all(self, limits: Limits) -> Figures:
        return self.whole.figures(limits.size(GLOBAL))

    def concerning(self, flows: Iterable[str], limits: Limits) -> dict[str | None, Figures]:
        """What jobs of these flows have to heed: by flow, none for all jobs; empty where nothing limits them."""
        if self == _NO_LIMITS:
            return {}
        found: dict[str | None, Figures] = {None: self.of_all(limits)}
        for flow in flows:
            if flow in self.flows:
                found[flow] = self.flows[flow].figures(limits.size(f"flow/{flow}"))
        return {flow: each for flow, each in found.items() if each != Figures()}


def is_full(depth: int, figures: Figures) -> bool:
    return figures.hard is not None and depth >= figures.hard


def is_delayed(depth: int, figures: Figures) -> bool:
    return figures.soft is not None and depth >= figures.soft


def show_depth(depth: Depth) -> str:
    """The depths in all and by flow, for people."""
    flows = ", ".join(f"{flow} {count}" for flow, count in depth.by_flow.items())
    return f"{depth.total} ready" + (f" (by flow: {flows})" if flows else "")


def show_full(flow: str | None, depth: Depth, figures: Figures) -> str:
    what = "the queue" if flow is None else f"the queue of flow {flow}"
    reason = f"{what} is full, {depth.of(flow)} of {figures.hard} ready"
    return f"{reason}; nothing was stored: try again later, or raise the limit of a pool or of the queue"


_NO_LIMITS = QueueLimits()
