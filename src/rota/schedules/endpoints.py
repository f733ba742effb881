"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.db.session import AnyReader, Reader
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput, error_path
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, PageSize, parse_cursor
from rota.http.idempotency import run_call
from rota.http.problem import JsonResponse
from rota.ids import ScheduleId, parse_schedule_id
from rota.jobs.examples import JOB, SUBMITTED_AT
from rota.jobs.policies import effective_policies
from rota.jobs.submission import Submission
from rota.jobs.submit import DuplicateSubmit
from rota.jobs.submit_endpoints import RenderedSubmit
from rota.jobs.submit_preparation import SINGLE_JOB_PATHS
from rota.schedules import commands, fire, queries
from rota.schedules.commands import ScheduleChange, ScheduleRequest, find_schedule
from rota.schedules.model import CatchUp, FireState, Overlap, Schedule
from rota.schedules.schemas import (
    FireView,
    ScheduleAddResult,
    ScheduleChangeResult,
    ScheduledTime,
    SchedulePage,
    ScheduleView,
    TriggerResult,
    UpcomingFires,
)
from rota.schema_types import ScheduleIdText, TimestampText


class SchedulesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: ScheduleIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_schedules(call: Invocation[SchedulesQuery, None]) -> JsonReply[SchedulePage]:
    """List schedules, oldest first. Each has the outcome of its last time only."""
    after = parse_cursor(call.query.cursor, parse_schedule_id, ScheduleId(0))
    return JsonReply(await call.context.read(partial(queries.list_schedules, after=after, limit=call.query.limit)))


async def add_schedule(call: Invocation[NoQuery, ScheduleRequest]) -> JsonReply[ScheduleAddResult]:
    """Add a schedule. The schedule is refused if all of its jobs would be refused. Something that is missing now, but
    may exist in time, gives a warning."""
    context, request = call.context, call.body
    context.control.check_config()  # the job can name a retry policy that was just added to the file
    with error_path(".job"):
        job = await context.read(partial(commands.expand_request, request=request))
        preflight_warnings = await _collect_warnings(context, request.job, job)

    def make_reply(rendered: tuple[ScheduleView, list[str]]) -> JsonReply[ScheduleAddResult]:
        schedule, warnings = rendered
        warning = _join_warnings(preflight_warnings, warnings)
        return JsonReply(ScheduleAddResult(**msgspec.structs.asdict(schedule), warning=warning), 201)

    result = await run_call(
        call, partial(commands.add_schedule, request=request, actor=context.actor), _render_added, make_reply
    )
    context.schedules_changed.set()
    return result.reply


async def _collect_warnings(context: Context, request: Submission, job: Submission) -> list[str]:
    return await context.submit_preparer.collect_warnings(request, job, context.default_environment)


def _render_added(
    tx: Transaction, results: Sequence[tuple[Schedule, list[str]]]
) -> list[tuple[ScheduleView, list[str]]]:
    return [(_render_schedule(tx, schedule), warnings) for schedule, warnings in results]


def _render_schedule(reader: AnyReader, schedule: Schedule) -> ScheduleView:
    return queries.render_schedule(reader, schedule, is_detailed=True)


def _join_warnings(*warnings: Sequence[str]) -> str | None:
    return "; ".join(chain.from_iterable(warnings)) or None


async def get_schedule(call: Invocation[NoQuery, None]) -> JsonReply[ScheduleView]:
    """Show a schedule, by name or id. The response has its next three times, its last ten times with their outcomes,
    and the policies of the job that it would create now."""
    show = partial(_show_with_policies, name=call.path_values["schedule"], context=call.context)
    return JsonReply(await call.context.read(show))


def _show_with_policies(reader: Reader, *, name: str, context: Context) -> ScheduleView:
    schedule, now = find_schedule(reader, name), context.clock.now()
    shown, settings = _render_schedule(reader, schedule), context.control.settings
    if shown.unreadable is not None:
        return shown
    preview = fire.preview_job(reader, schedule, settings, context.default_environment, now)
    if preview is None:
        return shown
    job, needs = preview
    policies = effective_policies(job, needs, limits=settings.pool_sizes, breaker=settings.breaker)
    return msgspec.structs.replace(shown, policies=policies)


