"""Submits over HTTP: one job, or a batch. The result is `submitted`, `already_active` or `deferred`.

A dry run of a batch shows the jobs that a submit would store, and their graph.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.responses import Response

from rota.control.schemas import QueueDepthView, render_depth
from rota.engine.transaction import Transaction
from rota.graph.endpoints import probe_leaves, render_graph
from rota.graph.model import Graph, Vertex
from rota.graph.queries import DrawingDraft, GraphDraft, GraphOptions, draft_drawing_of, draft_graph_of
from rota.graph.schemas import GraphDrawing, GraphView
from rota.http.context import Context
from rota.http.endpoint import DryRunQuery, Endpoint, Invocation, JsonReply
from rota.http.idempotency import run_call
from rota.http.problem import JsonResponse, problem_response
from rota.ids import JobId, format_group_id, format_job_id
from rota.jobs.dependencies import local_names_by_job
from rota.jobs.examples import WAITING_JOB
from rota.jobs.policies import effective_policies
from rota.jobs.queries import ViewContext
from rota.jobs.result_schemas import BatchDryRunResult, BatchSubmitResult, DryRunJob, SubmitResult
from rota.jobs.schemas import JobView
from rota.jobs.submission import DefaultEnvironment, GroupRequest, Submission, check_cwd, check_variables
from rota.jobs.submit import (
    DEFERRAL_RETRY_DELAY,
    AcceptedSubmit,
    DeferredSubmit,
    DelayWarning,
    DuplicateSubmit,
    SubmitOutcome,
)
from rota.jobs.submit_preparation import SINGLE_JOB_PATHS, PreparedSubmit
from rota.kernel.artifacts import ArtifactNeed, Observations
from rota.schema_types import AbsolutePath, Text
from rota.templates.expand import blame_template

_Needs = Mapping[int, Sequence[ArtifactNeed]]
_RenderedDryRun = tuple[SubmitOutcome, DrawingDraft | GraphDraft | None, Mapping[JobId, str], Observations, _Needs]
R = TypeVar("R", bound=JsonReply[Any] | Response)
RenderedSubmit = tuple[SubmitOutcome, JobView | None, DelayWarning | None]
RenderedBatch = tuple[SubmitOutcome, DelayWarning | None]


async def submit_job(call: Invocation[DryRunQuery, Submission]) -> JsonReply[SubmitResult] | Response:
    """Submit a job. The job is checked and stored before the response is sent. A refused job leaves no trace."""
    if call.query.dry_run:
        return await _dry_run_job(call.context, call.body)
    return await submit_one(call, call.body, _submit_reply)


async def _dry_run_job(context: Context, request: Submission) -> Response:
    with SINGLE_JOB_PATHS, blame_template(request):
        prepared = await _prepare(
            context, [request], default_environment=context.default_environment, stores_inputs=False
        )
        result, job, delayed = await context.dry_run(prepared.operation, context.render_submitted)
    if isinstance(result, AcceptedSubmit) and job is not None:
        warning, depth = warning_and_depth(result, delayed)
        return JsonResponse(SubmitResult(result="dry_run", job=job, warning=warning, depth=depth))
    reply = _submit_reply((result, job, delayed))
    assert isinstance(reply, Response)  # noqa: S101 - only an accepted submit has a JsonReply
    return reply


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
            prepared = await _prepare(
                context, batch.jobs, default_environment=environment, group=batch.group, stores_inputs=False
            )
            return JsonResponse(await _dry_run_batch(context, prepared.operation, batch.jobs, call.query.format))
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
    seconds = f"{DEFERRAL_RETRY_DELAY.total_seconds():.0f}"
    return problem_response("deferred", 429, result.message, extra=body, headers={"Retry-After": seconds})


async def _prepare(
    context: Context,
    members: Sequence[Submission],
    *,
    default_environment: DefaultEnvironment,
    group: GroupRequest | None = None,
    stores_inputs: bool = True,
    is_legacy: bool = False,
) -> PreparedSubmit:
    context.control.check_config()  # a change of the file applies to every later submit
    await context.control.check_hold_file()
    return await context.submit_preparer.prepare(
        members,
        default_environment=default_environment,
        actor=context.actor,
        group=group,
        stores_inputs=stores_inputs,
        is_legacy=is_legacy,
    )


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
        prepared = await _prepare(
            context, [request], default_environment=context.default_environment, is_legacy=is_legacy
        )
        outcome = await run_call(call, prepared.operation, context.render_submitted, make_reply)
    for result, *_ in outcome.rendered:
        await context.submit_preparer.link_inputs(result, prepared.workspaces)
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
        prepared = await _prepare(
            context, members, default_environment=default_environment, group=group, is_legacy=is_legacy
        )
        outcome = await run_call(call, prepared.operation, context.render_batch, make_reply)
    for result, _ in outcome.rendered:
        await context.submit_preparer.link_inputs(result, prepared.workspaces)
    return outcome.reply


async def _dry_run_batch(
    context: Context, operation: Callable[[Transaction], SubmitOutcome], members: Sequence[Submission], view_format: str
) -> BatchDryRunResult:
    view_context = context.view_context()
    render = partial(_render_dry_runs, view_context=view_context, members=members, view_format=view_format)
    result, draft, names, observations, needs = await context.dry_run(operation, render)
    match result:
        case DeferredSubmit():
            return BatchDryRunResult(result="deferred", jobs=[], graph=None, warning=result.message)
        case DuplicateSubmit():
            active = {key: format_job_id(job) for key, job in result.active.items()}
            return BatchDryRunResult(result="already_active", jobs=[], active=active, graph=None, warning=None)
        case AcceptedSubmit():
            graph: GraphView | GraphDrawing | None = None
            if draft is not None:
                all_observations = await probe_leaves(context, draft, observations)
                graph = await asyncio.to_thread(render_graph, draft, all_observations)
            jobs = await asyncio.to_thread(_render_dry_run_jobs, result, names, needs, view_context)
            warning = "; ".join(result.warnings) or None
            return BatchDryRunResult(result="dry_run", jobs=jobs, graph=graph, warning=warning)


def _render_dry_run_jobs(
    result: AcceptedSubmit, names: Mapping[JobId, str], needs: _Needs, view_context: ViewContext
) -> list[DryRunJob]:
    return [
        DryRunJob(
            id=format_job_id(job.id),
            local=names.get(job.id),
            policies=effective_policies(
                job.to_job(view_context.now),
                needs.get(job.id, ()),
                limits=view_context.limits,
                breaker=view_context.breaker_policy,
            ),
        )
        for job in result.new_jobs
    ]


def _render_dry_runs(
    tx: Transaction,
    results: Sequence[SubmitOutcome],
    *,
    view_context: ViewContext,
    members: Sequence[Submission],
    view_format: str,
) -> list[_RenderedDryRun]:
    observations = Observations(observed=dict(tx.observations.observed), paths=tx.settings.artifact_paths)
    turn_context = msgspec.structs.replace(view_context, observations=observations)
    return [_render_dry_run(tx, result, turn_context, members, view_format) for result in results]


def _render_dry_run(
    tx: Transaction, result: SubmitOutcome, view_context: ViewContext, members: Sequence[Submission], view_format: str
) -> _RenderedDryRun:
    if not isinstance(result, AcceptedSubmit):
        return result, None, {}, view_context.observations, {}
    names = local_names_by_job(result.jobs, members)
    states = tx.chains.states(result.jobs)
    nodes = {job: Vertex(job=job, chain=states[job].chain, status=states[job].status) for job in result.jobs}
    graph = Graph(nodes=nodes, links=tx.graph.links_of(nodes.values()))
    draft: DrawingDraft | GraphDraft
    if view_format == "dag":
        draft = draft_drawing_of(tx, graph, view_context, max_depth=GraphOptions().max_depth, display_names=names)
    else:
        draft = draft_graph_of(tx, graph, view_context)
    needs = tx.artifacts.needs_of([job.id for job in result.new_jobs if job.needs])
    return result, draft, names, view_context.observations, needs


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
