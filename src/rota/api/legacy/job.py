"""`/jobs` and `/jobs/{id}`: what is asked of jobs that are there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.job import PageSize, cancelled
from rota.api.legacy.wanted import job_id_of
from rota.command.edit import Edit, edit
from rota.core.status import STARTED, WAITING, Status
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.store.session import Reader
from rota.view import job as view
from rota.view import run as run_view
from rota.view.job import Sight
from rota.wire.job import JobForm
from rota.wire.legacy import (
    SPELLINGS,
    LegacyChanged,
    LegacyEnded,
    LegacyJob,
    LegacyJobs,
    LegacyRuns,
    fields_of,
    legacy_job,
    legacy_run,
    statuses_called,
)


class LegacyJobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: list[str] = []
    """Only jobs of these statuses, by their old or new names; said more than once, of any of them."""
    limit: PageSize = 100


def _statuses(named: Sequence[str]) -> list[Status]:
    if not named:
        return list(Status)
    wanted: dict[Status, None] = {}
    for name in named:
        called = statuses_called(name)
        if called is None:
            raise InvalidInput(f"unknown status {name!r}; known are {', '.join(SPELLINGS)}").under(".status")
        wanted |= dict.fromkeys(called)
    return list(wanted)


def _list(reader: Reader, *, statuses: Sequence[Status], limit: int, sight: Sight) -> LegacyJobs:
    jobs = reader.jobs(reader.newest_jobs(statuses, limit=limit))
    counts = reader.counts()
    return LegacyJobs(
        jobs=[legacy_job(form) for form in view.forms(reader, jobs, sight)],
        total=sum(counts.get(status, 0) for status in statuses),
        queued_count=sum(counts.get(status, 0) for status in WAITING),
        running_count=sum(counts.get(status, 0) for status in STARTED),
    )


async def legacy_list_jobs(call: Call[LegacyJobsQuery, None]) -> Reply[LegacyJobs]:
    """List jobs of every status, the newest first. Ask `GET /api/jobs` instead, which has pages and more filters."""
    context = call.context
    statuses = _statuses(call.query.status)
    look = partial(_list, statuses=statuses, limit=call.query.limit, sight=context.sight())
    return Reply(await context.look(look))


async def legacy_get_job(call: Call[Nothing, None]) -> Reply[LegacyJob]:
    """Show a job. Ask `GET /api/jobs/{job}` instead."""
    context, job = call.context, job_id_of(call.path["job_id"])
    return Reply(legacy_job(await context.look(partial(view.show, job=job, sight=context.sight()))))


async def legacy_change_job(call: Call[Nothing, Edit]) -> Reply[LegacyChanged]:
    """Change the priority, the params or another field of a job that waits. Ask `PATCH /api/jobs/{job}` instead."""
    context, job = call.context, job_id_of(call.path["job_id"])
    if call.body == Edit():
        raise InvalidInput('nothing is to be changed; name the fields, as in {"priority": 10}')
    context.control.look_at_config()  # a retry policy that was just written can be chosen
    told = await context.perform(partial(edit, job=job, wanted=call.body, actor=context.actor))
    form = await context.look(partial(view.show, job=job, sight=context.sight()))
    warning = "; ".join(told.warnings) or None
    return Reply(LegacyChanged(**fields_of(form), fields=told.fields, warning=warning))


def _ended(form: JobForm) -> Reply[LegacyEnded]:
    success = form.status == Status.CANCELLED
    message = f"{form.id} is {form.status}" + ("" if success else "; it had ended before it could be cancelled")
    return Reply(LegacyEnded(**fields_of(form), success=success, message=message))


async def legacy_delete_job(call: Call[Nothing, None]) -> Reply[LegacyEnded]:
    """Cancel a job that waits. What runs is left alone, and refused; no record is removed. Ask
    `POST /api/jobs/{job}/cancel` instead."""
    job = job_id_of(call.path["job_id"])
    return _ended(await cancelled(call.context, job, spares_running=True))


async def legacy_cancel_job(call: Call[Nothing, None]) -> Reply[LegacyEnded]:
    """Cancel a job that waits or runs, and with it the retries to come. Ask `POST /api/jobs/{job}/cancel` instead."""
    return _ended(await cancelled(call.context, job_id_of(call.path["job_id"])))


def _runs(reader: Reader, *, job: JobId, sight: Sight) -> LegacyRuns:
    form = view.show(reader, job, sight)
    runs = [legacy_run(run, form) for run in run_view.runs(reader, job, sight)]
    return LegacyRuns(runs=runs, total=len(runs))


async def legacy_list_runs(call: Call[Nothing, None]) -> Reply[LegacyRuns]:
    """List what happened when a job executed, the newest first. Ask `GET /api/jobs/{job}/runs` instead."""
    context, job = call.context, job_id_of(call.path["job_id"])
    return Reply(await context.look(partial(_runs, job=job, sight=context.sight())))


_JOB = "/api/jobs/{job_id}"

ENDPOINTS = [
    Endpoint("GET", "/jobs", legacy_list_jobs, is_deprecated=True, successor="/api/jobs"),
    Endpoint("GET", "/jobs/{job_id}", legacy_get_job, is_deprecated=True, successor=_JOB),
    Endpoint(
        "PATCH", "/jobs/{job_id}", legacy_change_job, refuses=(409,), is_deprecated=True, successor=_JOB,
        sends={"priority": 10},
    ),
    Endpoint("DELETE", "/jobs/{job_id}", legacy_delete_job, refuses=(409,), is_deprecated=True,
             successor=f"{_JOB}/cancel"),
    Endpoint("POST", "/jobs/{job_id}/cancel", legacy_cancel_job, refuses=(409,), is_deprecated=True,
             successor=f"{_JOB}/cancel"),
    Endpoint("GET", "/jobs/{job_id}/runs", legacy_list_runs, is_deprecated=True, successor=f"{_JOB}/runs"),
]  # fmt: skip
