"""Changes of jobs over HTTP: edit, move, reorder, cancel, retry (DEC-007) and rewind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from rota.db.session import Reader
from rota.engine.transaction import Transaction
from rota.errors import Conflict, ServiceUnavailable, StorageFull, StoreError
from rota.http.context import Context
from rota.http.endpoint import MAX_WAIT_SECONDS, CancelQuery, DryRunQuery, Endpoint, Invocation, JsonReply, NoQuery
from rota.http.idempotency import CallResult, run_call
from rota.ids import JobId, format_job_id, parse_job_id
from rota.jobs import queries
from rota.jobs.cancel import cancel, plan_cancel
from rota.jobs.edit import EditOutcome, EditRequest, edit, parse_edit
from rota.jobs.endpoints import last_of_chain, wait_until_ended
from rota.jobs.examples import CANCELLED_JOB, WAITING_JOB
from rota.jobs.move import MoveOutcome, MoveRequest, move, reorder
from rota.jobs.result_schemas import CancelPlan, EditResult, MoveResult, ReorderResult, RetryResult, RewindResult
from rota.jobs.retry import (
    RetryOutcome,
    check_reference,
    find_retry_facts,
    probe_retry_facts,
    retry,
    warn_of_ended_retry,
)
from rota.jobs.rewind import (
    RewindReport,
    RewindSet,
    StartFacts,
    find_group_rewind_set,
    find_rewind_set,
    probe_rewind_facts,
    remove_worktrees,
    render_reports,
    rewind,
)
from rota.jobs.schemas import JobView
from rota.kernel.status import TERMINAL
from rota.schema_types import JobIdText

_PROBE_TIMEOUT = 20.0
"""Seconds to probe artifacts and pinned heads."""
_MAX_REWIND_ATTEMPTS = 10


async def edit_job(call: Invocation[NoQuery, EditRequest]) -> JsonReply[EditResult]:
    """Change a waiting job, completely or not at all. Command and params are fixed once the job is dispatched (409).
    Dependencies and artifacts are fixed at submit."""
    return JsonReply(await apply_edit(call.context, call.path_parameter("job", parse_job_id), call.body))


async def apply_edit(context: Context, job: JobId, changes: EditRequest) -> EditResult:
    context.control.check_config()  # the edit can name a retry policy that was just added to the file
    operation = partial(edit, job=job, request=changes, actor=context.actor)
    return await context.run_and_render(operation, partial(_render_edits, context))


def _render_edits(context: Context, tx: Transaction, results: Sequence[EditOutcome]) -> list[EditResult]:
    return [
        EditResult(
            job=queries.show_job(tx, outcome.job, context.view_context()),
            fields=outcome.fields,
            warning="; ".join(outcome.warnings) or None,
        )
        for outcome in results
    ]


async def move_job(call: Invocation[NoQuery, MoveRequest]) -> JsonReply[MoveResult]:
    """Move a waiting job to another place among the jobs of its priority. Set exactly one field."""
    context, job = call.context, call.path_parameter("job", parse_job_id)
    operation = partial(move, job=job, request=call.body, actor=context.actor)
    return JsonReply(await context.run_and_render(operation, partial(_render_moves, context)))


def _render_moves(context: Context, tx: Transaction, results: Sequence[MoveOutcome]) -> list[MoveResult]:
    rendered = []
    for result in results:
        job, place = queries.show_job_with_place(tx, result.jobs[0], context.view_context())
        rendered.append(MoveResult(job=job, place=place, moved=result.has_moved))
    return rendered


class ReorderRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New order of waiting jobs."""

    order: Annotated[list[JobIdText], msgspec.Meta(min_length=1, max_length=10_000)]
    """Waiting jobs of one priority, each listed once."""


async def reorder_queue(call: Invocation[NoQuery, ReorderRequest]) -> JsonReply[ReorderResult]:
    """Reorder waiting jobs. They exchange their places among each other; all other jobs keep their places."""
    context = call.context
    result = await context.run_in_turn(partial(reorder, order=call.body.order, actor=context.actor))
    return JsonReply(ReorderResult(order=[format_job_id(job) for job in result.jobs], moved=result.has_moved))


def _manual_kill_hint(reader: Reader, job: JobId) -> str:
    """Return advice to kill the job by hand. A cancel that cannot be stored is refused, but a job that fills the disk
    must be stopped anyway."""
    last = reader.jobs.find(last_of_chain(reader, job))
    if last is None or last.pid is None or last.status in TERMINAL:
        return ""
    return f"; to end it without a record: kill -- -{last.pid}"


