"""Legacy endpoints of jobs and batches: submits with legacy field names, `/jobs/batch`, `/jobs` and `/jobs/{id}`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from starlette.responses import Response

from rota.db.session import Reader
from rota.errors import Conflict, InvalidInput
from rota.groups import queries as group_queries
from rota.http.app import deprecated_endpoint
from rota.http.context import Context
from rota.http.endpoint import Invocation, JsonReply, NoQuery, PageSize
from rota.http.problem import JsonResponse, problem_response
from rota.ids import GroupId, JobId, format_group_id, format_job_id, parse_job_id
from rota.jobs import queries as job_queries
from rota.jobs.change_endpoints import apply_edit, cancel_and_wait
from rota.jobs.edit import EditRequest, parse_edit
from rota.jobs.examples import JOB, JOB_RUN, SUBMITTED_AT
from rota.jobs.queries import ViewContext
from rota.jobs.schemas import JobView
from rota.jobs.submission import GroupRequest, Submission
from rota.jobs.submit import AcceptedSubmit, DeferredSubmit, DuplicateSubmit
from rota.jobs.submit_endpoints import (
    RenderedBatch,
    RenderedSubmit,
    deferred_response,
    submit_many,
    submit_one,
    warning_and_depth,
)
from rota.jobs.submit_preparation import SINGLE_JOB_PATHS
from rota.kernel.status import STARTED, WAITING, Status
from rota.legacy.request import (
    LegacyBatchRequest,
    LegacySubmission,
    LegacyTrigger,
    legacy_error_paths,
    parse_batch,
    parse_flat_job,
    parse_legacy_group_id,
    parse_legacy_job_id,
    to_submission,
    to_submissions,
)
from rota.legacy.schemas import (
    LOWERCASE_STATUSES,
    STATUS_ALIASES,
    LegacyBatch,
    LegacyBatchJob,
    LegacyBatchTriggerResult,
    LegacyCancelResult,
    LegacyEditResult,
    LegacyJob,
    LegacyJobList,
    LegacyRunList,
    LegacySubmitResult,
    LegacyTriggerResult,
    legacy_job_fields,
    parse_legacy_status,
    render_legacy_batch,
    render_legacy_job,
    render_legacy_run,
)

_MAX_RUNS = 1000
"""Maximum number of runs of a job to return, newest first. Each rewind adds a run."""
_BATCH_GROUP = GroupRequest(mode="parallel", on_failure="continue")
"""Group of a batch, whose jobs do not depend on each other."""


async def legacy_create_job(call: Invocation[NoQuery, LegacySubmission]) -> JsonReply[LegacySubmitResult] | Response:
    """Submit a job by its type or by a command. A type selects the template with this name, or the one that creates
    jobs of this type. Jobs are retried three times unless the request says otherwise. Use `POST /api/jobs` instead."""
    with legacy_error_paths(msgspec.structs.asdict(call.body)):
        submission = await _resolve_submission(call.context, call.body)
        return await submit_one(call, submission, _submit_reply, is_legacy=True)


def _submit_reply(rendered: RenderedSubmit) -> JsonReply[LegacySubmitResult] | Response:
    result, job, delayed = rendered
    if isinstance(result, DeferredSubmit) or job is None:
        assert isinstance(result, DeferredSubmit)  # noqa: S101 - every other outcome has a job
        return deferred_response(result, job=None)
    if not isinstance(result, AcceptedSubmit):
        # Not a JsonReply, which would be stored for the key: nothing was done, so a repeat may succeed.
        return JsonResponse(LegacySubmitResult(**legacy_job_fields(job), result="already_active", warning=None))
    warning, _ = warning_and_depth(result, delayed)
    return JsonReply(LegacySubmitResult(**legacy_job_fields(job), result="submitted", warning=warning), 201)


async def legacy_trigger(call: Invocation[NoQuery, LegacyTrigger | None]) -> JsonReply[LegacyTriggerResult] | Response:
    """Run the template that a type selects. The body has its params, and some fields of the job. Use `POST /api/jobs`
    with the template's name instead."""
    request = parse_flat_job(call.body or {}, path_type=call.path_values["type"])
    with legacy_error_paths(call.body or {}):
        submission = await _resolve_submission(call.context, request)
        return await submit_one(call, submission, _trigger_reply, is_legacy=True)


