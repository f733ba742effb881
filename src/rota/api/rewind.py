"""Rewind over HTTP, and the runs that it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer
from rota.command.rewind import Area, Report, Sighted, clear, look, reports, rewind, survey, survey_group
from rota.errors import Conflict, Unavailable
from rota.ids import parse_job, parse_run
from rota.view import run as view

_LOOK_OUTSIDE = 20.0
"""Seconds for a look at repositories and artifacts."""
_TRIES = 10


async def rewind_job(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    return _told(await _rewound(context, partial(survey, job=job), request.headers.get("idempotency-key")))


async def rewind_group(request: Request) -> Response:
    """What of it has not succeeded, in one rewind."""
    context, find = context_of(request), partial(survey_group, group=request.path_params["group"])
    return _told(await _rewound(context, find, request.headers.get("idempotency-key")))


def _told(report: Report) -> Response:
    body = msgspec.structs.asdict(report)
    warnings = body.pop("warnings")
    return answer({**body, "warning": "; ".join(warnings) or None})


async def _rewound(context: Context, find: Callable[..., Area], key: str | None) -> Report:
    """`find` surveys what is to be rewound."""
    for _ in range(_TRIES):
        area = await context.look(partial(find, outside=context.sight().outside))
        sighted = await _look(context, area)
        act = partial(rewind, area=area, sighted=sighted, actor=context.actor, key=key)
        report = await context.perform_and_see(act, reports)
        if report is not None:
            left = area.with_workspace
            kept = await asyncio.to_thread(clear, left, context.home.jobs) if left else []
            return msgspec.structs.replace(report, warnings=[*report.warnings, *kept])
    raise Conflict("jobs join the rewind set faster than it can be looked at; nothing was rewound, so try again")


async def _look(context: Context, area: Area) -> Sighted:
    if not area.repositories and not area.facts:
        return Sighted()
    try:
        places = {("rewind", repository) for repository in area.repositories} or {("rewind", "")}
        ask = partial(look, area, context.probe, context.known.begin())
        return await context.asides.ask(places, _LOOK_OUTSIDE, ask)
    except TimeoutError:
        raise Unavailable("the file system does not answer; nothing was rewound, so try again later") from None


async def list_runs(request: Request) -> Response:
    """The newest first."""
    context, job = context_of(request), parse_job(request.path_params["job"])
    return answer({"runs": await context.look(partial(view.runs, job=job, sight=context.sight()))})


async def get_run(request: Request) -> Response:
    context, run = context_of(request), parse_run(request.path_params["run"])
    return answer(await context.look(partial(view.show, run=run, sight=context.sight())))


ROUTES = [
    Route("/api/job-runs/{run}", get_run, methods=["GET"]),
    Route("/api/jobs/{job}/rewind", rewind_job, methods=["POST"]),
    Route("/api/job-groups/{group}/rewind", rewind_group, methods=["POST"]),
    Route("/api/jobs/{job}/runs", list_runs, methods=["GET"]),
]