async def cancel_job(call: Invocation[CancelQuery, None]) -> JsonReply[JobView | CancelPlan]:
    """Cancel a job and its retries. The response is sent when the processes of the job are gone. A process tree that
    needs SIGKILL takes longer."""
    context, job = call.context, call.path_parameter("job", parse_job_id)
    if call.query.dry_run:
        return JsonReply(
            await context.dry_run(partial(_plan_cancel, job=job, actor=context.actor), lambda _, plans: plans)
        )
    return JsonReply(await cancel_and_wait(context, job, seconds=call.query.wait))


def _plan_cancel(tx: Transaction, job: JobId, actor: str) -> CancelPlan:
    last = tx.chains.last_job(job)
    plan = plan_cancel(tx, [] if last is None else [last[0]])
    cancel(tx, job, actor=actor)
    return plan


async def cancel_and_wait(
    context: Context, job: JobId, *, only_waiting: bool = False, seconds: float = MAX_WAIT_SECONDS
) -> JobView:
    """Cancel a job, and return it when its processes are gone. With `only_waiting`, refuse a running job."""
    try:
        operation = partial(cancel, job=job, actor=context.actor, only_waiting=only_waiting)
        current = await context.run_in_turn(operation)
    except (StorageFull, StoreError) as error:
        raise type(error)(f"{error.message}{await context.read(partial(_manual_kill_hint, job=job))}") from error
    return await wait_until_ended(context, current, seconds, None)


async def retry_run(call: Invocation[NoQuery, None]) -> JsonReply[RetryResult]:
    """Retry a failed chain as a new job. The id is that of a run or of a job, because a job that never ran has no
    run."""
    reference = call.path_parameter("run_or_job", check_reference)
    facts = await _probe_retry_facts(call.context, reference)
    operation = partial(retry, reference=reference, actor=call.context.actor, facts=facts)
    return (await run_call(call, operation, partial(_render_retries, call.context), _make_retry_reply)).reply


async def _probe_retry_facts(context: Context, reference: str) -> StartFacts:
    paths = context.control.settings.artifact_paths
    facts = await context.read(partial(find_retry_facts, reference=reference, paths=paths))
    if not facts:
        return StartFacts()
    probe = partial(probe_retry_facts, facts, context.probe, context.fact_cache.begin_probe())
    return await _run_probe(context, {("retry", fact) for fact in facts}, probe, "retried")


def _render_retries(context: Context, tx: Transaction, results: Sequence[RetryOutcome]) -> list[RetryResult]:
    return [
        RetryResult(
            job=queries.show_job(tx, outcome.job, context.view_context()),
            message=outcome.message,
            blocked=[format_job_id(job) for job in outcome.blocked],
            dropped=[format_job_id(job) for job in outcome.dropped],
            warning=outcome.advice,
        )
        for outcome in (warn_of_ended_retry(tx, result) for result in results)
    ]


def _make_retry_reply(result: RetryResult) -> JsonReply[RetryResult]:
    return JsonReply(result, 201)


async def rewind_job(call: Invocation[DryRunQuery, None]) -> JsonReply[RewindResult]:
    """Put a job and everything downstream of it back into the queue, in place."""
    return await _rewind(call, partial(find_rewind_set, job=call.path_parameter("job", parse_job_id)))


async def rewind_group(call: Invocation[DryRunQuery, None]) -> JsonReply[RewindResult]:
    """Rewind all members of a group that have not succeeded, together."""
    return await _rewind(call, partial(find_group_rewind_set, group=call.path_values["group"]))


async def _rewind(call: Invocation[DryRunQuery, None], find_set: Callable[..., RewindSet]) -> JsonReply[RewindResult]:
    """Rewind the set that `find_set` returns."""
    context = call.context
    for _ in range(_MAX_REWIND_ATTEMPTS):
        rewind_set = await context.read(partial(find_set, observations=context.view_context().observations))
        facts = await _probe_rewind_facts(context, rewind_set)
        operation = partial(rewind, rewind_set=rewind_set, facts=facts, actor=context.actor)
        if call.query.dry_run:
            planned = await context.dry_run(operation, render_reports)
            if planned is None:
                continue
            return JsonReply(_build_rewind_result(planned, dry_run=True))
        result = await run_call(call, operation, render_reports, _make_rewind_reply)
        if result.reply is not None:
            return await _remove_worktrees(context, rewind_set, result)
    raise Conflict("the rewind set grows faster than it can be evaluated; nothing was rewound, so try again")


