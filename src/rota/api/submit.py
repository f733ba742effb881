"""Submits over HTTP: one job, or a batch. The result is `submitted`, `already_active` or `deferred`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.responses import Response

from rota.api.context import Context
from rota.api.dry_run import dry_run_batch
from rota.api.endpoint import DryRunQuery, Endpoint, Invocation, JsonReply
from rota.api.example import WAITING_JOB
from rota.api.idempotent_call import run_call
from rota.api.problem import JsonResponse, problem_response
from rota.api.webhook import check_webhook_hosts
from rota.command.backpressure import RETRY_DELAY, DeferredSubmit, DelayWarning
from rota.command.expand import ExpandedSubmit, blame_template, expand_all
from rota.command.field import check_cwd, check_variables
from rota.command.preflight import EMPTY_PREFLIGHT, Preflight, needs_probe, probed_directories, run_preflight
from rota.command.submission import DefaultEnvironment, GroupRequest, JobOrigin, Submission
from rota.command.submit import (
    AcceptedSubmit,
    DuplicateSubmit,
    Programs,
    SubmitOutcome,
    collect_programs,
    find_missing_programs,
    submit,
)
from rota.command.workspace import GIT_TIMEOUT, link_inputs, needs_workspace, prepare_workspaces
from rota.core.workspace import WorkspaceSpec
from rota.engine.transaction import Transaction
from rota.errors import ServiceUnavailable, StoreUnavailable, error_path
from rota.ids import format_group_id, format_job_id
from rota.wire.depth import QueueDepthView, render_depth
from rota.wire.job import JobView
from rota.wire.schema_types import AbsolutePath, Text
from rota.wire.submit import BatchDryRunResult, BatchSubmitResult, SubmitResult

Workspaces = Sequence[WorkspaceSpec | None]
R = TypeVar("R", bound=JsonReply[Any] | Response)

SINGLE_JOB_PATHS = error_path("", replaced_prefix=".jobs[0]")
"""Error paths for a request that is itself the only job."""
_CHECK_TIMEOUT = 2.0
"""Seconds to check a program and its directory before a submit."""
_PROBE_TIMEOUT = 20.0
"""Seconds to probe repositories and artifacts."""
_CACHE_SECONDS = 1.0
_MAX_CACHE_ENTRIES = 1000
_missing_cache: dict[Programs, tuple[float, list[str]]] = {}
"""Missing programs, kept for a moment: scripts submit the same program a thousand times."""


async def _prepare_submit(
    context: Context,
    expanded: ExpandedSubmit,
    workspaces: Workspaces,
    default_environment: DefaultEnvironment,
    group: GroupRequest | None,
) -> Callable[[Transaction], SubmitOutcome]:
    members = expanded.submissions
    context.control.check_config()  # a change of the file applies to every later submit
    await context.control.check_hold_file()
    warnings = [*expanded.warnings, *await _find_missing_programs(context, members, default_environment)]
    if urls := _webhook_urls(members):
        warnings += await check_webhook_hosts(context, urls)
    return partial(
        submit,
        submissions=members,
        default_environment=default_environment,
        actor=context.actor,
        warnings=warnings,
        preflight=await _run_preflight(context, members, default_environment),
        workspaces=workspaces,
        origins=expanded.origins,
        group_request=group,
    )


def _webhook_urls(members: Sequence[Submission]) -> dict[str, str]:
    """Return the webhook URLs of the jobs, each with its first path in the request."""
    urls: dict[str, str] = {}
    for n, member in enumerate(members):
        for m, url in enumerate(member.webhooks):
            urls.setdefault(url, f".jobs[{n}].webhooks[{m}]")
    return urls


async def _expand_templates(context: Context, members: Sequence[Submission]) -> ExpandedSubmit:
    """Expand the templates of the jobs. Schemas are checked in a reader thread, not in the engine's."""
    if not any(member.template is not None for member in members):
        return ExpandedSubmit(submissions=members, origins=(), warnings=[])
    return await context.read(partial(expand_all, submissions=members))


def _mark_legacy(expanded: ExpandedSubmit) -> ExpandedSubmit:
    origins = expanded.origins or [JobOrigin()] * len(expanded.submissions)
    legacy = [msgspec.structs.replace(origin, is_legacy=True) for origin in origins]
    return msgspec.structs.replace(expanded, origins=legacy)