def _trigger_reply(rendered: RenderedSubmit) -> JsonReply[LegacyTriggerResult] | Response:
    result, job, delayed = rendered
    if isinstance(result, DeferredSubmit) or job is None:
        assert isinstance(result, DeferredSubmit)  # noqa: S101 - every other outcome has a job
        return deferred_response(result, job_id=None)
    status = LOWERCASE_STATUSES[Status(job.status)]
    if not isinstance(result, AcceptedSubmit):
        message = f"{job.id} is already active; nothing was added"
        return JsonResponse(LegacyTriggerResult(job_id=job.id, type=job.type, status=status, message=message), 202)
    warning, _ = warning_and_depth(result, delayed)
    message = f"{job.id} is in the queue" + ("" if warning is None else f"; {warning}")
    return JsonReply(LegacyTriggerResult(job_id=job.id, type=job.type, status=status, message=message), 202)


async def _resolve_submission(context: Context, request: LegacySubmission) -> Submission:
    with SINGLE_JOB_PATHS:
        return await context.read(partial(to_submission, request=request))


async def legacy_trigger_batch(
    call: Invocation[NoQuery, LegacyBatchRequest],
) -> JsonReply[LegacyBatchTriggerResult] | Response:
    """Run several templates as a batch, all or none. The jobs are members of a parallel group, and continue when one of
    them fails. Use `POST /api/jobs/batch` with a `group` instead."""
    context = call.context
    members = parse_batch(call.body)
    with legacy_error_paths(msgspec.structs.asdict(call.body)):
        submissions = await context.read(partial(to_submissions, members=members))
        return await submit_many(
            call,
            submissions,
            _batch_reply,
            default_environment=context.default_environment,
            group=_BATCH_GROUP,
            is_legacy=True,
        )


def _batch_reply(rendered: RenderedBatch) -> JsonReply[LegacyBatchTriggerResult] | Response:
    result, delayed = rendered
    if isinstance(result, DeferredSubmit):
        return deferred_response(result, batch_id=None, job_ids=[])
    if isinstance(result, DuplicateSubmit) or result.created_group is None:
        active = ", ".join(format_job_id(job) for job in result.jobs)
        return problem_response(
            Conflict.code, 409, f"jobs of the batch are already active: {active}; nothing was added"
        )
    jobs = [format_job_id(job) for job in result.jobs]
    warning, _ = warning_and_depth(result, delayed)
    message = f"{len(jobs)} jobs are in the queue" + ("" if warning is None else f"; {warning}")
    body = LegacyBatchTriggerResult(
        batch_id=format_group_id(result.created_group),
        job_ids=jobs,
        job_count=len(jobs),
        status="queued",
        message=message,
    )
    return JsonReply(body, 202)


async def legacy_get_batch(call: Invocation[NoQuery, None]) -> JsonReply[LegacyBatch]:
    """Show the status of a batch and of its jobs. Use `GET /api/job-groups/{group}` instead."""
    context, group = call.context, call.path_parameter("batch_id", parse_legacy_group_id)
    return JsonReply(await context.read(partial(_render_batch, group=group, view_context=context.view_context())))


def _render_batch(reader: Reader, *, group: GroupId, view_context: ViewContext) -> LegacyBatch:
    batch = group_queries.show_group(reader, format_group_id(group))
    jobs = reader.jobs.find_all([parse_job_id(job) for job in batch.jobs or ()])
    return render_legacy_batch(batch, job_queries.render_jobs(reader, jobs, view_context))


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
        jobs=[render_legacy_job(job) for job in job_queries.render_jobs(reader, jobs, view_context)],
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
    return JsonReply(
        render_legacy_job(await context.read(partial(job_queries.show_job, job=job, context=context.view_context())))
    )


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
    return _cancel_reply(await cancel_and_wait(call.context, job, only_waiting=True))


async def legacy_cancel_job(call: Invocation[NoQuery, None]) -> JsonReply[LegacyCancelResult]:
    """Cancel a waiting or running job and its retries. Use `POST /api/jobs/{job}/cancel` instead."""
    return _cancel_reply(await cancel_and_wait(call.context, call.path_parameter("job_id", parse_legacy_job_id)))