async def _remove_worktrees(
    context: Context, rewind_set: RewindSet, result: CallResult[JsonReply[RewindResult] | None, RewindReport | None]
) -> JsonReply[RewindResult]:
    """Remove the worktrees of the set after the commit, and report the ones that could not be removed."""
    assert result.reply is not None  # noqa: S101 - the set was rewound
    report = next(iter(result.rendered), None)
    if report is None or not rewind_set.with_workspace:
        return result.reply
    warnings = await asyncio.to_thread(remove_worktrees, rewind_set.with_workspace, context.home.jobs)
    return _make_rewind_reply(msgspec.structs.replace(report, warnings=[*report.warnings, *warnings])) or result.reply


def _make_rewind_reply(report: RewindReport | None) -> JsonReply[RewindResult] | None:
    return None if report is None else JsonReply(_build_rewind_result(report))


def _build_rewind_result(report: RewindReport, *, dry_run: bool = False) -> RewindResult:
    fields = msgspec.structs.asdict(report)
    warnings = fields.pop("warnings")
    return RewindResult(**fields, dry_run=dry_run, warning="; ".join(warnings) or None)


async def _probe_rewind_facts(context: Context, rewind_set: RewindSet) -> StartFacts:
    if not rewind_set.repositories and not rewind_set.facts:
        return StartFacts()
    keys = {("rewind", repository) for repository in rewind_set.repositories} or {("rewind", "")}
    probe = partial(probe_rewind_facts, rewind_set, context.probe, context.fact_cache.begin_probe())
    return await _run_probe(context, keys, probe, "rewound")


async def _run_probe(
    context: Context, keys: Iterable[Hashable], probe: Callable[[], StartFacts], outcome: str
) -> StartFacts:
    """Return the values of the facts that decide the start. `outcome` completes the refusal."""
    try:
        return await context.blocking_calls.run(keys, _PROBE_TIMEOUT, probe)
    except TimeoutError:
        message = f"the file system does not answer; nothing was {outcome}, so try again later"
        raise ServiceUnavailable(message) from None


_RETRY_EXAMPLE: dict[str, Any] = {
    "job": WAITING_JOB,
    "message": "job-24 is retry 1 of job-23",
    "blocked": [],
    "dropped": [],
    "warning": None,
}
_REWIND_EXAMPLE = {
    "requested_job": "job-22",
    "root": "job-22",
    "last_successful_point": ["job-21"],
    "rewind_set": ["job-22", "job-23"],
    "reset": ["job-22", "job-23"],
    "restarted": ["job-22"],
    "cancelled": [],
    "dry_run": False,
    "warning": None,
}

ENDPOINTS = [
    Endpoint(
        "PATCH",
        "/api/jobs/{job}",
        edit_job,
        errors=(409,),
        body_decoder=parse_edit,
        request_example={"set_params": {"chapter": 8}, "priority": 5, "delay": None},
        response_example={"job": WAITING_JOB, "fields": ["params", "priority"], "warning": None},
    ),
    Endpoint(
        "POST",
        "/api/jobs/{job}/move",
        move_job,
        errors=(409,),
        request_example={"before": "job-24"},
        response_example={"job": WAITING_JOB, "place": 1, "moved": True},
    ),
    Endpoint(
        "POST",
        "/api/queue/reorder",
        reorder_queue,
        errors=(404, 409),
        request_example={"order": ["job-25", "job-24"]},
        response_example=ReorderResult(order=["job-25", "job-24"], moved=True),
    ),
    Endpoint("POST", "/api/jobs/{job}/cancel", cancel_job, errors=(409,), response_example=CANCELLED_JOB),
    Endpoint(
        "POST",
        "/api/job-runs/{run_or_job}/retry",
        retry_run,
        statuses=(201,),
        errors=(409,),
        accepts_key=True,
        response_example=_RETRY_EXAMPLE,
    ),
    Endpoint(
        "POST", "/api/jobs/{job}/rewind", rewind_job, errors=(409,), accepts_key=True, response_example=_REWIND_EXAMPLE
    ),
    Endpoint(
        "POST",
        "/api/job-groups/{group}/rewind",
        rewind_group,
        errors=(409,),
        accepts_key=True,
        response_example=_REWIND_EXAMPLE,
    ),
]
