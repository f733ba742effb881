"""`/scheduler`: `start` and `stop` resume and pause everything. No legacy endpoint ends the process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.control import commands
from rota.db.session import Reader
from rota.http.app import deprecated_endpoint
from rota.http.context import Context
from rota.http.endpoint import Invocation, JsonReply, NoQuery
from rota.ids import JobId, format_job_id
from rota.jobs.queries import ViewContext
from rota.kernel.status import WAITING, Status
from rota.legacy.schemas import LegacyScheduler, LegacyStartResult, LegacyStats, LegacyStopResult
from rota.naming import GLOBAL

_MIN_READ_INTERVAL = 0.1
"""Minimum seconds between two reads of the running jobs."""


class LegacyStartRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a start."""

    run_recovery: bool = True
    """Accepted, but without effect: Rota recovers from a crash when it starts."""


class LegacyStopRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a stop."""

    timeout: Annotated[float, Meta(ge=1, le=300)] | None = None
    """Maximum seconds to wait for running jobs to end. By default, the response does not wait."""


async def legacy_start_scheduler(call: Invocation[NoQuery, LegacyStartRequest | None]) -> JsonReply[LegacyStartResult]:
    """Start jobs again after a stop. Use `POST /api/scheduler/resume` instead."""
    context = call.context
    result = await context.run_in_turn(partial(commands.resume, scope=GLOBAL, actor=context.actor))
    await context.control.check_hold_file()
    held = context.view_context().holds.hold_text
    message = "the scheduler starts jobs again" if result.has_changed else "the scheduler was not stopped"
    return JsonReply(LegacyStartResult(success=held is None, message=message if held is None else f"held: {held}"))


async def legacy_stop_scheduler(call: Invocation[NoQuery, LegacyStopRequest | None]) -> JsonReply[LegacyStopResult]:
    """Start no more jobs. Running jobs continue, and the queue does not change. Use `POST /api/scheduler/pause`
    instead."""
    context = call.context
    result = await context.run_in_turn(partial(commands.pause, scope=GLOBAL, actor=context.actor))
    running = await _wait_for_running(context, None if call.body is None else call.body.timeout)
    message = "the scheduler starts no more jobs" if result.has_changed else "the scheduler was stopped already"
    names = ", ".join(format_job_id(job) for job in running)
    return JsonReply(LegacyStopResult(success=True, message=f"{message}; still running: {names}" if names else message))


async def _wait_for_running(context: Context, seconds: float | None) -> Sequence[JobId]:
    """Return the jobs that still run, once there are none or the time is over."""

    def read_running(reader: Reader) -> list[JobId]:
        return reader.jobs.running()

    if seconds is None:
        return await context.read(read_running)
    return await context.hub.wait_until(
        None, seconds, lambda: context.read(read_running), lambda running: not running, min_interval=_MIN_READ_INTERVAL
    )


def _render_status(reader: Reader, *, view_context: ViewContext) -> LegacyScheduler:
    counts = reader.jobs.count_by_status()
    pauses = reader.pauses.state(holds=view_context.holds)
    running = reader.jobs.running()
    ended = {status: counts.get(status, 0) for status in (Status.COMPLETED, Status.FAILED, Status.SKIPPED)}
    return LegacyScheduler(
        scheduler_running=GLOBAL not in pauses.scopes and pauses.hold_text is None,
        current_job_id=format_job_id(running[0]) if running else None,
        queue_length=sum(counts.get(status, 0) for status in WAITING),
        cumulative_stats=LegacyStats(
            # Without cancelled runs.
            total_executed=sum(ended.values()),
            succeeded=ended[Status.COMPLETED],
            failed=ended[Status.FAILED],
            cancelled=counts.get(Status.CANCELLED, 0),
            skipped=ended[Status.SKIPPED],
        ),
        has_active_reservation=bool(reader.reservations.list_open()),
    )


async def legacy_get_scheduler(call: Invocation[NoQuery, None]) -> JsonReply[LegacyScheduler]:
    """Show whether jobs start, which job runs and how many wait. Use `GET /api/scheduler` instead."""
    context = call.context
    await context.control.check_hold_file()
    return JsonReply(await context.read(partial(_render_status, view_context=context.view_context())))


_STATUS_EXAMPLE = LegacyScheduler(
    scheduler_running=True,
    current_job_id="job-24",
    queue_length=3,
    has_active_reservation=False,
    cumulative_stats=LegacyStats(total_executed=20, succeeded=18, failed=1, cancelled=2, skipped=1),
)

ENDPOINTS = [
    deprecated_endpoint(
        "POST",
        "/scheduler/start",
        legacy_start_scheduler,
        "/api/scheduler/resume",
        request_example={"run_recovery": True},
        response_example=LegacyStartResult(success=True, message="the scheduler starts jobs again"),
    ),
    deprecated_endpoint(
        "POST",
        "/scheduler/stop",
        legacy_stop_scheduler,
        "/api/scheduler/pause",
        request_example={"timeout": 30},
        response_example=LegacyStopResult(success=True, message="the scheduler starts no more jobs"),
    ),
    deprecated_endpoint(
        "GET", "/scheduler/status", legacy_get_scheduler, "/api/scheduler", response_example=_STATUS_EXAMPLE
    ),
]
