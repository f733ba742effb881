"""`/jobs` and `/jobs/{id}`: the legacy endpoints of existing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from rota.api.deprecation import deprecated_endpoint
from rota.api.edit import apply_edit
from rota.api.endpoint import Invocation, JsonReply, NoQuery
from rota.api.example import JOB, JOB_RUN
from rota.api.job import cancel_and_wait
from rota.api.legacy.request import parse_legacy_job_id
from rota.api.page import PageSize
from rota.command.edit import EditRequest, parse_edit
from rota.core.status import STARTED, WAITING, Status
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.store.session import Reader
from rota.view import job as view
from rota.view import run as run_view
from rota.view.job import ViewContext
from rota.wire.job import JobView
from rota.wire.legacy import (
    STATUS_ALIASES,
    LegacyCancelResult,
    LegacyEditResult,
    LegacyJob,
    LegacyJobList,
    LegacyRunList,
    legacy_job_fields,
    parse_legacy_status,
    render_legacy_job,
    render_legacy_run,
)

_MAX_RUNS = 1000
"""Maximum number of runs of a job to return, newest first. Each rewind adds a run."""


class LegacyJobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: list[str] = []
    """Only jobs with this status, by its legacy or current name. Repeat the parameter for several."""
    limit: PageSize = 100


def _parse_statuses(names: Sequence[str]) -> list[Status]:
    if not names:
        return list(Status)
    selected: dict[Status, None] = {}
    for name in names:
        statuses = parse_legacy_status(name)
        if statuses is None:
            message = f"unknown status {name!r}; the statuses are {', '.join(STATUS_ALIASES)}"
            raise InvalidInput(message).at_path(".status")
        selected |= dict.fromkeys(statuses)
    return list(selected)


def _render_jobs(reader: Reader, *, statuses: Sequence[Status], limit: int, view_context: ViewContext) -> LegacyJobList:
    jobs = reader.jobs.find_all(reader.jobs.newest_ids(statuses, limit=limit))
    counts = reader.jobs.count_by_status()
    return LegacyJobList(
        jobs=[render_legacy_job(job) for job in view.render_jobs(reader, jobs, view_context)],
        total=sum(counts.get(status, 0) for status in statuses),
        queued_count=sum(counts.get(status, 0) for status in WAITING),
        running_count=sum(counts.get(status, 0) for status in STARTED),
    )


async def legacy_list_jobs(call: Invocation[LegacyJobsQuery, None]) -> JsonReply[LegacyJobList]:
    """List jobs of all statuses, newest first. Use `GET /api/jobs` instead, which has pages and more filters."""
    context = call.context
    statuses = _parse_statuses(call.query.status)
    read_jobs = partial(_render_jobs, statuses=statuses, limit=call.query.limit, view_context=context.view_context())
    return JsonReply(await context.read(read_jobs))


async def legacy_get_job(call: Invocation[NoQuery, None]) -> JsonReply[LegacyJob]:
    """Show a job. Use `GET /api/jobs/{job}` instead."""
    context, job = call.context, call.path_parameter("job_id", parse_legacy_job_id)
    return JsonReply(render_legacy_job(await context.read(partial(view.show, job=job, context=context.view_context()))))


async def legacy_change_job(call: Invocation[NoQuery, EditRequest]) -> JsonReply[LegacyEditResult]:
    """Change the priority, the params or other fields of a waiting job. Use `PATCH /api/jobs/{job}` instead."""
    result = await apply_edit(call.context, call.path_parameter("job_id", parse_legacy_job_id), call.body)
    return JsonReply(LegacyEditResult(**legacy_job_fields(result.job), fields=result.fields, warning=result.warning))


def _cancel_reply(job: JobView) -> JsonReply[LegacyCancelResult]:
    success = job.status == Status.CANCELLED
    message = f"{job.id} is {job.status}" + ("" if success else "; it had ended before it could be cancelled")
    return JsonReply(LegacyCancelResult(**legacy_job_fields(job), success=success, message=message))


async def legacy_delete_job(call: Invocation[NoQuery, None]) -> JsonReply[LegacyCancelResult]:
    """Cancel a waiting job. A running job is refused, and no record is removed. Use `POST /api/jobs/{job}/cancel`
    instead."""
    job = call.path_parameter("job_id", parse_legacy_job_id)
    return _cancel_reply(await cancel_and_wait(call.context, job, spares_running=True))


async def legacy_cancel_job(call: Invocation[NoQuery, None]) -> JsonReply[LegacyCancelResult]:
    """Cancel a waiting or running job and its retries. Use `POST /api/jobs/{job}/cancel` instead."""
    return _cancel_reply(await cancel_and_wait(call.context, call.path_parameter("job_id", parse_legacy_job_id)))


def _render_runs(reader: Reader, *, job: JobId, view_context: ViewContext) -> LegacyRunList:
    job_view = view.show(reader, job, view_context)
    run_views, _ = run_view.list_runs(reader, view_context, job=job, limit=_MAX_RUNS)
    runs = [render_legacy_run(run, job_view) for run in run_views]
    return LegacyRunList(runs=runs, total=len(runs))


async def legacy_list_runs(call: Invocation[NoQuery, None]) -> JsonReply[LegacyRunList]:
    """List the runs of a job, newest first. Use `GET /api/jobs/{job}/runs` instead."""
    context, job = call.context, call.path_parameter("job_id", parse_legacy_job_id)
    return JsonReply(await context.read(partial(_render_runs, job=job, view_context=context.view_context())))


_SUCCESSOR_PATH = "/api/jobs/{job_id}"
_EXAMPLE = render_legacy_job(JOB)
_EDITED_EXAMPLE = LegacyEditResult(**{**legacy_job_fields(JOB), "priority": 10}, fields=["priority"], warning=None)
_CANCELLED_EXAMPLE = LegacyCancelResult(
    **{**legacy_job_fields(JOB), "status": "CANCELLED"}, success=True, message="job-25 is CANCELLED"
)

ENDPOINTS = [
    deprecated_endpoint(
        "GET",
        "/jobs",
        legacy_list_jobs,
        "/api/jobs",
        response_example=LegacyJobList(jobs=[_EXAMPLE], total=1, queued_count=1, running_count=0),
    ),
    deprecated_endpoint("GET", "/jobs/{job_id}", legacy_get_job, _SUCCESSOR_PATH, response_example=_EXAMPLE),
    deprecated_endpoint(
        "PATCH",
        "/jobs/{job_id}",
        legacy_change_job,
        _SUCCESSOR_PATH,
        errors=(409,),
        body_decoder=parse_edit,
        request_example={"priority": 10},
        response_example=_EDITED_EXAMPLE,
    ),
    deprecated_endpoint(
        "DELETE",
        "/jobs/{job_id}",
        legacy_delete_job,
        f"{_SUCCESSOR_PATH}/cancel",
        errors=(409,),
        response_example=_CANCELLED_EXAMPLE,
    ),
    deprecated_endpoint(
        "POST",
        "/jobs/{job_id}/cancel",
        legacy_cancel_job,
        f"{_SUCCESSOR_PATH}/cancel",
        errors=(409,),
        response_example=_CANCELLED_EXAMPLE,
    ),
    deprecated_endpoint(
        "GET",
        "/jobs/{job_id}/runs",
        legacy_list_runs,
        f"{_SUCCESSOR_PATH}/runs",
        response_example=LegacyRunList(runs=[render_legacy_run(JOB_RUN, JOB)], total=1),
    ),
]
