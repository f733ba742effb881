"""`/scheduler`: start and stop are resume and pause of everything. No request ends the process: who started it does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.api.context import Context
from rota.api.deprecation import deprecated
from rota.api.endpoint import Call, Nothing, Reply
from rota.command import control
from rota.core.status import WAITING, Status
from rota.ids import JobId, show_job
from rota.names import GLOBAL
from rota.store.session import Reader
from rota.view.job import Sight
from rota.wire.legacy import LegacyScheduler, LegacyStarted, LegacyStats, LegacyTold

_BREATH = 0.1
"""Seconds between two looks at what runs, however much happens."""


class LegacyStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a start can be sent."""

    run_recovery: bool = True
    """Taken, and of no effect: what a crash left behind is recovered when Rota itself starts."""


class LegacyStop(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to stop."""

    timeout: Annotated[float, Meta(ge=1, le=300)] | None = None
    """Wait so many seconds for what runs to end; without it, the answer comes at once."""


async def legacy_start_scheduler(call: Call[Nothing, LegacyStart | None]) -> Reply[LegacyStarted]:
    """Go on starting jobs, after a stop. Ask `POST /api/scheduler/resume` instead."""
    context = call.context
    told = await context.perform(partial(control.resume, scope=GLOBAL, actor=context.actor))
    await context.control.look_at_hold_file()
    held = context.sight().holds.file
    message = "the scheduler starts jobs again" if told.result else "the scheduler was not stopped"
    return Reply(LegacyStarted(success=held is None, message=message if held is None else f"held: {held}"))


async def legacy_stop_scheduler(call: Call[Nothing, LegacyStop | None]) -> Reply[LegacyTold]:
    """Start no more jobs. What runs is left to end by itself, and the queue stays as it is. Ask
    `POST /api/scheduler/pause` instead."""
    context = call.context
    told = await context.perform(partial(control.pause, scope=GLOBAL, actor=context.actor))
    running = await _running(context, None if call.body is None else call.body.timeout)
    message = "the scheduler starts no more jobs" if told.result else "the scheduler was stopped already"
    names = ", ".join(show_job(job) for job in running)
    return Reply(LegacyTold(success=True, message=f"{message}; still running: {names}" if names else message))


async def _running(context: Context, seconds: float | None) -> Sequence[JobId]:
    """What still runs, when nothing does or when the time is over."""

    def look(reader: Reader) -> list[JobId]:
        return reader.running_jobs()

    if seconds is None:
        return await context.look(look)
    return await context.hub.until(
        None, seconds, lambda: context.look(look), lambda running: not running, breath=_BREATH
    )  # fmt: skip


def _status(reader: Reader, *, sight: Sight) -> LegacyScheduler:
    counts = reader.counts()
    pauses = reader.pauses(holds=sight.holds)
    running = reader.running_jobs()
    ended = {status: counts.get(status, 0) for status in (Status.COMPLETED, Status.FAILED, Status.SKIPPED)}
    return LegacyScheduler(
        scheduler_running=GLOBAL not in pauses.scopes and pauses.held is None,
        current_job_id=show_job(running[0]) if running else None,
        queue_length=sum(counts.get(status, 0) for status in WAITING),
        cumulative_stats=LegacyStats(
            total_executed=sum(ended.values()),
            succeeded=ended[Status.COMPLETED],
            failed=ended[Status.FAILED],
            cancelled=counts.get(Status.CANCELLED, 0),
            skipped=ended[Status.SKIPPED],
        ),
        has_active_reservation=bool(reader.open_slots()),
    )


async def legacy_get_scheduler(call: Call[Nothing, None]) -> Reply[LegacyScheduler]:
    """Say whether jobs are started, which one runs and how many wait. Ask `GET /api/scheduler` instead."""
    context = call.context
    await context.control.look_at_hold_file()
    return Reply(await context.look(partial(_status, sight=context.sight())))


_STATUS = LegacyScheduler(
    scheduler_running=True, current_job_id="job-24", queue_length=3, has_active_reservation=False,
    cumulative_stats=LegacyStats(total_executed=20, succeeded=18, failed=1, cancelled=2, skipped=1),
)  # fmt: skip

ENDPOINTS = [
    deprecated(
        "POST", "/scheduler/start", legacy_start_scheduler, "/api/scheduler/resume", sends={"run_recovery": True},
        shows=LegacyStarted(success=True, message="the scheduler starts jobs again"),
    ),
    deprecated(
        "POST", "/scheduler/stop", legacy_stop_scheduler, "/api/scheduler/pause", sends={"timeout": 30},
        shows=LegacyTold(success=True, message="the scheduler starts no more jobs"),
    ),
    deprecated("GET", "/scheduler/status", legacy_get_scheduler, "/api/scheduler", shows=_STATUS),
]  # fmt: skip
