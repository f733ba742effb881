"""Jobs over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, number, read
from rota.command.cancel import cancel
from rota.command.submit import Submission, Submitted, submit
from rota.core.status import TERMINAL, Status
from rota.errors import InvalidInput
from rota.ids import JobId, parse_job, show_job
from rota.store.session import Reader
from rota.view import job as view
from rota.view.why import why
from rota.wire import JobForm

_LONGEST_WAIT = 60.0
_MOST_LISTED = 1000


async def submit_job(request: Request) -> Response:
    context = context_of(request)
    wanted = await read(request, Submission)
    key = request.headers.get("idempotency-key")
    told: Submitted = await context.perform(
        partial(submit, wanted=wanted, around=context.around, actor=context.actor, key=key)
    )
    form = await context.look(partial(view.show, job=told.job, sight=context.sight()))
    warning = "; ".join(told.warnings) or None
    return answer({"result": "submitted", "job": form, "warning": warning}, 200 if told.is_repeat else 201)


def _statuses(request: Request) -> list[Status]:
    named = request.query_params.getlist("status")
    try:
        statuses = [Status(name.upper()) for name in named] or list(Status)
    except ValueError:
        known = ", ".join(status for status in Status if status is status.shown)
        raise InvalidInput(f"unknown status in {', '.join(named)}; the statuses are {known}") from None
    return [*statuses, Status.DISPATCHED] if Status.RUNNING in statuses else statuses


async def list_jobs(request: Request) -> Response:
    context = context_of(request)
    statuses = _statuses(request)
    limit = int(number(request, "limit", 100, least=1, most=_MOST_LISTED))
    cursor = request.query_params.get("cursor")
    after = None if cursor is None else parse_job(cursor)

    def look(reader: Reader) -> dict[str, object]:
        if after is not None:
            view.find(reader, after)
        ids = reader.list_jobs(statuses, limit=limit + 1, after=after)
        jobs = view.forms(reader, reader.jobs(ids[:limit]), context.sight())
        counts: dict[str, int] = {}
        for status, count in reader.counts().items():
            counts[status.shown] = counts.get(status.shown, 0) + count
        return {"jobs": jobs, "next": show_job(ids[limit - 1]) if len(ids) > limit else None, "counts": counts}

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

    return await context.hub.until(job, seconds, lambda: context.look(look), is_enough)


async def cancel_job(request: Request) -> Response:
    """Answers when the job is gone; a tree that needs SIGKILL takes a while."""
    context, job = context_of(request), parse_job(request.path_params["job"])
    member = await context.perform(partial(cancel, job=job, actor=context.actor))
    return answer(await _await_end(context, member, _LONGEST_WAIT, None))


async def why_job(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    return answer(await context.look(partial(why, job=job, sight=context.sight())))


ROUTES = [
    Route("/api/jobs", submit_job, methods=["POST"]),
    Route("/api/jobs", list_jobs, methods=["GET"]),
    Route("/api/jobs/{job}", get_job, methods=["GET"]),
    Route("/api/jobs/{job}/cancel", cancel_job, methods=["POST"]),
    Route("/api/jobs/{job}/why", why_job, methods=["GET"]),
]
