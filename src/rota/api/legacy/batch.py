"""`/jobs/batch`: the legacy endpoints of groups."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from rota.api.deprecation import deprecated_endpoint
from rota.api.endpoint import Invocation, JsonReply, NoQuery
from rota.api.example import SUBMITTED_AT
from rota.api.legacy.request import (
    LegacyBatchRequest,
    parse_batch,
    parse_legacy_group_id,
    report_sent_paths,
    to_submissions,
)
from rota.api.problem import problem_response
from rota.api.submit import RenderedBatch, deferred_response, submit_many, warning_and_depth
from rota.command.backpressure import DeferredSubmit
from rota.command.submission import GroupRequest
from rota.command.submit import DuplicateSubmit
from rota.errors import Conflict
from rota.ids import GroupId, format_group_id, format_job_id, parse_job_id
from rota.store.session import Reader
from rota.view import group as group_view
from rota.view import job as job_view
from rota.view.job import ViewContext
from rota.wire.legacy import LegacyBatch, LegacyBatchJob, LegacyBatchTriggerResult, render_legacy_batch

_GROUP = GroupRequest(mode="parallel", on_failure="continue")
"""Group of a batch, whose jobs do not depend on each other."""


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


async def legacy_trigger_batch(
    call: Invocation[NoQuery, LegacyBatchRequest],
) -> JsonReply[LegacyBatchTriggerResult] | Response:
    """Run several templates as a batch, all or none. The jobs are members of a parallel group, and continue when one of
    them fails. Use `POST /api/jobs/batch` with a `group` instead."""
    context = call.context
    members = parse_batch(call.body)
    with report_sent_paths(msgspec.structs.asdict(call.body)):
        submissions = await context.read(partial(to_submissions, members=members))
        return await submit_many(
            call,
            submissions,
            _batch_reply,
            default_environment=context.default_environment,
            group=_GROUP,
            is_legacy=True,
        )


def _render_batch(reader: Reader, *, group: GroupId, view_context: ViewContext) -> LegacyBatch:
    batch = group_view.show(reader, format_group_id(group))
    jobs = reader.jobs.find_all([parse_job_id(job) for job in batch.jobs or ()])
    return render_legacy_batch(batch, job_view.render_jobs(reader, jobs, view_context))


async def legacy_get_batch(call: Invocation[NoQuery, None]) -> JsonReply[LegacyBatch]:
    """Show the status of a batch and of its jobs. Use `GET /api/job-groups/{group}` instead."""
    context, group = call.context, call.path_parameter("batch_id", parse_legacy_group_id)
    return JsonReply(await context.read(partial(_render_batch, group=group, view_context=context.view_context())))


_CREATED_EXAMPLE = LegacyBatchTriggerResult(
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

ENDPOINTS = [
    deprecated_endpoint(
        "POST",
        "/jobs/batch/trigger",
        legacy_trigger_batch,
        "/api/jobs/batch",
        statuses=(202,),
        errors=(404, 409, 429),
        accepts_key=True,
        response_example=_CREATED_EXAMPLE,
        request_example={"jobs": [{"type": "research", "topic": "lighthouses"}, {"type": "story", "chapter": 7}]},
    ),
    deprecated_endpoint(
        "GET", "/jobs/batch/{batch_id}", legacy_get_batch, "/api/job-groups/{batch_id}", response_example=_BATCH_EXAMPLE
    ),
]
