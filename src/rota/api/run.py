"""Runs over HTTP: the audit of what was started, of one job or of all."""

from __future__ import annotations

from functools import partial
from typing import Literal

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import RUN
from rota.api.page import PageSize, begins_at, parsed
from rota.core.status import Status
from rota.errors import within
from rota.ids import parse_job, parse_run
from rota.view import run as view
from rota.wire.job import RunForm
from rota.wire.run import RunsForm
from rota.wire.text import JobText, RunText

RunState = Literal["RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobText | None = None
    """Only runs of this job."""
    status: list[RunState] = []
    """Only runs of these statuses; `RUNNING` are those that are not over, whose `status` is null."""
    worker: str | None = None
    """Only what this worker ran: `local/1`."""
    limit: PageSize = 100
    cursor: RunText | None = None
    """The `next` of the page before."""


async def list_runs(call: Call[RunsQuery, None]) -> Reply[RunsForm]:
    """List runs of all jobs, the newest first."""
    context, query = call.context, call.query
    look = partial(
        view.listing, sight=context.sight(), below=_below(query.cursor), limit=query.limit, worker=query.worker,
        job=parsed("job", query.job, parse_job),
        statuses=[Status(each) for each in query.status] or view.STATUSES,
    )  # fmt: skip
    with within(".job"):
        runs, following = await context.look(look)
    return Reply(RunsForm(runs=runs, next=following))


def _below(cursor: str | None) -> int:
    return begins_at(cursor, parse_run, view.NEWEST)


class RunsOfJobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: RunText | None = None
    """The `next` of the page before."""


async def list_runs_of_job(call: Call[RunsOfJobQuery, None]) -> Reply[RunsForm]:
    """List the runs of a job, the newest first. A rewind leaves runs behind; a retry is a job of its own."""
    context, query = call.context, call.query
    look = partial(
        view.listing, sight=context.sight(), below=_below(query.cursor), limit=query.limit,
        job=call.place("job", parse_job),
    )  # fmt: skip
    runs, following = await context.look(look)
    return Reply(RunsForm(runs=runs, next=following))


async def get_run(call: Call[Nothing, None]) -> Reply[RunForm]:
    """Show a run."""
    context, run = call.context, call.place("run", parse_run)
    return Reply(await context.look(partial(view.show, run=run, sight=context.sight())))


ENDPOINTS = [
    Endpoint("GET", "/api/job-runs", list_runs, shows={"runs": [RUN], "next": None}, refuses=(404,)),
    Endpoint("GET", "/api/job-runs/{run}", get_run, shows=RUN),
    Endpoint("GET", "/api/jobs/{job}/runs", list_runs_of_job, shows={"runs": [RUN], "next": None}),
]
