"""`/jobs` and `/jobs/{id}`: what is asked of jobs that are there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from rota.api.deprecation import deprecated
from rota.api.edit import edited
from rota.api.endpoint import Call, Nothing, Reply
from rota.api.example import JOB, JOB_RUN
from rota.api.job import cancelled
from rota.api.legacy.wanted import job_id_of
from rota.api.page import PageSize
from rota.command.edit import Edit, parse
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

_MOST_RUNS = 1000
"""Of one job, the newest; a job has one, and one more with each rewind."""


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
    context, job = call.context, call.place("job_id", job_id_of)
    return Reply(legacy_job(await context.look(partial(view.show, job=job, sight=context.sight()))))


async def legacy_change_job(call: Call[Nothing, Edit]) -> Reply[LegacyChanged]:
    """Change the priority, the params or another field of a job that waits. Ask `PATCH /api/jobs/{job}` instead."""
    told = await edited(call.context, call.place("job_id", job_id_of), call.body)
    return Reply(LegacyChanged(**fields_of(told.job), fields=told.fields, warning=told.warning))


def _ended(form: JobForm) -> Reply[LegacyEnded]:
    success = form.status == Status.CANCELLED
    message = f"{form.id} is {form.status}" + ("" if success else "; it had ended before it could be cancelled")
    return Reply(LegacyEnded(**fields_of(form), success=success, message=message))


async def legacy_delete_job(call: Call[Nothing, None]) -> Reply[LegacyEnded]:
    """Cancel a job that waits. What runs is left alone, and refused; no record is removed. Ask
    `POST /api/jobs/{job}/cancel` instead."""
    job = call.place("job_id", job_id_of)
    return _ended(await cancelled(call.context, job, spares_running=True))


async def legacy_cancel_job(call: Call[Nothing, None]) -> Reply[LegacyEnded]:
    """Cancel a job that waits or runs, and with it the retries to come. Ask `POST /api/jobs/{job}/cancel` instead."""
    return _ended(await cancelled(call.context, call.place("job_id", job_id_of)))


def _runs(reader: Reader, *, job: JobId, sight: Sight) -> LegacyRuns:
    form = view.show(reader, job, sight)
    found, _ = run_view.listing(reader, sight, job=job, limit=_MOST_RUNS)
    runs = [legacy_run(run, form) for run in found]
    return LegacyRuns(runs=runs, total=len(runs))


async def legacy_list_runs(call: Call[Nothing, None]) -> Reply[LegacyRuns]:
    """List what happened when a job executed, the newest first. Ask `GET /api/jobs/{job}/runs` instead."""
    context, job = call.context, call.place("job_id", job_id_of)
    return Reply(await context.look(partial(_runs, job=job, sight=context.sight())))


_JOB = "/api/jobs/{job_id}"
_SHOWN = legacy_job(JOB)
_CANCELLED = LegacyEnded(**{**fields_of(JOB), "status": "CANCELLED"}, success=True, message="job-25 is CANCELLED")

ENDPOINTS = [
    deprecated(
        "GET", "/jobs", legacy_list_jobs, "/api/jobs",
        shows=LegacyJobs(jobs=[_SHOWN], total=1, queued_count=1, running_count=0),
    ),
    deprecated("GET", "/jobs/{job_id}", legacy_get_job, _JOB, shows=_SHOWN),
    deprecated(
        "PATCH", "/jobs/{job_id}", legacy_change_job, _JOB, refuses=(409,), reads=parse, sends={"priority": 10},
        shows=LegacyChanged(**{**fields_of(JOB), "priority": 10}, fields=["priority"], warning=None),
    ),
    deprecated("DELETE", "/jobs/{job_id}", legacy_delete_job, f"{_JOB}/cancel", refuses=(409,), shows=_CANCELLED),
    deprecated("POST", "/jobs/{job_id}/cancel", legacy_cancel_job, f"{_JOB}/cancel", refuses=(409,), shows=_CANCELLED),
    deprecated(
        "GET", "/jobs/{job_id}/runs", legacy_list_runs, f"{_JOB}/runs",
        shows=LegacyRuns(runs=[legacy_run(JOB_RUN, JOB)], total=1),
    ),
]  # fmt: skip
