"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, number, read
from rota.api.submit import foreseen, look_outside
from rota.command import fire
from rota.command import schedule as command
from rota.command.schedule import ScheduleChange, ScheduleWanted, find
from rota.command.submit import AlreadyActive, Submitted
from rota.core.schedule import Schedule
from rota.engine.work import Work
from rota.errors import InvalidInput
from rota.ids import parse_schedule
from rota.store.session import Reader
from rota.view import schedule as view
from rota.view.schedule import ScheduleForm

_MOST_LISTED = 1000
_MOST_TIMES = 1000


class TriggerWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    params: dict[str, Any] = {}


async def list_schedules(request: Request) -> Response:
    context = context_of(request)
    cursor = request.query_params.get("cursor")
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    after = 0 if cursor is None else parse_schedule(cursor)
    forms, last = await context.look(partial(view.listing, after=after, limit=limit))
    return answer({"schedules": forms, "next": last})


async def add_schedule(request: Request) -> Response:
    context, wanted = context_of(request), await read(request, ScheduleWanted)
    context.control.look_at_config()  # a retry policy that was just written can be chosen
    seen = await foreseen(context, await context.look(partial(command.made, wanted=wanted)))
    schedule, warnings = await context.perform(partial(command.add, wanted=wanted, actor=context.actor))
    form = msgspec.to_builtins(await _form_of(context, schedule))
    return answer({**form, "warning": "; ".join([*seen, *warnings]) or None}, 201)


async def _done(context: Context, act: Callable[[Work], Schedule]) -> ScheduleForm:
    """Carry it out, and let who waits for the next time look again."""
    return await _form_of(context, await context.perform(act))


async def _form_of(context: Context, schedule: Schedule) -> ScheduleForm:
    context.schedules_changed.set()
    return await context.look(partial(view.form, schedule=schedule, is_alone=True))


def _name(request: Request) -> str:
    name: str = request.path_params["schedule"]
    return name


async def get_schedule(request: Request) -> Response:
    return answer(await context_of(request).look(partial(_form, name=_name(request))))


def _form(reader: Reader, name: str) -> ScheduleForm:
    return view.form(reader, find(reader, name), is_alone=True)


async def change_schedule(request: Request) -> Response:
    context, wanted = context_of(request), await read(request, ScheduleChange)
    context.control.look_at_config()
    job = await context.look(partial(command.made_anew, name=_name(request), wanted=wanted))
    seen = [] if job is None else await foreseen(context, job)
    schedule, fields, warnings = await context.perform(
        partial(command.change, name=_name(request), wanted=wanted, actor=context.actor)
    )
    form = await _form_of(context, schedule)
    return answer({"schedule": form, "fields": fields, "warning": "; ".join([*seen, *warnings]) or None})


async def remove_schedule(request: Request) -> Response:
    context = context_of(request)
    return answer(await _done(context, partial(command.remove, name=_name(request), actor=context.actor)))


async def enable_schedule(request: Request) -> Response:
    context = context_of(request)
    return answer(await _done(context, partial(command.enable, name=_name(request), actor=context.actor)))


async def disable_schedule(request: Request) -> Response:
    context = context_of(request)
    return answer(await _done(context, partial(command.disable, name=_name(request), actor=context.actor)))


async def trigger_schedule(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, TriggerWanted) if await request.body() else TriggerWanted()
    schedule, job, origin = await context.look(partial(fire.triggered, name=_name(request), params=wanted.params))
    survey, workspaces = await look_outside(context, [job])
    act = partial(
        fire.trigger, schedule=schedule.id, job=job, origin=origin, around=context.around, survey=survey,
        workspace=workspaces[0] if workspaces else None, actor=context.actor,
    )  # fmt: skip
    told, form, _ = await context.perform_and_see(act, context.see_submitted)
    is_old = isinstance(told, AlreadyActive)
    is_new = isinstance(told, Submitted)
    return answer({"result": "already_active" if is_old else "submitted", "job": form}, 201 if is_new else 200)


async def next_fires(request: Request) -> Response:
    """Its times from now on, or from another time."""
    context = context_of(request)
    count = int(number(request, "count", 10, least=1, most=_MOST_TIMES))
    start = _moment(request.query_params.get("from"), context.clock.now())
    schedule = await context.look(partial(find, name=_name(request)))
    return answer({"fires": await context.look(lambda _: view.preview(schedule, start, count))})


def _moment(text: str | None, now: datetime) -> datetime:
    if text is None:
        return now
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"from: not a time: {text!r}; write it as 2026-03-29T01:30:00Z; without an offset it is UTC"
        ) from None


_ONE = "/api/schedules/{schedule}"
ROUTES = [
    Route("/api/schedules", list_schedules, methods=["GET"]),
    Route("/api/schedules", add_schedule, methods=["POST"]),
    Route(_ONE, get_schedule, methods=["GET"]),
    Route(_ONE, change_schedule, methods=["PATCH"]),
    Route(_ONE, remove_schedule, methods=["DELETE"]),
    Route(f"{_ONE}/enable", enable_schedule, methods=["POST"]),
    Route(f"{_ONE}/disable", disable_schedule, methods=["POST"]),
    Route(f"{_ONE}/trigger", trigger_schedule, methods=["POST"]),
    Route(f"{_ONE}/next", next_fires, methods=["GET"]),
]