async def _build_submit(
    context: Context,
    members: Sequence[Submission],
    *,
    default_environment: DefaultEnvironment,
    group: GroupRequest | None = None,
    keeps_inputs: bool = True,
    is_legacy: bool = False,
) -> tuple[Callable[[Transaction], SubmitOutcome], Workspaces]:
    """Return the submit for the engine's transaction, and the workspaces of the jobs."""
    expanded = await _expand_templates(context, members)
    if is_legacy:
        expanded = _mark_legacy(expanded)
    workspaces = await _prepare_workspaces(
        context, expanded.submissions, default_environment, keeps_inputs=keeps_inputs
    )
    return await _prepare_submit(context, expanded, workspaces, default_environment, group), workspaces


async def _run_preflight(
    context: Context, members: Sequence[Submission], default_environment: DefaultEnvironment
) -> Preflight:
    """Probe what the jobs name outside the store. The submit is refused if the file system does not answer, because
    then nothing is known."""
    if not any(needs_probe(member) for member in members):
        return EMPTY_PREFLIGHT
    paths, probe_number = context.control.settings.artifact_paths, context.fact_cache.begin_probe()
    run = partial(run_preflight, members, default_environment, context.probe, paths, probe_number=probe_number)
    keys = {
        ("preflight", directory) for member in members for directory in probed_directories(member, default_environment)
    }
    try:
        return await context.blocking_calls.run(keys, _PROBE_TIMEOUT, run)
    except TimeoutError:
        message = "the file system does not answer; nothing was stored, so submit again later"
        raise ServiceUnavailable(message) from None


async def _prepare_workspaces(
    context: Context,
    members: Sequence[Submission],
    default_environment: DefaultEnvironment,
    *,
    keeps_inputs: bool = True,
) -> Sequence[WorkspaceSpec | None]:
    """Query git for the jobs that request a worktree or a patch."""
    if not any(map(needs_workspace, members)):
        return ()
    run = partial(prepare_workspaces, members, default_environment, context.home.directory, stores_inputs=keeps_inputs)
    keys = {("git", member.cwd or default_environment.cwd) for member in members if needs_workspace(member)}
    try:
        return await context.blocking_calls.run(keys, GIT_TIMEOUT + _CHECK_TIMEOUT, run)
    except TimeoutError:
        message = "git does not answer in the working directory; nothing was stored, so submit again later"
        raise ServiceUnavailable(message) from None


async def preflight_submit(
    context: Context, members: Sequence[Submission], *, keeps_inputs: bool = True
) -> tuple[Preflight, Sequence[WorkspaceSpec | None]]:
    """Run all probes of a submit that does not come from a client."""
    environment = context.default_environment
    workspaces = await _prepare_workspaces(context, members, environment, keeps_inputs=keeps_inputs)
    return await _run_preflight(context, members, environment), workspaces


async def collect_preflight_warnings(context: Context, request: Submission, job: Submission) -> list[str]:
    """Return warnings about a job that is created later from the request. Refuse a job that could not be created now. A
    file system that does not answer gives a warning, because it may answer later."""
    try:
        with SINGLE_JOB_PATHS, blame_template(request):
            preflight, _ = await preflight_submit(context, [job], keeps_inputs=False)
            if preflight.refusal is not None:
                raise preflight.refusal
    except StoreUnavailable:
        raise
    except ServiceUnavailable:
        return ["the file system does not answer, so the files and branches that the job needs were not checked"]
    return await _find_missing_programs(context, [job], context.default_environment)


async def _link_inputs(context: Context, result: SubmitOutcome, workspaces: Sequence[WorkspaceSpec | None]) -> None:
    if workspaces and isinstance(result, AcceptedSubmit):
        await asyncio.to_thread(link_inputs, context.home.directory, result.jobs, workspaces)


async def _find_missing_programs(
    context: Context, members: Sequence[Submission], default_environment: DefaultEnvironment
) -> list[str]:
    """Return warnings about missing programs. A file system that does not answer does not fail the submit."""
    programs = collect_programs(members, default_environment)
    if programs not in _missing_cache or time.monotonic() - _missing_cache[programs][0] > _CACHE_SECONDS:
        try:
            keys = {("program", cwd) for cwd, _, _ in programs}
            missing = await context.blocking_calls.run(keys, _CHECK_TIMEOUT, partial(find_missing_programs, programs))
        except TimeoutError:
            return ["the file system does not answer, so the program and the working directory were not checked"]
        if len(_missing_cache) >= _MAX_CACHE_ENTRIES:
            _missing_cache.clear()
        _missing_cache[programs] = time.monotonic(), missing
    return _missing_cache[programs][1]


