"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import JOB, SUBMITTED
from rota.api.once import carry_out
from rota.api.page import PageSize, begins_at
from rota.api.problem import Json
from rota.api.submit import ALONE, Seen, foreseen, look_outside
from rota.command import fire
from rota.command import schedule as command
from rota.command.schedule import ScheduleChange, ScheduleWanted, find
from rota.command.submit import AlreadyActive
from rota.core.schedule import CatchUp, FireState, Overlap, Schedule
from rota.engine.work import Work
from rota.errors import InvalidInput, within
from rota.ids import ScheduleId, parse_schedule
from rota.store.session import Looking
from rota.view import schedule as view
from rota.wire.schedule import (
    FireForm,
    FiresForm,
    ScheduleAddedForm,
    ScheduleChangedForm,
    ScheduleForm,
    SchedulesForm,
    TimeForm,
    TriggerForm,
)
from rota.wire.text import Moment, ScheduleText


class SchedulesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: ScheduleText | None = None
    """The `next` of the page before."""


async def list_schedules(call: Call[SchedulesQuery, None]) -> Reply[SchedulesForm]:
    """List schedules, the oldest first. Of what became of their times each has only the last."""
    after = begins_at(call.query.cursor, parse_schedule, ScheduleId(0))
    return Reply(await call.context.look(partial(view.listing, after=after, limit=call.query.limit)))


async def add_schedule(call: Call[Nothing, ScheduleWanted]) -> Reply[ScheduleAddedForm]:
    """Add a schedule. What every one of its jobs would be refused for is refused now; what may be there in time is
    warned of."""
    context, wanted = call.context, call.body
    context.control.look_at_config()  # a retry policy that was just written can be chosen
    with within(".job"):
        job = await context.look(partial(command.made, wanted=wanted))
        foreseen_now = await foreseen(context, wanted.job, job)

    def tell(seen: tuple[ScheduleForm, list[str]]) -> Reply[ScheduleAddedForm]:
        form, warnings = seen
        warning = _joined(foreseen_now, warnings)
        return Reply(ScheduleAddedForm(**msgspec.structs.asdict(form), warning=warning), 201)

    done = await carry_out(call, partial(command.add, wanted=wanted, actor=context.actor), _see_added, tell)
    context.schedules_changed.set()
    return done.reply


def _see_added(work: Work, results: Sequence[tuple[Schedule, list[str]]]) -> list[tuple[ScheduleForm, list[str]]]:
    return [(_form(work.session, schedule), warnings) for schedule, warnings in results]


def _form(look: Looking, schedule: Schedule) -> ScheduleForm:
    return view.form(look, schedule, is_alone=True)


def _joined(*warnings: Sequence[str]) -> str | None:
    return "; ".join(text for each in warnings for text in each) or None


async def get_schedule(call: Call[Nothing, None]) -> Reply[ScheduleForm]:
    """Show a schedule, by name or id. It has its next three times, and what became of the latest ten."""
    name = call.path["schedule"]
    return Reply(await call.context.look(lambda reader: _form(reader, find(reader, name))))


async def change_schedule(call: Call[Nothing, ScheduleChange]) -> Reply[ScheduleChangedForm]:
    """Change what is named of a schedule. It holds from the next fire on; jobs that exist keep what they have."""
    context, name, wanted = call.context, call.path["schedule"], call.body
    context.control.look_at_config()
    job = await context.look(partial(command.made_anew, name=name, wanted=wanted))
    with within(".job"):
        foreseen_now = [] if job is None else await foreseen(context, *job)
    act = partial(command.change, name=name, wanted=wanted, actor=context.actor)
    form, fields, warnings = await context.perform_and_see(act, _see_changed)
    context.schedules_changed.set()
    return Reply(ScheduleChangedForm(schedule=form, fields=fields, warning=_joined(foreseen_now, warnings)))


def _see_changed(
    work: Work, results: Sequence[tuple[Schedule, list[str], list[str]]]
) -> list[tuple[ScheduleForm, list[str], list[str]]]:
    return [(_form(work.session, schedule), fields, warnings) for schedule, fields, warnings in results]


async def remove_schedule(call: Call[Nothing, None]) -> Reply[ScheduleForm]:
    """Remove a schedule, and show what it was. Its jobs stay."""
    return await _done(call, command.remove)


async def enable_schedule(call: Call[Nothing, None]) -> Reply[ScheduleForm]:
    """Enable a schedule. Its times count from now on; one that is enabled already stays as it is."""
    return await _done(call, command.enable)


async def disable_schedule(call: Call[Nothing, None]) -> Reply[ScheduleForm]:
    """Disable a schedule. Until it is enabled again it makes jobs by `trigger` only."""
    return await _done(call, command.disable)


async def _done(call: Call[Nothing, None], act: Callable[..., Schedule]) -> Reply[ScheduleForm]:
    """Carry it out, and let who waits for the next time look again."""
    context = call.context
    form = await context.perform_and_see(partial(act, name=call.path["schedule"], actor=context.actor), _see)
    context.schedules_changed.set()
    return Reply(form)


def _see(work: Work, results: Sequence[Schedule]) -> list[ScheduleForm]:
    return [_form(work.session, schedule) for schedule in results]


_PARAMS = within(".params", instead_of=".params")
"""Of a job they are the request's; all else of it is the schedule's."""


class TriggerWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is another this time."""

    params: dict[str, Any] = {}
    """Over its own, by key."""


async def trigger_schedule(call: Call[Nothing, TriggerWanted | None]) -> Reply[TriggerForm] | Response:
    """Make a job of a schedule now. Neither `overlap` nor that it is disabled is asked, and its times stay as they are.
    While another chain has the unique key, that one is shown (200)."""
    context, params = call.context, {} if call.body is None else call.body.params
    with _PARAMS:
        schedule, job, origin = await context.look(partial(fire.triggered, name=call.path["schedule"], params=params))
    with _PARAMS, ALONE:
        survey, workspaces = await look_outside(context, [job])
        act = partial(
            fire.trigger, schedule=schedule.id, job=job, origin=origin, around=context.around, survey=survey,
            workspace=workspaces[0] if workspaces else None, actor=context.actor,
        )  # fmt: skip
        return (await carry_out(call, act, context.see_submitted, _tell_triggered)).reply


def _tell_triggered(seen: Seen) -> Reply[TriggerForm] | Response:
    told, form, _ = seen
    assert form is not None  # noqa: S101 - a full queue puts off only what somebody submits
    if isinstance(told, AlreadyActive):
        return Json(TriggerForm(result="already_active", job=form))  # nothing was done: it may come again
    return Reply(TriggerForm(result="submitted", job=form), 201)


class NextQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    start: Moment | None = msgspec.field(name="from", default=None)
    """Times after this one, `2026-11-16T01:30:00Z`, instead of after now; without an offset it is UTC."""
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    """How many."""


async def next_fires(call: Call[NextQuery, None]) -> Reply[FiresForm]:
    """Show the times of a schedule to come, whether it is enabled or not."""
    context, query = call.context, call.query
    start = context.clock.now() if query.start is None else _moment(query.start)
    schedule = await context.look(partial(find, name=call.path["schedule"]))
    return Reply(FiresForm(fires=await context.look(lambda _: view.preview(schedule, start, query.count))))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"from: not a time: {text!r}; write it as 2026-03-29T01:30:00Z; without an offset it is UTC"
        ).under(".from") from None


_DUE = datetime(2026, 11, 17, 3, 30, tzinfo=UTC)
_ADDED = datetime(2026, 11, 2, 9, 12, tzinfo=UTC)
_TIMES = [TimeForm(utc=at, local=at) for at in (_DUE, _DUE + timedelta(days=1), _DUE + timedelta(days=2))]
_FIRE = FireForm(
    at=_DUE - timedelta(days=1), state=FireState.FIRED, job="job-21", status="COMPLETED", late=0.004, reason=None,
    count=1, trigger=False,
)  # fmt: skip
_WANTED = {
    "name": "nightly",
    "cron": "30 3 * * *",
    "overlap": "skip",
    "job": {"command": ["claude", "-p", "review the day"], "params": {"depth": 2}},
}
_LISTED = ScheduleForm(
    id="schedule-2",
    name="nightly",
    cron="30 3 * * *",
    tz="UTC",
    catch_up=CatchUp.LATEST,
    overlap=Overlap.SKIP,
    enabled=True,
    next_at=_DUE,
    since=_ADDED,
    created_at=_ADDED,
    changed_at=_ADDED,
    template=None,
    command=["claude", "-p", "review the day"],
    params={"depth": 2},
    priority=0,
    job={"command": ["claude", "-p", "review the day"], "params": {"depth": 2}, "name": "nightly"},
    last_fire=_FIRE,
)
_SHOWN = msgspec.structs.replace(_LISTED, next=_TIMES, fires=[_FIRE])
_NEW = {**msgspec.to_builtins(_LISTED), "last_fire": None, "next": msgspec.to_builtins(_TIMES), "warning": None}
_DISABLED = msgspec.structs.replace(
    _SHOWN, enabled=False, next_at=None, changed_at=SUBMITTED + timedelta(minutes=4), next=[]
)

_ONE = "/api/schedules/{schedule}"
ENDPOINTS = [
    Endpoint("GET", "/api/schedules", list_schedules, shows=SchedulesForm(schedules=[_LISTED], next=None)),
    Endpoint(
        "POST", "/api/schedules", add_schedule, statuses=(201,), refuses=(404, 409), is_keyed=True, sends=_WANTED,
        shows=_NEW,
    ),
    Endpoint("GET", _ONE, get_schedule, shows=_SHOWN),
    Endpoint(
        "PATCH", _ONE, change_schedule, refuses=(409,), sends={"cron": "30 3 * * 1-5", "set_params": {"depth": 3}},
        shows=ScheduleChangedForm(schedule=_SHOWN, fields=["cron", "job"], warning=None),
    ),
    Endpoint("DELETE", _ONE, remove_schedule, shows=_SHOWN),
    Endpoint("POST", f"{_ONE}/enable", enable_schedule, shows=_SHOWN),
    Endpoint("POST", f"{_ONE}/disable", disable_schedule, shows=_DISABLED),
    Endpoint(
        "POST", f"{_ONE}/trigger", trigger_schedule, statuses=(201, 200), refuses=(409,), is_keyed=True,
        sends={"params": {"depth": 3}},
        shows=TriggerForm(result="submitted", job=msgspec.structs.replace(JOB, schedule="schedule-2")),
        also_shows={200: TriggerForm(result="already_active", job=JOB)},
    ),
    Endpoint("GET", f"{_ONE}/next", next_fires, shows=FiresForm(fires=_TIMES)),
]  # fmt: skip
