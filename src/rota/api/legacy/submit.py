"""`POST /jobs` and `POST /jobs/{type}/trigger`: submits with legacy field names."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from rota.api.context import Context
from rota.api.deprecation import deprecated_endpoint
from rota.api.endpoint import Invocation, JsonReply, NoQuery
from rota.api.example import JOB
from rota.api.legacy.request import LegacySubmission, LegacyTrigger, parse_flat_job, report_sent_paths, to_submission
from rota.api.problem import JsonResponse
from rota.api.submit import RenderedSubmit, deferred_response, submit_one, warning_and_depth
from rota.command.backpressure import DeferredSubmit
from rota.command.submission import Submission
from rota.command.submit import AcceptedSubmit
from rota.command.submit_preparation import SINGLE_JOB_PATHS
from rota.core.status import Status
from rota.wire.legacy import LOWERCASE_STATUSES, LegacySubmitResult, LegacyTriggerResult, legacy_job_fields


def _created_reply(rendered: RenderedSubmit) -> JsonReply[LegacySubmitResult] | Response:
    result, job, delayed = rendered
    if isinstance(result, DeferredSubmit) or job is None:
        assert isinstance(result, DeferredSubmit)  # noqa: S101 - every other outcome has a job
        return deferred_response(result, job=None)
    if not isinstance(result, AcceptedSubmit):
        # Not a JsonReply, which would be stored for the key: nothing was done, so a repeat may succeed.
        return JsonResponse(LegacySubmitResult(**legacy_job_fields(job), result="already_active", warning=None))
    warning, _ = warning_and_depth(result, delayed)
    return JsonReply(LegacySubmitResult(**legacy_job_fields(job), result="submitted", warning=warning), 201)


async def legacy_create_job(call: Invocation[NoQuery, LegacySubmission]) -> JsonReply[LegacySubmitResult] | Response:
    """Submit a job by its type or by a command. A type selects the template with this name, or the one that creates
    jobs of this type. Jobs are retried three times unless the request says otherwise. Use `POST /api/jobs` instead."""
    with report_sent_paths(msgspec.structs.asdict(call.body)):
        submission = await _resolve_submission(call.context, call.body)
        return await submit_one(call, submission, _created_reply, is_legacy=True)


def _triggered_reply(rendered: RenderedSubmit) -> JsonReply[LegacyTriggerResult] | Response:
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


async def legacy_trigger(call: Invocation[NoQuery, LegacyTrigger | None]) -> JsonReply[LegacyTriggerResult] | Response:
    """Run the template that a type selects. The body has its params, and some fields of the job. Use `POST /api/jobs`
    with the template's name instead."""
    request = parse_flat_job(call.body or {}, path_type=call.path_values["type"])
    with report_sent_paths(call.body or {}):
        submission = await _resolve_submission(call.context, request)
        return await submit_one(call, submission, _triggered_reply, is_legacy=True)


async def _resolve_submission(context: Context, request: LegacySubmission) -> Submission:
    with SINGLE_JOB_PATHS:
        return await context.read(partial(to_submission, request=request))


_CREATED_EXAMPLE = LegacySubmitResult(**legacy_job_fields(JOB), result="submitted", warning=None)
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
        response_example=_CREATED_EXAMPLE,
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
]
