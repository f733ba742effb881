"""Jobs over HTTP: reads of jobs, runs and the queue."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from rota.db.job_records import ENDED_PART, FILTER_COLUMNS, ListCursor
from rota.db.session import Reader
from rota.errors import InvalidInput, error_path
from rota.http.context import Context
from rota.http.endpoint import (
    Endpoint,
    Invocation,
    JsonReply,
    NoQuery,
    PageSize,
    WaitSeconds,
    parse_cursor,
    parse_field,
)
from rota.ids import JobId, format_job_id, parse_job_id, parse_run_id
from rota.jobs import queries
from rota.jobs.examples import ENDED_JOB, RUN, WAITING_JOB
from rota.jobs.explain import explain_wait
from rota.jobs.result_schemas import QueuePage
from rota.jobs.schemas import JobPage, JobStatusText, JobView, RunPage, RunView, WaitExplanation
from rota.kernel.job import Job
from rota.kernel.queue import FIRST_RANK, LAST_RANK, Rank
from rota.kernel.status import TERMINAL, Status
from rota.schema_types import JobIdText, JobsCursor, QueueCursor, RunIdText

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_ACTIVE_PARTS = ("started", "waiting")
RunStatusText = Literal["RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: list[JobStatusText] = []
    """Only jobs with this status. Repeat the parameter for several."""
    name: str | None = None
    """Only jobs with this name."""
    type: str | None = None
    """Only jobs of this type."""
    flow: str | None = None
    """Only jobs of this flow."""
    phase: str | None = None
    """Only jobs of this phase."""
    target: str | None = None
    """Only jobs of this target."""
    group: str | None = None
    """Only members of this group, by id or name."""
    limit: PageSize = 100
    cursor: JobsCursor | None = None
    """Cursor of the page: the `next` of the previous page."""
    total: bool = False
    """Also count the jobs on all pages. With a filter, this reads every job with the selected statuses."""


def _parse_statuses(names: Sequence[str]) -> list[Status]:
    public = {status.value: status for status in Status if status is status.public}
    for n, name in enumerate(names):
        if name.upper() not in public:
            message = f"unknown status in {', '.join(names)}; the statuses are {', '.join(public)}"
            raise InvalidInput(message).at_path(f".status[{n}]")
    statuses = [public[name.upper()] for name in names] or list(Status)
    return [*statuses, Status.DISPATCHED] if Status.RUNNING in statuses else statuses


def _format_jobs_cursor(reader: Reader, job: Job) -> str:
    """Return the cursor of the page after this job. It is a position, because the job itself may move, end or be
    removed."""
    part, rank = reader.jobs.cursor_of(job.id)
    if part == ENDED_PART:
        return f"ended.{format_job_id(job.id)}"
    return ".".join((_ACTIVE_PARTS[part], *map(str, rank)))


def _parse_jobs_cursor(cursor: str) -> ListCursor:
    part, *numbers = cursor.split(".")
    if part == "ended" and len(numbers) == 1:
        return ENDED_PART, (*LAST_RANK[:-1], int(parse_job_id(numbers[0])))
    if part in _ACTIVE_PARTS and len(numbers) == len(FIRST_RANK) and all(map(_NUMBER.fullmatch, numbers)):
        return _ACTIVE_PARTS.index(part), tuple(map(int, numbers))
    raise ValueError(cursor)


async def list_jobs(call: Invocation[JobsQuery, None]) -> JsonReply[JobPage]:
    """List jobs. Running jobs come first, then waiting jobs in queue order, then ended jobs, newest first. Without
    `status`, jobs of every status are returned.

    Each page is read at one moment. A job that keeps its place while the pages are read is listed once; a job that
    moves, starts or ends in the meantime can be listed again, or not at all.
    """
    context, query = call.context, call.query
    statuses, limit, group_name = _parse_statuses(query.status), query.limit, query.group
    cursor = parse_cursor(query.cursor, _parse_jobs_cursor, None)
    filters = {name: value for name in FILTER_COLUMNS if (value := getattr(query, name)) is not None}

    def read_page(reader: Reader) -> JobPage:
        with error_path(".group"):
            group = None if group_name is None else reader.groups.find(group_name).id
        ids = reader.jobs.list_ids(statuses, limit=limit + 1, filters=filters, group=group, cursor=cursor)
        jobs = reader.jobs.find_all(ids[:limit])
        return JobPage(
            jobs=queries.render_jobs(reader, jobs, context.view_context()),
            next=_format_jobs_cursor(reader, jobs[-1]) if len(ids) > limit else None,
            counts=_count_by_status(reader) if cursor is None else None,
            total=reader.jobs.count_listed(statuses, filters=filters, group=group) if query.total else None,
        )

    return JsonReply(await context.read(read_page))


def _count_by_status(reader: Reader) -> dict[str, int]:
    counts: dict[str, int] = {}
    for status, count in reader.jobs.count_by_status().items():
        counts[status.public] = counts.get(status.public, 0) + count
    return counts


def last_of_chain(reader: Reader, job: JobId) -> JobId:
    last = reader.chains.last_job(job)
    return job if last is None else last[0]


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds | None = None
    """Maximum seconds to wait until the chain of the job has ended. The response has the last job of the chain."""
    last_seen: str | None = None
    """With `wait`, the last known status. A different status ends the wait."""


async def get_job(call: Invocation[JobQuery, None]) -> JsonReply[JobView]:
    """Show a job, and why it waits."""
    context, job = call.context, call.path_parameter("job", parse_job_id)
    if call.query.wait is None:
        return JsonReply(
            await context.read(partial(queries.show_job_with_policies, job=job, context=context.view_context()))
        )
    return JsonReply(await wait_until_ended(context, job, call.query.wait, call.query.last_seen))


async def wait_until_ended(context: Context, job: JobId, seconds: float, last_seen: str | None) -> JobView:
    """Return the last job of the chain when it has ended or its status is not `last_seen`, or when the time is over."""

    def read_last(reader: Reader) -> JobView:
        return queries.show_job_with_policies(reader, last_of_chain(reader, job), context.view_context())

    def is_done(last: JobView) -> bool:
        return (
            Status(last.status) in TERMINAL
            if last_seen is None
            else last.status != last_seen or Status(last.status) in TERMINAL
        )

    def has_changed(last: JobView) -> bool:
        return is_done(last) or last.id != format_job_id(current)

    # A retry is announced by an event of the job before it. Then the wait continues with events of the retry.
    current, deadline = job, time.monotonic() + seconds
    while True:
        last = await context.hub.wait_until(
            current, deadline - time.monotonic(), lambda: context.read(read_last), has_changed
        )
        if is_done(last) or last.id == format_job_id(current):
            return last
        current = parse_job_id(last.id)


async def explain_job(call: Invocation[NoQuery, None]) -> JsonReply[WaitExplanation]:
    """Explain why a job has not started. The explanation includes the jobs upstream that delay it."""
    context, job = call.context, call.path_parameter("job", parse_job_id)
    return JsonReply(await context.read(partial(explain_wait, job=job, context=context.view_context())))


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    job: JobIdText | None = None
    """Only runs of this job."""
    status: list[RunStatusText] = []
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
        queries.list_runs,
        context=context.view_context(),
        before_id=_parse_runs_cursor(query.cursor),
        limit=query.limit,
        worker=query.worker,
        job=parse_field("job", query.job, parse_job_id),
        statuses=[Status(name) for name in query.status] or queries.RUN_STATUSES,
    )
    with error_path(".job"):
        runs, next_cursor = await context.read(read_page)
    return JsonReply(RunPage(runs=runs, next=next_cursor))


def _parse_runs_cursor(cursor: str | None) -> int:
    return parse_cursor(cursor, parse_run_id, queries.MAX_RUN_ID)


class RunsOfJobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: RunIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_runs_of_job(call: Invocation[RunsOfJobQuery, None]) -> JsonReply[RunPage]:
    """List the runs of a job, newest first. A rewound job keeps its earlier runs. A retry is a separate job."""
    context, query = call.context, call.query
    read_page = partial(
        queries.list_runs,
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
    return JsonReply(await context.read(partial(queries.show_run, run=run, context=context.view_context())))


class QueueQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: QueueCursor | None = None
    """Cursor of the page: the `next` of the previous page."""


def _parse_queue_cursor(text: str) -> Rank:
    """Parse a cursor, which is the rank of the last job of the previous page. This job may have started or moved
    since."""
    numbers = text.split(".")
    if len(numbers) != len(FIRST_RANK) or not all(map(_NUMBER.fullmatch, numbers)):
        raise ValueError(text)
    return Rank._make(map(int, numbers))


async def list_queue(call: Invocation[QueueQuery, None]) -> JsonReply[QueuePage]:
    """List waiting jobs in queue order."""
    context, after = call.context, parse_cursor(call.query.cursor, _parse_queue_cursor, queries.FRONT_RANK)
    page = await context.read(
        partial(queries.list_queue, context=context.view_context(), after=after, limit=call.query.limit)
    )
    next_cursor = None if page.last is None else ".".join(map(str, page.last))
    return JsonReply(QueuePage(jobs=page.jobs, next=next_cursor))


_JOBS_EXAMPLE = {
    "jobs": [WAITING_JOB, ENDED_JOB],
    "next": "ended.job-21",
    "counts": {"QUEUED": 1, "COMPLETED": 23},
    "total": None,
}
_WHY_EXAMPLE = {
    "job": "job-24",
    "status": "QUEUED",
    "wait": WAITING_JOB["wait"],
    "text": "job-24 is QUEUED: waiting on pool global (1/1), used by job-23",
    "warnings": [],
}
_QUEUED_EXAMPLE = {name: WAITING_JOB[name] for name in ("id", "name", "status", "priority", "position", "wait")}

ENDPOINTS = [
    Endpoint("GET", "/api/jobs", list_jobs, errors=(404,), response_example=_JOBS_EXAMPLE),
    Endpoint("GET", "/api/jobs/{job}", get_job, response_example=WAITING_JOB),
    Endpoint("GET", "/api/jobs/{job}/why", explain_job, response_example=_WHY_EXAMPLE),
    Endpoint("GET", "/api/job-runs", list_runs, response_example={"runs": [RUN], "next": None}, errors=(404,)),
    Endpoint("GET", "/api/job-runs/{run}", get_run, response_example=RUN),
    Endpoint("GET", "/api/jobs/{job}/runs", list_runs_of_job, response_example={"runs": [RUN], "next": None}),
    Endpoint(
        "GET", "/api/queue", list_queue, response_example={"jobs": [{**_QUEUED_EXAMPLE, "place": 1}], "next": None}
    ),
]
