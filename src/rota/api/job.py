"""Jobs over HTTP."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import CANCELLED_JOB, ENDED_JOB, WAITING_JOB
from rota.api.page import LONGEST_WAIT, PageSize, Seconds, begins_at
from rota.command.cancel import cancel
from rota.core.job import Job
from rota.core.status import TERMINAL, Status
from rota.errors import InvalidInput, StorageFull, StoreError, within
from rota.ids import JobId, parse_job, show_job
from rota.store.record import FIRST_RANK, LISTED_BY
from rota.store.session import Reader
from rota.view import job as view
from rota.view.why import why
from rota.wire.job import JobForm, JobsForm, JobStatus, WhyForm
from rota.wire.text import JobsCursor

_NUMBER = re.compile(r"-?[0-9]{1,18}")


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: list[JobStatus] = []
    """Only jobs of these statuses; said more than once, of any of them."""
    name: str | None = None
    """Only jobs of this name."""
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
    """The `next` of the page before."""


def _statuses(named: Sequence[str]) -> list[Status]:
    shown = {status.value: status for status in Status if status is status.shown}
    for n, name in enumerate(named):
        if name.upper() not in shown:
            said = f"unknown status in {', '.join(named)}; the statuses are {', '.join(shown)}"
            raise InvalidInput(said).under(f".status[{n}]")
    statuses = [shown[name.upper()] for name in named] or list(Status)
    return [*statuses, Status.DISPATCHED] if Status.RUNNING in statuses else statuses


def _page_mark(reader: Reader, job: Job) -> str:
    """Where the next page begins: behind a place, for the job that stands there may move, end or go meanwhile."""
    if job.status in TERMINAL:
        return f"ended.{show_job(job.id)}"
    return ".".join(("active", *map(str, reader.stands_at(job.id))))


def _parse_mark(mark: str) -> dict[str, Any]:
    """As the store's list takes it."""
    part, *numbers = mark.split(".")
    if part == "ended" and len(numbers) == 1:
        return {"after": parse_job(numbers[0]), "is_past_active": True}
    if part == "active" and len(numbers) == len(FIRST_RANK) and all(map(_NUMBER.fullmatch, numbers)):
        return {"behind": tuple(map(int, numbers))}
    raise ValueError(mark)


async def list_jobs(call: Call[JobsQuery, None]) -> Reply[JobsForm]:
    """List jobs. Of every status unless some are named: first those that are active, in queue order, then those that
    have ended, the latest first."""
    context, query = call.context, call.query
    statuses, limit, named = _statuses(query.status), query.limit, query.group
    begins = begins_at(query.cursor, _parse_mark, {})
    only = {name: said for name in LISTED_BY if (said := getattr(query, name)) is not None}

    def look(reader: Reader) -> JobsForm:
        with within(".group"):
            group = None if named is None else reader.group_called(named).id
        ids = reader.list_jobs(statuses, limit=limit + 1, only=only, group=group, **begins)
        jobs = reader.jobs(ids[:limit])
        counts: dict[str, int] = {}
        for status, count in reader.counts().items():
            counts[status.shown] = counts.get(status.shown, 0) + count
        return JobsForm(
            jobs=view.forms(reader, jobs, context.sight()),
            next=_page_mark(reader, jobs[-1]) if len(ids) > limit else None,
            counts=counts,
        )

    return Reply(await context.look(look))


def _last_of_chain(reader: Reader, job: JobId) -> JobId:
    last = reader.last_of_chain(job)
    return job if last is None else last[0]


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: Seconds | None = None
    """Answer with the last job of its chain, when that has ended or when so many seconds are over."""
    seen: str | None = None
    """With `wait`, answer as soon as the status is another than this."""


async def get_job(call: Call[JobQuery, None]) -> Reply[JobForm]:
    """Show a job, with why it waits."""
    context, job = call.context, call.place("job", parse_job)
    if call.query.wait is None:
        return Reply(await context.look(partial(view.show, job=job, sight=context.sight())))
    return Reply(await _await_end(context, job, call.query.wait, call.query.seen))


async def _await_end(context: Context, job: JobId, seconds: float, seen: str | None) -> JobForm:
    def look(reader: Reader) -> JobForm:
        return view.show(reader, _last_of_chain(reader, job), context.sight())

    def is_enough(form: JobForm) -> bool:
        return (
            Status(form.status) in TERMINAL if seen is None else form.status != seen or Status(form.status) in TERMINAL
        )

    def is_news(form: JobForm) -> bool:
        return is_enough(form) or form.id != show_job(member)

    # A retry is announced on the job it follows: then this one is listened to, and looked at once more.
    member, deadline = job, time.monotonic() + seconds
    while True:
        form = await context.hub.until(member, deadline - time.monotonic(), lambda: context.look(look), is_news)
        if is_enough(form) or form.id == show_job(member):
            return form
        member = parse_job(form.id)


def _by_hand(reader: Reader, job: JobId) -> str:
    """What nobody can write down nobody may do; but a job that fills the disk must be stopped all the same."""
    found = reader.job(_last_of_chain(reader, job))
    if found is None or found.pid is None or found.status in TERMINAL:
        return ""
    return f"; to end it without a record: kill -- -{found.pid}"


async def cancel_job(call: Call[Nothing, None]) -> Reply[JobForm]:
    """Cancel a job's chain. Answered when its processes are gone; a tree that needs SIGKILL takes a while."""
    return Reply(await cancelled(call.context, call.place("job", parse_job)))


async def cancelled(context: Context, job: JobId, *, spares_running: bool = False) -> JobForm:
    """The job as it is when its processes are gone."""
    try:
        act = partial(cancel, job=job, actor=context.actor, spares_running=spares_running)
        member = await context.perform(act)
    except (StorageFull, StoreError) as error:
        raise type(error)(f"{error.message}{await context.look(partial(_by_hand, job=job))}") from error
    return await _await_end(context, member, LONGEST_WAIT, None)


async def why_job(call: Call[Nothing, None]) -> Reply[WhyForm]:
    """Say why a job has not started, down to what holds up what it waits for."""
    context, job = call.context, call.place("job", parse_job)
    return Reply(await context.look(partial(why, job=job, sight=context.sight())))


_PAGE = {"jobs": [WAITING_JOB, ENDED_JOB], "next": "ended.job-21", "counts": {"QUEUED": 1, "COMPLETED": 23}}
_WHY = {
    "job": "job-24",
    "status": "QUEUED",
    "wait": WAITING_JOB["wait"],
    "text": "job-24 is QUEUED: waiting on pool global (1/1), used by job-23",
    "warnings": [],
}

ENDPOINTS = [
    Endpoint("GET", "/api/jobs", list_jobs, refuses=(404,), shows=_PAGE),
    Endpoint("GET", "/api/jobs/{job}", get_job, shows=WAITING_JOB),
    Endpoint("POST", "/api/jobs/{job}/cancel", cancel_job, refuses=(409,), shows=CANCELLED_JOB),
    Endpoint("GET", "/api/jobs/{job}/why", why_job, shows=_WHY),
]
