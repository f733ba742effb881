"""Jobs over HTTP."""

from __future__ import annotations

import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, number
from rota.command.cancel import cancel
from rota.core.job import Job
from rota.core.status import TERMINAL, Status
from rota.errors import InvalidInput, StorageFull, StoreError
from rota.ids import JobId, parse_job, show_job
from rota.store.record import LISTED_BY
from rota.store.session import Reader
from rota.view import job as view
from rota.view.why import why
from rota.wire import JobForm

_LONGEST_WAIT = 60.0
_MOST_LISTED = 1000


def _statuses(request: Request) -> list[Status]:
    named = request.query_params.getlist("status")
    try:
        statuses = [Status(name.upper()) for name in named] or list(Status)
    except ValueError:
        known = ", ".join(status for status in Status if status is status.shown)
        raise InvalidInput(f"unknown status in {', '.join(named)}; the statuses are {known}") from None
    return [*statuses, Status.DISPATCHED] if Status.RUNNING in statuses else statuses


def _page_mark(job: Job) -> str:
    """Where the next page begins; it says in which part of the list the job stood, for it may end meanwhile."""
    return f"{'ended' if job.status in TERMINAL else 'active'}.{show_job(job.id)}"


def _cursor(request: Request) -> tuple[JobId | None, bool]:
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None, False
    part, _, job = cursor.partition(".")
    if part not in ("active", "ended"):
        raise InvalidInput(f"not a cursor: {cursor!r}; use the `next` of the page before")
    return parse_job(job), part == "ended"


async def list_jobs(request: Request) -> Response:
    context = context_of(request)
    statuses = _statuses(request)
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    after, is_past_active = _cursor(request)
    only = {name: request.query_params[name] for name in LISTED_BY if name in request.query_params}
    named = request.query_params.get("group")

    def look(reader: Reader) -> dict[str, object]:
        if after is not None:
            view.find(reader, after)
        ids = reader.list_jobs(
            statuses, limit=limit + 1, after=after, is_past_active=is_past_active, only=only,
            group=None if named is None else reader.group_called(named).id,
        )  # fmt: skip
        jobs = reader.jobs(ids[:limit])
        counts: dict[str, int] = {}
        for status, count in reader.counts().items():
            counts[status.shown] = counts.get(status.shown, 0) + count
        return {
            "jobs": view.forms(reader, jobs, context.sight()),
            "next": _page_mark(jobs[-1]) if len(ids) > limit else None,
            "counts": counts,
        }

    return answer(await context.look(look))


def _last_of_chain(reader: Reader, job: JobId) -> JobId:
    last = reader.last_of_chain(job)
    return job if last is None else last[0]


async def get_job(request: Request) -> Response:
    """With `wait`, the last job of the chain, when it has ended or (with `seen`) when its status is another."""
    context, job = context_of(request), parse_job(request.path_params["job"])
    if "wait" not in request.query_params:
        return answer(await context.look(partial(view.show, job=job, sight=context.sight())))
    seconds = number(request, "wait", 0, least=0, most=_LONGEST_WAIT)
    seen = request.query_params.get("seen")
    return answer(await _await_end(context, job, seconds, seen))


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


async def cancel_job(request: Request) -> Response:
    """Answers when the job is gone; a tree that needs SIGKILL takes a while."""
    context, job = context_of(request), parse_job(request.path_params["job"])
    try:
        member = await context.perform(partial(cancel, job=job, actor=context.actor))
    except (StorageFull, StoreError) as error:
        raise type(error)(f"{error.message}{await context.look(partial(_by_hand, job=job))}") from error
    return answer(await _await_end(context, member, _LONGEST_WAIT, None))


async def why_job(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    return answer(await context.look(partial(why, job=job, sight=context.sight())))


ROUTES = [
    Route("/api/jobs", list_jobs, methods=["GET"]),
    Route("/api/jobs/{job}", get_job, methods=["GET"]),
    Route("/api/jobs/{job}/cancel", cancel_job, methods=["POST"]),
    Route("/api/jobs/{job}/why", why_job, methods=["GET"]),
]
