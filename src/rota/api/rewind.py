"""Rewind over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.once import Done, carry_out
from rota.command.rewind import Area, Report, Sighted, clear, look, reports, rewind, survey, survey_group
from rota.errors import Conflict, Unavailable
from rota.ids import parse_job
from rota.wire.rewind import RewindForm

_LOOK_OUTSIDE = 20.0
"""Seconds for a look at repositories and artifacts."""
_TRIES = 10


async def rewind_job(call: Call[Nothing, None]) -> Reply[RewindForm]:
    """Put a job and everything downstream of it back into the queue, in place."""
    return await _rewound(call, partial(survey, job=call.place("job", parse_job)))


async def rewind_group(call: Call[Nothing, None]) -> Reply[RewindForm]:
    """Rewind what of a group has not succeeded, in one."""
    return await _rewound(call, partial(survey_group, group=call.path["group"]))


def _tell(report: Report | None) -> Reply[RewindForm] | None:
    if report is None:
        return None
    fields = msgspec.structs.asdict(report)
    warnings = fields.pop("warnings")
    return Reply(RewindForm(**fields, warning="; ".join(warnings) or None))


async def _rewound(call: Call[Nothing, None], find: Callable[..., Area]) -> Reply[RewindForm]:
    """`find` surveys what is to be rewound."""
    context = call.context
    for _ in range(_TRIES):
        area = await context.look(partial(find, outside=context.sight().outside))
        act = partial(rewind, area=area, sighted=await _look(context, area), actor=context.actor)
        done = await carry_out(call, act, reports, _tell)
        if done.reply is not None:
            return await _cleared(context, area, done)
    raise Conflict("jobs join the rewind set faster than it can be looked at; nothing was rewound, so try again")


async def _cleared(
    context: Context, area: Area, done: Done[Reply[RewindForm] | None, Report | None]
) -> Reply[RewindForm]:
    """What is left of the workspaces goes after the commit, and what of it cannot go is said."""
    assert done.reply is not None  # noqa: S101 - it was rewound
    report = next(iter(done.seen), None)
    if report is None or not area.with_workspace:
        return done.reply
    kept = await asyncio.to_thread(clear, area.with_workspace, context.home.jobs)
    return _tell(msgspec.structs.replace(report, warnings=[*report.warnings, *kept])) or done.reply


async def _look(context: Context, area: Area) -> Sighted:
    if not area.repositories and not area.facts:
        return Sighted()
    try:
        places = {("rewind", repository) for repository in area.repositories} or {("rewind", "")}
        ask = partial(look, area, context.probe, context.known.begin())
        return await context.asides.ask(places, _LOOK_OUTSIDE, ask)
    except TimeoutError:
        raise Unavailable("the file system does not answer; nothing was rewound, so try again later") from None


_REWOUND = {
    "requested_job": "job-22",
    "root": "job-22",
    "last_successful_point": ["job-21"],
    "rewind_set": ["job-22", "job-23"],
    "reset": ["job-22", "job-23"],
    "restarted": ["job-22"],
    "cancelled": [],
    "warning": None,
}

ENDPOINTS = [
    Endpoint("POST", "/api/jobs/{job}/rewind", rewind_job, refuses=(409,), is_keyed=True, shows=_REWOUND),
    Endpoint("POST", "/api/job-groups/{group}/rewind", rewind_group, refuses=(409,), is_keyed=True, shows=_REWOUND),
]
