"""Submits over HTTP: one job or a batch, each answered with one of three values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.responses import Response

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import WAITING_JOB
from rota.api.once import carry_out
from rota.api.problem import Json, problem
from rota.api.rehearsal import rehearse
from rota.api.webhook import unknown_names
from rota.command.backpressure import RETRY_AFTER, Deferred, Delayed
from rota.command.expand import Expanded, as_asked, expand_all
from rota.command.field import check_cwd, check_variables
from rota.command.submission import GroupWanted, Origin, Submission, Surroundings
from rota.command.submit import AlreadyActive, Answer, Needs, Submitted, missing_things, needs_of, submit
from rota.command.survey import NOTHING, Survey, names_something, places_of, survey
from rota.command.workspace import LIMIT, asks_for_one, prepare, show_inputs
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.errors import StoreAway, Unavailable, within
from rota.ids import show_group, show_job
from rota.wire.depth import DepthForm, depth_form
from rota.wire.job import JobForm
from rota.wire.submit import BatchForm, RehearsalForm, SubmitForm
from rota.wire.text import AbsolutePath, Text

Workspaces = Sequence[Workspace | None]
R = TypeVar("R", bound=Reply[Any] | Response)

ALONE = within("", instead_of=".jobs[0]")
"""For a request that is itself the one job there is."""
_LOOK_AROUND = 2.0
"""Seconds for a look at the file system before a submit."""
_LOOK_OUTSIDE = 20.0
"""Seconds for a look at repositories and artifacts."""
_REMEMBERED = 1.0
_MOST_SEEN = 1000
_seen: dict[Needs, tuple[float, list[str]]] = {}
"""What a look found, for a moment: scripts submit the same program a thousand times."""


async def _prepared(
    context: Context, made: Expanded, workspaces: Workspaces, around: Surroundings, group: GroupWanted | None
) -> Callable[[Work], Answer]:
    members = made.wanted
    context.control.look_at_config()  # what was just written holds for what is submitted after it
    await context.control.look_at_hold_file()
    warnings = [*made.warnings, *await _missing_things(context, members, around)]
    if urls := _urls(members):
        warnings += await unknown_names(context, urls)
    return partial(
        submit, wanted=members, around=around, actor=context.actor, warnings=warnings,
        survey=await _survey(context, members, around), workspaces=workspaces, origins=made.origins, group=group,
    )  # fmt: skip


def _urls(members: Sequence[Submission]) -> dict[str, str]:
    """Those that jobs name, each with where in the request it first stands."""
    urls: dict[str, str] = {}
    for n, member in enumerate(members):
        for m, url in enumerate(member.webhooks):
            urls.setdefault(url, f".jobs[{n}].webhooks[{m}]")
    return urls


async def _expanded(context: Context, members: Sequence[Submission]) -> Expanded:
    """What their templates make of them. Schemas are checked here, away from the engine."""
    if not any(member.template is not None for member in members):
        return Expanded(wanted=members, origins=(), warnings=[])
    return await context.look(partial(expand_all, wanted=members))


def _by_legacy(made: Expanded) -> Expanded:
    origins = made.origins or [Origin()] * len(made.wanted)
    legacy = [msgspec.structs.replace(origin, is_legacy=True) for origin in origins]
    return msgspec.structs.replace(made, origins=legacy)


async def _act(
    context: Context, members: Sequence[Submission], *, around: Surroundings, group: GroupWanted | None = None,
    keeps_inputs: bool = True, is_legacy: bool = False,
) -> tuple[Callable[[Work], Answer], Workspaces]:  # fmt: skip
    """What the engine is asked to do."""
    made = await _expanded(context, members)
    if is_legacy:
        made = _by_legacy(made)
    workspaces = await _workspaces(context, made.wanted, around, keeps_inputs=keeps_inputs)
    return await _prepared(context, made, workspaces, around, group), workspaces


async def _survey(context: Context, members: Sequence[Submission], around: Surroundings) -> Survey:
    """What the jobs name outside, if any does: here a file system that does not answer leaves nothing to go by."""
    if not any(names_something(member) for member in members):
        return NOTHING
    places, began = context.control.settings.places, context.known.begin()
    look = partial(survey, members, around, context.probe, places, began=began)
    named = {("survey", place) for member in members for place in places_of(member, around)}
    try:
        return await context.asides.ask(named, _LOOK_OUTSIDE, look)
    except TimeoutError:
        raise Unavailable("the file system does not answer; nothing was stored, so submit it again later") from None


async def _workspaces(
    context: Context, members: Sequence[Submission], around: Surroundings, *, keeps_inputs: bool = True
) -> Sequence[Workspace | None]:
    """What git says to those that ask for a worktree or a patch; it is asked beside everything else."""
    if not any(map(asks_for_one, members)):
        return ()
    ask = partial(prepare, members, around, context.home.directory, keeps_inputs=keeps_inputs)
    named = {("git", member.cwd or around.cwd) for member in members if asks_for_one(member)}
    try:
        return await context.asides.ask(named, LIMIT + _LOOK_AROUND, ask)
    except TimeoutError:
        raise Unavailable("git does not answer about the working directory; nothing was stored") from None


async def look_outside(
    context: Context, members: Sequence[Submission], *, keeps_inputs: bool = True
) -> tuple[Survey, Sequence[Workspace | None]]:
    """All that is looked at outside before a submit that nobody has sent."""
    around = context.around
    workspaces = await _workspaces(context, members, around, keeps_inputs=keeps_inputs)
    return await _survey(context, members, around), workspaces


async def foreseen(context: Context, wanted: Submission, job: Submission) -> list[str]:
    """What there is to warn of in a job that will be made later, of what is wanted; what could not be made now is
    refused. What does not answer now may do so then."""
    try:
        with ALONE, as_asked(wanted):
            seen, _ = await look_outside(context, [job], keeps_inputs=False)
            if seen.refusal is not None:
                raise seen.refusal
    except StoreAway:
        raise
    except Unavailable:
        return ["the file system does not answer, so what the job needs there was not looked at"]
    return await _missing_things(context, [job], context.around)


async def _show_inputs(context: Context, told: Answer, workspaces: Sequence[Workspace | None]) -> None:
    if workspaces and isinstance(told, Submitted):
        await asyncio.to_thread(show_inputs, context.home.directory, told.jobs, workspaces)


async def _missing_things(context: Context, members: Sequence[Submission], around: Surroundings) -> list[str]:
    """A file system that does not answer holds up nobody, not even this request."""
    asked = needs_of(members, around)
    if asked not in _seen or time.monotonic() - _seen[asked][0] > _REMEMBERED:
        try:
            named = {("program", cwd) for cwd, _, _ in asked}
            missing = await context.asides.ask(named, _LOOK_AROUND, partial(missing_things, asked))
        except TimeoutError:
            return ["could not see in time whether the program and the working directory are there"]
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[asked] = time.monotonic(), missing
    return _seen[asked][1]


Seen = tuple[Answer, JobForm | None, Delayed | None]
SeenMany = tuple[Answer, Delayed | None]


def warned(told: Submitted, delayed: Delayed | None) -> tuple[str | None, DepthForm | msgspec.UnsetType]:
    warnings = [*told.warnings, *(() if delayed is None else (delayed.text,))]
    depth = msgspec.UNSET if delayed is None else depth_form(delayed.depth, delayed.figures)
    return "; ".join(warnings) or None, depth


def put_off(told: Deferred, **more: object) -> Response:
    """`more` is what an answer of this kind also has, and cannot have now."""
    body = {"result": "deferred", **more, "warning": told.text, "depth": depth_form(told.depth, told.figures)}
    seconds = f"{RETRY_AFTER.total_seconds():.0f}"
    return problem("deferred", 429, told.text, more=body, headers={"Retry-After": seconds})


def _tell(seen: Seen) -> Reply[SubmitForm] | Response:
    told, form, delayed = seen
    if isinstance(told, Deferred) or form is None:
        assert isinstance(told, Deferred)  # noqa: S101 - all else has a job to show
        return put_off(told, job=None)
    if isinstance(told, AlreadyActive):
        return Json(SubmitForm(result="already_active", job=form))  # nothing was done: it may come again
    warning, depth = warned(told, delayed)
    return Reply(SubmitForm(result="submitted", job=form, warning=warning, depth=depth), 201)


async def submit_one(
    call: Call[Any, Any], wanted: Submission, tell: Callable[[Seen], R], *, is_legacy: bool = False
) -> R:  # fmt: skip
    """What `tell` says to what has become of it."""
    context = call.context
    with ALONE, as_asked(wanted):
        act, workspaces = await _act(context, [wanted], around=context.around, is_legacy=is_legacy)
        done = await carry_out(call, act, context.see_submitted, tell)
    for told, *_ in done.seen:
        await _show_inputs(context, told, workspaces)
    return done.reply


async def submit_many(
    call: Call[Any, Any], members: Sequence[Submission], tell: Callable[[SeenMany], R], *, around: Surroundings,
    group: GroupWanted | None, is_legacy: bool = False,
) -> R:  # fmt: skip
    context = call.context
    with as_asked(*members):
        act, workspaces = await _act(context, members, around=around, group=group, is_legacy=is_legacy)
        done = await carry_out(call, act, context.see_batch, tell)
    for told, _ in done.seen:
        await _show_inputs(context, told, workspaces)
    return done.reply


async def submit_job(call: Call[Nothing, Submission]) -> Reply[SubmitForm] | Response:
    """Submit a job. It is checked whole and stored before the answer; what is refused leaves no trace."""
    return await submit_one(call, call.body, _tell)


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that are submitted together, all or none."""

    jobs: Annotated[list[Submission], msgspec.Meta(min_length=1, max_length=10_000)]
    """In the order in which they stand in the queue."""
    group: GroupWanted | None = None
    """They are the members of a new one."""
    cwd: AbsolutePath | None = None
    """Where the jobs run that say nothing else; the scheduler's own if none is given."""
    env: dict[str, Text] = {}
    """Environment variables of the jobs that bring none of their own."""
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment."""

    def around(self, scheduler: Surroundings) -> Surroundings:
        check_cwd(self.cwd)
        check_variables(self.env)
        variables = {**scheduler.variables, **self.env} if self.inherit_env else self.env
        cwd = scheduler.cwd if self.cwd is None else self.cwd
        return msgspec.structs.replace(scheduler, cwd=cwd, variables=variables)


class BatchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Only say what would come of it."""
    format: Literal["dag", "json"] = "json"
    """Of the graph, with `dry_run`."""


