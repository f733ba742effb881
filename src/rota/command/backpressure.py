"""Back-pressure on submit. Where no limit is set, or none that concerns the jobs, nothing is looked up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from datetime import timedelta

import msgspec

from rota.core.backpressure import DELAYED, Depth, Figures, is_delayed, is_full, show_depth, show_full
from rota.engine.dispatch import choose
from rota.engine.work import Work

RETRY_AFTER = timedelta(seconds=5)
"""When a submit that was put off may be tried again; nobody knows when jobs will end."""


class Deferred(msgspec.Struct, frozen=True, kw_only=True):
    depth: Depth
    figures: Figures
    """Of the queue as a whole."""
    text: str
    """Why, and what to do."""


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    depth: Depth
    figures: Figures
    text: str


def deferred(work: Work, flows: Iterable[str]) -> Deferred | None:
    """What a submit of jobs of these flows is answered where the queue is full before it."""
    settings = work.settings
    limited = settings.queue.concerning(sorted(flows), settings.limits)
    if all(figures.hard is None for figures in limited.values()):
        return None
    depth = work.session.depth()
    for flow, figures in limited.items():
        is_put_off = is_full(depth.of(flow), figures)
        if is_put_off and is_full(depth.of(flow) - _about_to_start(work, flow), figures):
            text = show_full(flow, depth, figures)
            return Deferred(depth=depth, figures=settings.queue.of_all(settings.limits), text=text)
    return None


def _about_to_start(work: Work, flow: str | None) -> int:
    """Of what is ready, what starts before this turn is over: only what was stored in it can, and the plan knows it."""
    settings = work.settings
    if not work.has_stored or settings.heartbeat is not None or settings.spawn_delay:
        return 0
    claims = choose(work.session, settings.limits, settings.batch_size, holds=work.holds).claims
    if flow is None:
        return len(claims)
    lanes = {place.lane for place in work.session.places() if place.flow == flow}
    return sum(claim.lane in lanes for claim in claims)


def delays(work: Work, submits: Sequence[Set[str] | None]) -> list[Delayed | None]:
    """At the end of a turn, after its dispatch: what submits of jobs of these flows are to be warned of; none for one
    that stored nothing."""
    settings = work.settings
    limited = [{} if flows is None else settings.queue.concerning(flows, settings.limits) for flows in submits]
    if all(figures.soft is None for each in limited for figures in each.values()):
        return [None] * len(submits)
    depth = work.session.depth()
    figures = settings.queue.of_all(settings.limits)
    delayed = Delayed(depth=depth, figures=figures, text=f"{DELAYED}: {show_depth(depth)}")
    return [
        delayed if any(is_delayed(depth.of(flow), each) for flow, each in heeded.items()) else None
        for heeded in limited
    ]
