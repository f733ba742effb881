"""How many jobs are ready, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.core.backpressure import Depth, Figures


class DepthForm(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs are ready."""

    total: int
    """Of all flows together."""
    soft: int | None
    """From so many on a submit is warned; null if there is no such limit."""
    hard: int | None
    """At so many a submit is put off; null if there is no such limit."""
    by_flow: Mapping[str, int]
    """The same by flow, of jobs that are of one."""


def depth_form(depth: Depth, figures: Figures) -> DepthForm:
    return DepthForm(total=depth.total, soft=figures.soft, hard=figures.hard, by_flow=depth.by_flow)
