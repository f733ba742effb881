"""`POST /jobs` and `POST /jobs/{type}/trigger`: a job, by the names that it had before."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from rota.api.context import Context
from rota.api.deprecation import deprecated
from rota.api.endpoint import Call, Nothing, Reply
from rota.api.example import JOB
from rota.api.legacy.wanted import LegacySubmission, Trigger, as_sent, read_flat, submission_of
from rota.api.problem import Json
from rota.api.submit import ALONE, Seen, put_off, submit_one, warned
from rota.command.backpressure import Deferred
from rota.command.submission import Submission
from rota.command.submit import Submitted
from rota.core.status import Status
from rota.wire.legacy import OLDER, LegacyMade, LegacyTriggered, fields_of


def _tell_made(seen: Seen) -> Reply[LegacyMade] | Response:
    told, form, delayed = seen
    if isinstance(told, Deferred) or form is None:
        assert isinstance(told, Deferred)  # noqa: S101 - all else has a job to show
        return put_off(told, job=None)
    if not isinstance(told, Submitted):
        # Nothing was done: it may come again.
        return Json(LegacyMade(**fields_of(form), result="already_active", warning=None))
    warning, _ = warned(told, delayed)
    return Reply(LegacyMade(**fields_of(form), result="submitted", warning=warning), 201)


async def legacy_create_job(call: Call[Nothing, LegacySubmission]) -> Reply[LegacyMade] | Response:
    """Submit a job, by its type or by a command. A type stands for the template of that name, or for the one that makes
    jobs of that type. Jobs made here are retried three times unless they say otherwise. Ask
    `POST /api/jobs` instead."""
    with as_sent(msgspec.structs.asdict(call.body)):
        wanted = await _look_up(call.context, call.body)
        return await submit_one(call, wanted, _tell_made, is_legacy=True)


def _tell_triggered(seen: Seen) -> Reply[LegacyTriggered] | Response:
    told, form, delayed = seen
    if isinstance(told, Deferred) or form is None:
        assert isinstance(told, Deferred)  # noqa: S101 - all else has a job to show
        return put_off(told, job_id=None)
    status = OLDER[Status(form.status)]
    if not isinstance(told, Submitted):
        message = f"{form.id} is active already; nothing was added"
        return Json(LegacyTriggered(job_id=form.id, type=form.type, status=status, message=message), 202)
    warning, _ = warned(told, delayed)
    message = f"{form.id} is in the queue" + ("" if warning is None else f"; {warning}")
    return Reply(LegacyTriggered(job_id=form.id, type=form.type, status=status, message=message), 202)


async def legacy_trigger(call: Call[Nothing, Trigger | None]) -> Reply[LegacyTriggered] | Response:
    """Run the template that a type stands for. What the body has are its params, but for a few fields of the job. Ask
    `POST /api/jobs` with the template's name instead."""
    asked = read_flat(call.body or {}, called=call.path["type"])
    with as_sent(call.body or {}):
        wanted = await _look_up(call.context, asked)
        return await submit_one(call, wanted, _tell_triggered, is_legacy=True)


async def _look_up(context: Context, wanted: LegacySubmission) -> Submission:
    with ALONE:
        return await context.look(partial(submission_of, wanted=wanted))


_MADE = LegacyMade(**fields_of(JOB), result="submitted", warning=None)
_TRIGGERED = LegacyTriggered(job_id="job-25", type="story", status="queued", message="job-25 is in the queue")

ENDPOINTS = [
    deprecated(
        "POST", "/jobs", legacy_create_job, "/api/jobs", statuses=(201, 200), refuses=(404, 409, 429), is_keyed=True,
        sends={"type": "story", "params": {"chapter": 7}, "priority": 10}, shows=_MADE,
    ),
    deprecated(
        "POST", "/jobs/{type}/trigger", legacy_trigger, "/api/jobs", statuses=(202,), refuses=(409, 429), is_keyed=True,
        sends={"chapter": 7}, shows=_TRIGGERED,
    ),
]  # fmt: skip