RenderedSubmit = tuple[SubmitOutcome, JobView | None, DelayWarning | None]
RenderedBatch = tuple[SubmitOutcome, DelayWarning | None]


def warning_and_depth(
    result: AcceptedSubmit, delayed: DelayWarning | None
) -> tuple[str | None, QueueDepthView | msgspec.UnsetType]:
    warnings = [*result.warnings, *(() if delayed is None else (delayed.message,))]
    depth = msgspec.UNSET if delayed is None else render_depth(delayed.depth, delayed.limits)
    return "; ".join(warnings) or None, depth


def deferred_response(result: DeferredSubmit, **extra: object) -> Response:
    """Return the response of a deferred submit. `extra` are the other fields of its kind of result, without values."""
    body = {
        "result": "deferred",
        **extra,
        "warning": result.message,
        "depth": render_depth(result.depth, result.limits),
    }
    seconds = f"{RETRY_DELAY.total_seconds():.0f}"
    return problem_response("deferred", 429, result.message, extra=body, headers={"Retry-After": seconds})


def _submit_reply(rendered: RenderedSubmit) -> JsonReply[SubmitResult] | Response:
    result, job, delayed = rendered
    if isinstance(result, DeferredSubmit) or job is None:
        assert isinstance(result, DeferredSubmit)  # noqa: S101 - every other outcome has a job
        return deferred_response(result, job=None)
    if isinstance(result, DuplicateSubmit):
        # Not a JsonReply, which would be stored for the key: nothing was done, so a repeat may succeed.
        return JsonResponse(SubmitResult(result="already_active", job=job))
    warning, depth = warning_and_depth(result, delayed)
    return JsonReply(SubmitResult(result="submitted", job=job, warning=warning, depth=depth), 201)


async def submit_one(
    call: Invocation[Any, Any],
    request: Submission,
    make_reply: Callable[[RenderedSubmit], R],
    *,
    is_legacy: bool = False,
) -> R:
    """Submit a job, and return the reply that `make_reply` builds from the outcome."""
    context = call.context
    with SINGLE_JOB_PATHS, blame_template(request):
        operation, workspaces = await _build_submit(
            context, [request], default_environment=context.default_environment, is_legacy=is_legacy
        )
        outcome = await run_call(call, operation, context.render_submitted, make_reply)
    for result, *_ in outcome.rendered:
        await _link_inputs(context, result, workspaces)
    return outcome.reply


async def submit_many(
    call: Invocation[Any, Any],
    members: Sequence[Submission],
    make_reply: Callable[[RenderedBatch], R],
    *,
    default_environment: DefaultEnvironment,
    group: GroupRequest | None,
    is_legacy: bool = False,
) -> R:
    context = call.context
    with blame_template(*members):
        operation, workspaces = await _build_submit(
            context, members, default_environment=default_environment, group=group, is_legacy=is_legacy
        )
        outcome = await run_call(call, operation, context.render_batch, make_reply)
    for result, _ in outcome.rendered:
        await _link_inputs(context, result, workspaces)
    return outcome.reply


async def submit_job(call: Invocation[DryRunQuery, Submission]) -> JsonReply[SubmitResult] | Response:
    """Submit a job. The job is checked and stored before the response is sent. A refused job leaves no trace."""
    if call.query.dry_run:
        return await _dry_run(call.context, call.body)
    return await submit_one(call, call.body, _submit_reply)


async def _dry_run(context: Context, request: Submission) -> Response:
    with SINGLE_JOB_PATHS, blame_template(request):
        operation, _ = await _build_submit(
            context, [request], default_environment=context.default_environment, keeps_inputs=False
        )
        result, job, delayed = await context.dry_run(operation, context.render_submitted)
    if isinstance(result, AcceptedSubmit) and job is not None:
        warning, depth = warning_and_depth(result, delayed)
        return JsonResponse(SubmitResult(result="dry_run", job=job, warning=warning, depth=depth))
    reply = _submit_reply((result, job, delayed))
    assert isinstance(reply, Response)  # noqa: S101 - only an accepted submit has a JsonReply
    return reply


class BatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit together, all or none."""

    jobs: Annotated[list[Submission], msgspec.Meta(min_length=1, max_length=10_000)]
    """Jobs, in queue order."""
    group: GroupRequest | None = None
    """New group with the jobs as members."""
    cwd: AbsolutePath | None = None
    """Working directory of the jobs that have none; the scheduler's own by default."""
    env: dict[str, Text] = {}
    """Environment variables of the jobs that have none."""
    inherit_env: bool = True
    """Whether `env` is added to the scheduler's own environment."""

    def default_environment(self, base: DefaultEnvironment) -> DefaultEnvironment:
        check_cwd(self.cwd)
        check_variables(self.env)
        variables = {**base.variables, **self.env} if self.inherit_env else self.env
        cwd = base.cwd if self.cwd is None else self.cwd
        return msgspec.structs.replace(base, cwd=cwd, variables=variables)


class BatchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: bool = False
    """Return the result that the submit would have, without storing anything."""
    format: Literal["dag", "json"] = "json"
    """Format of the graph in the result of a dry run."""


async def submit_batch(call: Invocation[BatchQuery, BatchRequest]) -> JsonReply[BatchSubmitResult] | Response:
    """Submit jobs, all or none. The jobs can refer to each other by their `local` names. The result has the ids in the
    order of the request."""
    context, batch = call.context, call.body
    environment = batch.default_environment(context.default_environment)
    if call.query.dry_run:
        with blame_template(*batch.jobs):
            operation, _ = await _build_submit(
                context, batch.jobs, default_environment=environment, group=batch.group, keeps_inputs=False
            )
            return JsonResponse(await dry_run_batch(context, operation, batch.jobs, call.query.format))
    make_reply = partial(_batch_reply, has_group=batch.group is not None)
    return await submit_many(call, batch.jobs, make_reply, default_environment=environment, group=batch.group)


def _batch_reply(rendered: RenderedBatch, *, has_group: bool) -> JsonReply[BatchSubmitResult] | Response:
    result, delayed = rendered
    no_group = {"group": None} if has_group else {}
    if isinstance(result, DeferredSubmit):
        return deferred_response(result, jobs=[], **no_group)
    jobs = [format_job_id(job) for job in result.jobs]
    group: str | msgspec.UnsetType | None = None if has_group else msgspec.UNSET
    if isinstance(result, DuplicateSubmit):
        active = {key: format_job_id(job) for key, job in result.active.items()}
        return JsonResponse(BatchSubmitResult(result="already_active", jobs=jobs, active=active, group=group))
    if result.created_group is not None:
        group = format_group_id(result.created_group)
    warning, depth = warning_and_depth(result, delayed)
    return JsonReply(BatchSubmitResult(result="submitted", jobs=jobs, group=group, warning=warning, depth=depth), 201)


ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/jobs",
        submit_job,
        statuses=(201, 200),
        errors=(404, 409, 429),
        accepts_key=True,
        request_example={
            "command": ["claude", "-p", "fix the failing test"],
            "name": "fix",
            "priority": 5,
            "timeout": "2h",
        },
        response_example={"result": "submitted", "job": WAITING_JOB, "warning": None},
        other_response_examples={200: {"result": "already_active", "job": WAITING_JOB, "warning": None}},
    ),
    Endpoint(
        "POST",
        "/api/jobs/batch",
        submit_batch,
        statuses=(201, 200),
        errors=(404, 409, 429),
        accepts_key=True,
        other_response_types={200: BatchDryRunResult},
        request_example={
            "jobs": [
                {"local": "plan", "command": ["./plan.sh"]},
                {"local": "build", "command": ["make"], "after": [{"job": "plan"}], "locks": [{"key": "repo"}]},
            ],
            "group": {"name": "release", "on_failure": "stop"},
        },
        response_example={"result": "submitted", "jobs": ["job-24", "job-25"], "group": "group-3", "warning": None},
        other_response_examples={
            200: {"result": "already_active", "jobs": ["job-24"], "active": {"cards/7.md": "job-24"}, "warning": None}
        },
    ),
]
