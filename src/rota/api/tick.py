"""Manual tick over HTTP: probe all facts that waiting jobs depend on, then run a turn or simulate one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from rota.api.context import DaemonControl
from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.command.tick import request_tick
from rota.engine.facts import find_watched_facts, probe_facts
from rota.engine.transaction import Transaction
from rota.errors import ServiceUnavailable
from rota.view.tick import render_tick
from rota.wire.tick import TickResult

_PROBE_TIMEOUT = 20.0
"""Maximum seconds to probe the facts."""


class TickRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a tick."""

    dry_run: bool = False
    """Return the jobs that would start, without starting them."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Maximum number of jobs to start; `[scheduler] batch_size` by default."""


async def run_tick(call: Invocation[NoQuery, TickRequest | None]) -> JsonReply[TickResult]:
    """Run a tick now. It probes all facts that waiting jobs depend on, and starts the jobs that can start."""
    context, request = call.context, call.body or TickRequest()
    context.control.check_config()
    facts = await context.read(partial(find_watched_facts, paths=context.control.settings.artifact_paths))
    try:
        observation = await context.blocking_calls.run(
            ["tick"], _PROBE_TIMEOUT, partial(probe_facts, facts, context.probe, context.fact_cache)
        )
    except TimeoutError:
        message = "the file system does not answer; jobs that depend on it are evaluated again automatically"
        raise ServiceUnavailable(message) from None
    await context.control.check_hold_file(wakes_engine=False)  # the tick itself is the next turn
    operation = partial(request_tick, observation=observation, batch_size=request.batch)
    run = context.dry_run if request.dry_run else context.run_and_render
    return JsonReply(await run(operation, partial(_render, context.control)))


def _render(control: DaemonControl, tx: Transaction, results: Sequence[None]) -> list[TickResult]:
    return [render_tick(tx, control.first_blocker)] * len(results)


ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/scheduler/tick",
        run_tick,
        request_example={"dry_run": False, "batch": 2},
        response_example={
            "dispatched": ["job-24", "job-25"],
            "would_dispatch": [],
            "skipped": 3,
            "reason": "batch",
            "blocker": None,
        },
    )
]
