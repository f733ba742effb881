"""How many jobs are ready, as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.core.backpressure import Depth, Figures


class DepthForm(msgspec.Struct, frozen=True, kw_only=True):
    total: int
    soft: int | None
    hard: int | None
    """The limits of all together, where there are any."""
    by_flow: Mapping[str, int]


def depth_form(depth: Depth, figures: Figures) -> DepthForm:
    return DepthForm(total=depth.total, soft=figures.soft, hard=figures.hard, by_flow=depth.by_flow)
