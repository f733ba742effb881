"""A tick by hand over HTTP: look at all that waiting jobs hang on outside, then take a turn, or only rehearse one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.command.tick import tick
from rota.engine.outside import look_at, watched
from rota.engine.work import Work
from rota.errors import Unavailable
from rota.view.tick import report
from rota.wire.tick import TickForm

_PATIENCE = 20.0
"""Seconds for the look outside."""


class TickWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to tick."""

    dry_run: bool = False
    """Only say what would start."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """The most that it starts; null or left out, as `[scheduler] batch_size` says."""


async def post_tick(call: Call[Nothing, TickWanted | None]) -> Reply[TickForm]:
    """Take a tick now: look at all that waiting jobs hang on, and start what can start."""
    context, wanted = call.context, call.body or TickWanted()
    context.control.look_at_config()
    facts = await context.look(partial(watched, places=context.control.settings.places))
    try:
        sighting = await context.asides.ask(["tick"], _PATIENCE, partial(look_at, facts, context.probe, context.known))
    except TimeoutError:
        raise Unavailable("the file system does not answer; what hangs on it is tried again by itself") from None
    await context.control.look_at_hold_file(wakes=False)  # the turn that follows is this one
    act = partial(tick, sighting=sighting, batch=wanted.batch)
    ask = context.rehearse if wanted.dry_run else context.perform_and_see
    return Reply(await ask(act, _seen))


def _seen(work: Work, asked: Sequence[None]) -> list[TickForm]:
    return [report(work)] * len(asked)


ENDPOINTS = [
    Endpoint(
        "POST", "/api/scheduler/tick", post_tick, sends={"dry_run": False, "batch": 2},
        shows={"dispatched": ["job-24", "job-25"], "would_dispatch": [], "skipped": 3, "reason": "batch"},
    ),
]  # fmt: skip
