"""Jobs over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import Context, context_of
from rota.api.problem import answer, number, read
from rota.command.cancel import cancel
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Needs, Submitted, missing_things, needs_of, submit
from rota.command.survey import NOTHING, Survey, names_something, survey
from rota.command.workspace import LIMIT, asks_for_one, prepare, show_inputs
from rota.core.job import Job
from rota.core.status import TERMINAL, Status
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.errors import InvalidInput, StorageFull, StoreError, Unavailable
from rota.ids import JobId, parse_job, show_job
from rota.store.record import LISTED_BY
from rota.store.session import Reader
from rota.view import job as view
from rota.view.why import why
from rota.wire import JobForm

_LONGEST_WAIT = 60.0
_MOST_LISTED = 1000
_LOOK_AROUND = 2.0
"""Seconds for a look at the file system before a submit."""
_LOOK_OUTSIDE = 20.0
"""Seconds for a look at repositories and artifacts."""
_REMEMBERED = 1.0
_MOST_SEEN = 1000
_seen: dict[Needs, tuple[float, list[str]]] = {}
"""What a look found, for a moment: scripts submit the same program a thousand times."""


async def _prepared(
    request: Request, members: Sequence[Submission], workspaces: Sequence[Workspace | None] = ()
) -> Callable[[Work], Submitted]:
    context = context_of(request)
    context.control.look_at_config()  # what was just written holds for what is submitted after it
    await context.control.look_at_hold_file()
    key = request.headers.get("idempotency-key")
    warnings = await _missing_things(members, context.around)
    return partial(
        submit, wanted=members, around=context.around, actor=context.actor, key=key, warnings=warnings,
        survey=await _survey(context, members), workspaces=workspaces,
    )  # fmt: skip


async def _survey(context: Context, members: Sequence[Submission]) -> Survey:
    """What the jobs name outside, if any does: here a file system that does not answer leaves nothing to go by."""
    if not any(names_something(member) for member in members):
        return NOTHING
    places, began = context.control.settings.places, context.known.begin()
    looking = asyncio.to_thread(survey, members, context.around, context.probe, places, began=began)
    try:
        return await asyncio.wait_for(looking, _LOOK_OUTSIDE)
    except TimeoutError:
        raise Unavailable("the file system does not answer; nothing was stored, so submit it again later") from None


async def _workspaces(context: Context, members: Sequence[Submission]) -> Sequence[Workspace | None]:
    """What git says to those that ask for a worktree or a patch; it is asked beside everything else."""
    if not any(map(asks_for_one, members)):
        return ()
    asking = asyncio.to_thread(prepare, members, context.around, context.home.directory)
    try:
        return await asyncio.wait_for(asking, LIMIT + _LOOK_AROUND)
    except TimeoutError:
        raise InvalidInput("git does not answer about the working directory; nothing was stored") from None


async def _show_inputs(context: Context, told: Submitted, workspaces: Sequence[Workspace | None]) -> None:
    if workspaces and not told.is_repeat:
        await asyncio.to_thread(show_inputs, context.home.directory, told.jobs, workspaces)


async def _missing_things(members: Sequence[Submission], around: Surroundings) -> list[str]:
    """A file system that does not answer holds up nobody, not even this request."""
    asked = needs_of(members, around)
    if asked not in _seen or time.monotonic() - _seen[asked][0] > _REMEMBERED:
        try:
            missing = await asyncio.wait_for(asyncio.to_thread(missing_things, asked), _LOOK_AROUND)
        except TimeoutError:
            return ["could not see in time whether the program and the working directory are there"]
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[asked] = time.monotonic(), missing
    return _seen[asked][1]


async def submit_job(request: Request) -> Response:
    context = context_of(request)
    members = [await read(request, Submission)]
    workspaces = await _workspaces(context, members)
    act = await _prepared(request, members, workspaces)
    told, form = await context.perform_and_see(act, context.see_submitted)
    await _show_inputs(context, told, workspaces)
    body = {"result": "submitted", "job": form, "warning": "; ".join(told.warnings) or None}
    return answer(body, 200 if told.is_repeat else 201)


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jobs: Annotated[list[Submission], msgspec.Meta(min_length=1, max_length=10_000)]


async def submit_batch(request: Request) -> Response:
    """One submit, taken or refused whole; the answer has the ids in the order given."""
    context, members = context_of(request), (await read(request, Batch)).jobs
    workspaces = await _workspaces(context, members)
    told = await context.perform(await _prepared(request, members, workspaces))
    await _show_inputs(context, told, workspaces)
    body = {
        "result": "submitted",
        "jobs": [show_job(job) for job in told.jobs],
        "warning": "; ".join(told.warnings) or None,
    }
    return answer(body, 200 if told.is_repeat else 201)


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

    def look(reader: Reader) -> dict[str, object]:
        if after is not None:
            view.find(reader, after)
        ids = reader.list_jobs(statuses, limit=limit + 1, after=after, is_past_active=is_past_active, only=only)
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
    Route("/api/jobs", submit_job, methods=["POST"]),
    Route("/api/jobs", list_jobs, methods=["GET"]),
    Route("/api/jobs/batch", submit_batch, methods=["POST"]),
    Route("/api/jobs/{job}", get_job, methods=["GET"]),
    Route("/api/jobs/{job}/cancel", cancel_job, methods=["POST"]),
    Route("/api/jobs/{job}/why", why_job, methods=["GET"]),
]