async def submit_batch(call: Call[BatchQuery, Batch]) -> Reply[BatchForm] | Response:
    """Submit jobs, all or none. They can name each other by their `local` names; the answer has the ids in the order
    given."""
    context, batch = call.context, call.body
    around = batch.around(context.around)
    if call.query.dry_run:
        with as_asked(*batch.jobs):
            act, _ = await _act(context, batch.jobs, around=around, group=batch.group, keeps_inputs=False)
            return Json(await rehearse(context, act, batch.jobs, call.query.format))
    tell = partial(_tell_batch, has_group=batch.group is not None)
    return await submit_many(call, batch.jobs, tell, around=around, group=batch.group)


def _tell_batch(seen: SeenMany, *, has_group: bool) -> Reply[BatchForm] | Response:
    told, delayed = seen
    no_group = {"group": None} if has_group else {}
    if isinstance(told, Deferred):
        return put_off(told, jobs=[], **no_group)
    jobs = [show_job(job) for job in told.jobs]
    group = None if has_group else msgspec.UNSET
    if isinstance(told, AlreadyActive):
        active = {key: show_job(job) for key, job in told.active.items()}
        return Json(BatchForm(result="already_active", jobs=jobs, active=active, group=group))
    made = group if told.group is None else show_group(told.group)
    warning, depth = warned(told, delayed)
    return Reply(BatchForm(result="submitted", jobs=jobs, group=made, warning=warning, depth=depth), 201)


ENDPOINTS = [
    Endpoint(
        "POST", "/api/jobs", submit_job, statuses=(201, 200), refuses=(404, 409, 429), is_keyed=True,
        sends={"command": ["claude", "-p", "fix the failing test"], "name": "fix", "priority": 5, "timeout": "2h"},
        shows={"result": "submitted", "job": WAITING_JOB, "warning": None},
        also_shows={200: {"result": "already_active", "job": WAITING_JOB, "warning": None}},
    ),
    Endpoint(
        "POST", "/api/jobs/batch", submit_batch, statuses=(201, 200), refuses=(404, 409, 429), is_keyed=True,
        or_gives={200: RehearsalForm},
        sends={
            "jobs": [
                {"local": "plan", "command": ["./plan.sh"]},
                {"local": "build", "command": ["make"], "after": [{"job": "plan"}], "locks": [{"key": "repo"}]},
            ],
            "group": {"name": "release", "on_failure": "stop"},
        },
        shows={"result": "submitted", "jobs": ["job-24", "job-25"], "group": "group-3", "warning": None},
        also_shows={
            200: {"result": "already_active", "jobs": ["job-24"], "active": {"cards/7.md": "job-24"}, "warning": None}
        },
    ),
]  # fmt: skip
