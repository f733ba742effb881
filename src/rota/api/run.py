"""Runs over HTTP: the history of one job or of all jobs."""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.example import RUN
from rota.api.page import PageSize, parse_cursor, parse_field
from rota.core.status import Status
from rota.errors import error_path
from rota.ids import parse_job_id, parse_run_id
from rota.view import run as view
from rota.wire.job import RunView
from rota.wire.run import RunPage
from rota.wire.schema_types import JobIdText, RunIdText

RunState = Literal["RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobIdText | None = None
    """Only runs of this job."""
    status: list[RunState] = []
    """Only runs with this status. Repeat the parameter for several. `RUNNING` selects active runs, whose `status` is
    null."""
    worker: str | None = None
    """Only runs on this worker, such as `local/1`."""
    limit: PageSize = 100
    cursor: RunIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_runs(call: Invocation[RunsQuery, None]) -> JsonReply[RunPage]:
    """List runs of all jobs, newest first."""
    context, query = call.context, call.query
    read_page = partial(
        view.list_runs,
        context=context.view_context(),
        before_id=_parse_runs_cursor(query.cursor),
        limit=query.limit,
        worker=query.worker,
        job=parse_field("job", query.job, parse_job_id),
        statuses=[Status(name) for name in query.status] or view.RUN_STATUSES,
    )
    with error_path(".job"):
        runs, next_cursor = await context.read(read_page)
    return JsonReply(RunPage(runs=runs, next=next_cursor))


def _parse_runs_cursor(cursor: str | None) -> int:
    return parse_cursor(cursor, parse_run_id, view.MAX_RUN_ID)


class RunsOfJobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: RunIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_runs_of_job(call: Invocation[RunsOfJobQuery, None]) -> JsonReply[RunPage]:
    """List the runs of a job, newest first. A rewound job keeps its earlier runs. A retry is a separate job."""
    context, query = call.context, call.query
    read_page = partial(
        view.list_runs,
        context=context.view_context(),
        before_id=_parse_runs_cursor(query.cursor),
        limit=query.limit,
        job=call.path_parameter("job", parse_job_id),
    )
    runs, next_cursor = await context.read(read_page)
    return JsonReply(RunPage(runs=runs, next=next_cursor))


async def get_run(call: Invocation[NoQuery, None]) -> JsonReply[RunView]:
    """Show a run."""
    context, run = call.context, call.path_parameter("run", parse_run_id)
    return JsonReply(await context.read(partial(view.show, run=run, context=context.view_context())))


ENDPOINTS = [
    Endpoint("GET", "/api/job-runs", list_runs, response_example={"runs": [RUN], "next": None}, errors=(404,)),
    Endpoint("GET", "/api/job-runs/{run}", get_run, response_example=RUN),
    Endpoint("GET", "/api/jobs/{job}/runs", list_runs_of_job, response_example={"runs": [RUN], "next": None}),
]
