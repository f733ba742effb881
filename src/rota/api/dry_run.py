"""Dry run of a batch: the jobs that a submit would store, and their graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from rota.api.context import Context
from rota.api.graph import probe_leaves, render_graph
from rota.command.backpressure import DeferredSubmit
from rota.command.edge import local_names_by_job
from rota.command.submission import Submission
from rota.command.submit import AcceptedSubmit, DuplicateSubmit, SubmitOutcome
from rota.core.artifact import ArtifactNeed, Observations
from rota.core.graph import Graph, Vertex
from rota.engine.transaction import Transaction
from rota.ids import JobId, format_job_id
from rota.view.graph import DrawingDraft, GraphDraft, GraphOptions, draft_drawing_of, draft_graph_of
from rota.view.job import ViewContext
from rota.view.policies import effective_policies
from rota.wire.graph import GraphDrawing, GraphView
from rota.wire.submit import BatchDryRunResult, DryRunJob

Needs = Mapping[int, Sequence[ArtifactNeed]]
RenderedDryRun = tuple[SubmitOutcome, DrawingDraft | GraphDraft | None, Mapping[JobId, str], Observations, Needs]


async def dry_run_batch(
    context: Context, operation: Callable[[Transaction], SubmitOutcome], members: Sequence[Submission], view_format: str
) -> BatchDryRunResult:
    view_context = context.view_context()
    render = partial(_render, view_context=view_context, members=members, view_format=view_format)
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
            jobs = await asyncio.to_thread(_render_jobs, result, names, needs, view_context)
            warning = "; ".join(result.warnings) or None
            return BatchDryRunResult(result="dry_run", jobs=jobs, graph=graph, warning=warning)


def _render_jobs(
    result: AcceptedSubmit, names: Mapping[JobId, str], needs: Needs, view_context: ViewContext
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


def _render(
    tx: Transaction,
    results: Sequence[SubmitOutcome],
    *,
    view_context: ViewContext,
    members: Sequence[Submission],
    view_format: str,
) -> list[RenderedDryRun]:
    observations = Observations(observed=dict(tx.observations.observed), paths=tx.settings.artifact_paths)
    turn_context = msgspec.structs.replace(view_context, observations=observations)
    return [_render_one(tx, result, turn_context, members, view_format) for result in results]


def _render_one(
    tx: Transaction, result: SubmitOutcome, view_context: ViewContext, members: Sequence[Submission], view_format: str
) -> RenderedDryRun:
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