async def change_schedule(call: Invocation[NoQuery, ScheduleChange]) -> JsonReply[ScheduleChangeResult]:
    """Change fields of a schedule. The change applies from the next time on; existing jobs do not change."""
    context, name, request = call.context, call.path_values["schedule"], call.body
    context.control.check_config()
    job = await context.read(partial(commands.expand_change, name=name, change_request=request))
    with error_path(".job"):
        preflight_warnings = [] if job is None else await _collect_warnings(context, *job)
    operation = partial(commands.change_schedule, name=name, change_request=request, actor=context.actor)
    schedule, fields, warnings = await context.run_and_render(operation, _render_changed)
    context.schedules_changed.set()
    warning = _join_warnings(preflight_warnings, warnings)
    return JsonReply(ScheduleChangeResult(schedule=schedule, fields=fields, warning=warning))


def _render_changed(
    tx: Transaction, results: Sequence[tuple[Schedule, list[str], list[str]]]
) -> list[tuple[ScheduleView, list[str], list[str]]]:
    return [(_render_schedule(tx, schedule), fields, warnings) for schedule, fields, warnings in results]


async def remove_schedule(call: Invocation[NoQuery, None]) -> JsonReply[ScheduleView]:
    """Remove a schedule, and return it. Its jobs stay."""
    return await _update(call, commands.remove)


async def enable_schedule(call: Invocation[NoQuery, None]) -> JsonReply[ScheduleView]:
    """Enable a schedule. Its times count from now on. A schedule that is enabled already does not change."""
    return await _update(call, commands.enable)


async def disable_schedule(call: Invocation[NoQuery, None]) -> JsonReply[ScheduleView]:
    """Disable a schedule. Until it is enabled again, only `trigger` creates jobs."""
    return await _update(call, commands.disable)


async def _update(call: Invocation[NoQuery, None], operation: Callable[..., Schedule]) -> JsonReply[ScheduleView]:
    """Apply an operation to a schedule, and wake the schedule timer."""
    context = call.context
    operation = partial(operation, name=call.path_values["schedule"], actor=context.actor)
    schedule = await context.run_and_render(operation, _render)
    context.schedules_changed.set()
    return JsonReply(schedule)


def _render(tx: Transaction, results: Sequence[Schedule]) -> list[ScheduleView]:
    return [_render_schedule(tx, schedule) for schedule in results]


_PARAMS = error_path(".params", replaced_prefix=".params")
"""Error paths of a triggered job: the request has only the params."""


class TriggerRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to a single job of a schedule."""

    params: dict[str, Any] = {}
    """Params to add or overwrite."""


async def trigger_schedule(call: Invocation[NoQuery, TriggerRequest | None]) -> JsonReply[TriggerResult] | Response:
    """Create a job of a schedule now. Neither `overlap` nor a disabled state prevents it, and the times of the schedule
    stay as they are. While another chain has the unique key, the response has the job of that chain (200)."""
    context, params = call.context, {} if call.body is None else call.body.params
    with _PARAMS:
        schedule, job, origin = await context.read(
            partial(fire.prepare_trigger, name=call.path_values["schedule"], params=params)
        )
    with _PARAMS, SINGLE_JOB_PATHS:
        preflight, workspaces = await context.submit_preparer.run_preflight([job], context.default_environment)
        operation = partial(
            fire.trigger,
            schedule=schedule.id,
            job=job,
            origin=origin,
            default_environment=context.default_environment,
            preflight=preflight,
            workspace=workspaces[0] if workspaces else None,
            actor=context.actor,
        )
        return (await run_call(call, operation, context.render_submitted, _trigger_reply)).reply


def _trigger_reply(rendered: RenderedSubmit) -> JsonReply[TriggerResult] | Response:
    result, job, _ = rendered
    assert job is not None  # noqa: S101 - a full queue defers submits, but not schedules
    if isinstance(result, DuplicateSubmit):
        # Not a JsonReply, which would be stored for the key: nothing was done, so a repeat may succeed.
        return JsonResponse(TriggerResult(result="already_active", job=job))
    return JsonReply(TriggerResult(result="submitted", job=job), 201)


class NextFiresQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    start: TimestampText | None = msgspec.field(name="from", default=None)
    """Start of the list, such as `2026-11-16T01:30:00Z`; now by default. A time without an offset is in UTC."""
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    """Number of times to list."""


async def list_next_fires(call: Invocation[NextFiresQuery, None]) -> JsonReply[UpcomingFires]:
    """List the next times of a schedule, whether it is enabled or not."""
    context, query = call.context, call.query
    start = context.clock.now() if query.start is None else _parse_time(query.start)
    schedule = await context.read(partial(find_schedule, name=call.path_values["schedule"]))
    return JsonReply(
        UpcomingFires(fires=await context.read(lambda _: queries.upcoming_times(schedule, start, query.count)))
    )


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"from: invalid time {text!r}; write it as 2026-03-29T01:30:00Z; without an offset it is UTC"
        raise InvalidInput(message).at_path(".from") from None


_DUE_AT = datetime(2026, 11, 17, 3, 30, tzinfo=UTC)
_ADDED_AT = datetime(2026, 11, 2, 9, 12, tzinfo=UTC)
_TIMES_EXAMPLE = [
    ScheduledTime(utc=at, local=at) for at in (_DUE_AT, _DUE_AT + timedelta(days=1), _DUE_AT + timedelta(days=2))
]
_FIRE_EXAMPLE = FireView(
    at=_DUE_AT - timedelta(days=1),
    state=FireState.FIRED,
    job="job-21",
    status="COMPLETED",
    delay_seconds=0.004,
    reason=None,
    count=1,
    trigger=False,
)
_REQUEST_EXAMPLE = {
    "name": "nightly",
    "cron": "30 3 * * *",
    "overlap": "skip",
    "job": {"command": ["claude", "-p", "review the day"], "params": {"depth": 2}},
}
_LIST_EXAMPLE = ScheduleView(
    id="schedule-2",
    name="nightly",
    cron="30 3 * * *",
    tz="UTC",
    catch_up=CatchUp.LATEST,
    overlap=Overlap.SKIP,
    enabled=True,
    next_at=_DUE_AT,
    since=_ADDED_AT,
    created_at=_ADDED_AT,
    changed_at=_ADDED_AT,
    template=None,
    command=["claude", "-p", "review the day"],
    params={"depth": 2},
    priority=0,
    job={"command": ["claude", "-p", "review the day"], "params": {"depth": 2}, "name": "nightly"},
    last_fire=_FIRE_EXAMPLE,
    unreadable=None,
)
_EXAMPLE = msgspec.structs.replace(_LIST_EXAMPLE, next=_TIMES_EXAMPLE, fires=[_FIRE_EXAMPLE])
_NEW_EXAMPLE = {
    **msgspec.to_builtins(_LIST_EXAMPLE),
    "last_fire": None,
    "next": msgspec.to_builtins(_TIMES_EXAMPLE),
    "warning": None,
}
_DISABLED_EXAMPLE = msgspec.structs.replace(
    _EXAMPLE, enabled=False, next_at=None, changed_at=SUBMITTED_AT + timedelta(minutes=4), next=[]
)

_PATH = "/api/schedules/{schedule}"
ENDPOINTS = [
    Endpoint(
        "GET", "/api/schedules", list_schedules, response_example=SchedulePage(schedules=[_LIST_EXAMPLE], next=None)
    ),
    Endpoint(
        "POST",
        "/api/schedules",
        add_schedule,
        statuses=(201,),
        errors=(404, 409),
        accepts_key=True,
        request_example=_REQUEST_EXAMPLE,
        response_example=_NEW_EXAMPLE,
    ),
    Endpoint("GET", _PATH, get_schedule, response_example=_EXAMPLE),
    Endpoint(
        "PATCH",
        _PATH,
        change_schedule,
        errors=(409,),
        request_example={"cron": "30 3 * * 1-5", "set_params": {"depth": 3}},
        response_example=ScheduleChangeResult(schedule=_EXAMPLE, fields=["cron", "job"], warning=None),
    ),
    Endpoint("DELETE", _PATH, remove_schedule, response_example=_EXAMPLE),
    Endpoint("POST", f"{_PATH}/enable", enable_schedule, response_example=_EXAMPLE),
    Endpoint("POST", f"{_PATH}/disable", disable_schedule, response_example=_DISABLED_EXAMPLE),
    Endpoint(
        "POST",
        f"{_PATH}/trigger",
        trigger_schedule,
        statuses=(201, 200),
        errors=(409,),
        accepts_key=True,
        request_example={"params": {"depth": 3}},
        response_example=TriggerResult(result="submitted", job=msgspec.structs.replace(JOB, schedule="schedule-2")),
        other_response_examples={200: TriggerResult(result="already_active", job=JOB)},
    ),
    Endpoint("GET", f"{_PATH}/next", list_next_fires, response_example=UpcomingFires(fires=_TIMES_EXAMPLE)),
]