def _render_runs(reader: Reader, *, job: JobId, view_context: ViewContext) -> LegacyRunList:
    job_view = job_queries.show_job(reader, job, view_context)
    run_views, _ = job_queries.list_runs(reader, view_context, job=job, limit=_MAX_RUNS)
    runs = [render_legacy_run(run, job_view) for run in run_views]
    return LegacyRunList(runs=runs, total=len(runs))


async def legacy_list_runs(call: Invocation[NoQuery, None]) -> JsonReply[LegacyRunList]:
    """List the runs of a job, newest first. Use `GET /api/jobs/{job}/runs` instead."""
    context, job = call.context, call.path_parameter("job_id", parse_legacy_job_id)
    return JsonReply(await context.read(partial(_render_runs, job=job, view_context=context.view_context())))


_SUCCESSOR_PATH = "/api/jobs/{job_id}"
_JOB_EXAMPLE = render_legacy_job(JOB)
_EDITED_EXAMPLE = LegacyEditResult(**{**legacy_job_fields(JOB), "priority": 10}, fields=["priority"], warning=None)
_CANCELLED_EXAMPLE = LegacyCancelResult(
    **{**legacy_job_fields(JOB), "status": "CANCELLED"}, success=True, message="job-25 is CANCELLED"
)
_TRIGGERED_BATCH_EXAMPLE = LegacyBatchTriggerResult(
    batch_id="group-3", job_ids=["job-25", "job-26"], job_count=2, status="queued", message="2 jobs are in the queue"
)
_BATCH_EXAMPLE = LegacyBatch(
    batch_id="group-3",
    status="running",
    total_jobs=2,
    completed_jobs=1,
    succeeded_jobs=1,
    failed_jobs=0,
    running_jobs=1,
    queued_jobs=0,
    created_at=SUBMITTED_AT,
    finished_at=None,
    jobs=[
        LegacyBatchJob(job_id="job-25", type="research", status="succeeded", error=None),
        LegacyBatchJob(job_id="job-26", type="story", status="running", error=None),
    ],
)
_SUBMITTED_EXAMPLE = LegacySubmitResult(**legacy_job_fields(JOB), result="submitted", warning=None)
_TRIGGERED_EXAMPLE = LegacyTriggerResult(
    job_id="job-25", type="story", status="queued", message="job-25 is in the queue"
)


ENDPOINTS = [
    deprecated_endpoint(
        "POST",
        "/jobs",
        legacy_create_job,
        "/api/jobs",
        statuses=(201, 200),
        errors=(404, 409, 429),
        accepts_key=True,
        request_example={"type": "story", "params": {"chapter": 7}, "priority": 10},
        response_example=_SUBMITTED_EXAMPLE,
    ),
    deprecated_endpoint(
        "POST",
        "/jobs/{type}/trigger",
        legacy_trigger,
        "/api/jobs",
        statuses=(202,),
        errors=(409, 429),
        accepts_key=True,
        request_example={"chapter": 7},
        response_example=_TRIGGERED_EXAMPLE,
    ),
    deprecated_endpoint(
        "POST",
        "/jobs/batch/trigger",
        legacy_trigger_batch,
        "/api/jobs/batch",
        statuses=(202,),
        errors=(404, 409, 429),
        accepts_key=True,
        response_example=_TRIGGERED_BATCH_EXAMPLE,
        request_example={"jobs": [{"type": "research", "topic": "lighthouses"}, {"type": "story", "chapter": 7}]},
    ),
    deprecated_endpoint(
        "GET", "/jobs/batch/{batch_id}", legacy_get_batch, "/api/job-groups/{batch_id}", response_example=_BATCH_EXAMPLE
    ),
    deprecated_endpoint(
        "GET",
        "/jobs",
        legacy_list_jobs,
        "/api/jobs",
        response_example=LegacyJobList(jobs=[_JOB_EXAMPLE], total=1, queued_count=1, running_count=0),
    ),
    deprecated_endpoint("GET", "/jobs/{job_id}", legacy_get_job, _SUCCESSOR_PATH, response_example=_JOB_EXAMPLE),
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
