"""`/jobs/batch`: what is a group now."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.responses import Response

from rota.api.deprecation import deprecated
from rota.api.endpoint import Call, Nothing, Reply
from rota.api.example import SUBMITTED
from rota.api.legacy.wanted import BatchTrigger, as_sent, group_id_of, read_batch, submissions_of
from rota.api.problem import problem
from rota.api.submit import SeenMany, put_off, submit_many, warned
from rota.command.backpressure import Deferred
from rota.command.submission import GroupWanted
from rota.command.submit import AlreadyActive
from rota.errors import Conflict
from rota.ids import GroupId, parse_job, show_group, show_job
from rota.store.session import Reader
from rota.view import group as group_view
from rota.view import job as job_view
from rota.view.job import Sight
from rota.wire.legacy import LegacyBatch, LegacyBatchMade, LegacyMember, legacy_batch

_GROUP = GroupWanted(mode="parallel", on_failure="continue")
"""The jobs of a batch had nothing to do with each other."""


def _tell(seen: SeenMany) -> Reply[LegacyBatchMade] | Response:
    told, delayed = seen
    if isinstance(told, Deferred):
        return put_off(told, batch_id=None, job_ids=[])
    if isinstance(told, AlreadyActive) or told.group is None:
        active = ", ".join(show_job(job) for job in told.jobs)
        return problem(Conflict.code, 409, f"jobs of the batch are active already: {active}; nothing was added")
    jobs = [show_job(job) for job in told.jobs]
    warning, _ = warned(told, delayed)
    message = f"{len(jobs)} jobs are in the queue" + ("" if warning is None else f"; {warning}")
    made = LegacyBatchMade(
        batch_id=show_group(told.group), job_ids=jobs, job_count=len(jobs), status="queued", message=message
    )
    return Reply(made, 202)


async def legacy_trigger_batch(call: Call[Nothing, BatchTrigger]) -> Reply[LegacyBatchMade] | Response:
    """Run several templates as a batch, all or none. Its jobs are members of a parallel group, and go on when one
    of them fails. Ask `POST /api/jobs/batch` with a `group` instead."""
    context = call.context
    asked = read_batch(call.body)
    with as_sent(msgspec.structs.asdict(call.body)):
        members = await context.look(partial(submissions_of, members=asked))
        return await submit_many(call, members, _tell, around=context.around, group=_GROUP, is_legacy=True)


def _show(reader: Reader, *, group: GroupId, sight: Sight) -> LegacyBatch:
    form = group_view.show(reader, show_group(group))
    jobs = reader.jobs([parse_job(job) for job in form.jobs or ()])
    return legacy_batch(form, job_view.forms(reader, jobs, sight))


async def legacy_get_batch(call: Call[Nothing, None]) -> Reply[LegacyBatch]:
    """Say how a batch stands, and each of its jobs. Ask `GET /api/job-groups/{group}` instead."""
    context, group = call.context, call.place("batch_id", group_id_of)
    return Reply(await context.look(partial(_show, group=group, sight=context.sight())))


_MADE = LegacyBatchMade(
    batch_id="group-3", job_ids=["job-25", "job-26"], job_count=2, status="queued", message="2 jobs are in the queue"
)
_BATCH = LegacyBatch(
    batch_id="group-3", status="running", total_jobs=2, completed_jobs=1, succeeded_jobs=1, failed_jobs=0,
    running_jobs=1, queued_jobs=0, created_at=SUBMITTED, finished_at=None,
    jobs=[
        LegacyMember(job_id="job-25", type="research", status="succeeded", error=None),
        LegacyMember(job_id="job-26", type="story", status="running", error=None),
    ],
)  # fmt: skip

ENDPOINTS = [
    deprecated(
        "POST", "/jobs/batch/trigger", legacy_trigger_batch, "/api/jobs/batch", statuses=(202,),
        refuses=(404, 409, 429), is_keyed=True, shows=_MADE,
        sends={"jobs": [{"type": "research", "topic": "lighthouses"}, {"type": "story", "chapter": 7}]},
    ),
    deprecated(
        "GET", "/jobs/batch/{batch_id}", legacy_get_batch, "/api/job-groups/{batch_id}", shows=_BATCH,
    ),
]  # fmt: skip
