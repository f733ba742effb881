"""Rewind over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from rota.api.context import Context
from rota.api.endpoint import DryRunQuery, Endpoint, Invocation, JsonReply
from rota.api.idempotent_call import CallResult, run_call
from rota.command.rewind import (
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
from rota.errors import Conflict, ServiceUnavailable
from rota.ids import parse_job_id
from rota.wire.rewind import RewindResult

_PROBE_TIMEOUT = 20.0
"""Seconds to probe repositories and artifacts."""
_MAX_ATTEMPTS = 10


async def rewind_job(call: Invocation[DryRunQuery, None]) -> JsonReply[RewindResult]:
    """Put a job and everything downstream of it back into the queue, in place."""
    return await _rewind(call, partial(find_rewind_set, job=call.path_parameter("job", parse_job_id)))


async def rewind_group(call: Invocation[DryRunQuery, None]) -> JsonReply[RewindResult]:
    """Rewind all members of a group that have not succeeded, together."""
    return await _rewind(call, partial(find_group_rewind_set, group=call.path_values["group"]))


def _make_reply(report: RewindReport | None) -> JsonReply[RewindResult] | None:
    return None if report is None else JsonReply(_build_result(report))


def _build_result(report: RewindReport, *, dry_run: bool = False) -> RewindResult:
    fields = msgspec.structs.asdict(report)
    warnings = fields.pop("warnings")
    return RewindResult(**fields, dry_run=dry_run, warning="; ".join(warnings) or None)


async def _rewind(call: Invocation[DryRunQuery, None], find_set: Callable[..., RewindSet]) -> JsonReply[RewindResult]:
    """Rewind the set that `find_set` returns."""
    context = call.context
    for _ in range(_MAX_ATTEMPTS):
        rewind_set = await context.read(partial(find_set, observations=context.view_context().observations))
        facts = await _probe_facts(context, rewind_set)
        operation = partial(rewind, rewind_set=rewind_set, facts=facts, actor=context.actor)
        if call.query.dry_run:
            planned = await context.dry_run(operation, render_reports)
            if planned is None:
                continue
            return JsonReply(_build_result(planned, dry_run=True))
        result = await run_call(call, operation, render_reports, _make_reply)
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
    return _make_reply(msgspec.structs.replace(report, warnings=[*report.warnings, *warnings])) or result.reply


async def _probe_facts(context: Context, rewind_set: RewindSet) -> StartFacts:
    if not rewind_set.repositories and not rewind_set.facts:
        return StartFacts()
    try:
        keys = {("rewind", repository) for repository in rewind_set.repositories} or {("rewind", "")}
        probe = partial(probe_rewind_facts, rewind_set, context.probe, context.fact_cache.begin_probe())
        return await context.blocking_calls.run(keys, _PROBE_TIMEOUT, probe)
    except TimeoutError:
        raise ServiceUnavailable("the file system does not answer; nothing was rewound, so try again later") from None


_EXAMPLE = {
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
    Endpoint("POST", "/api/jobs/{job}/rewind", rewind_job, errors=(409,), accepts_key=True, response_example=_EXAMPLE),
    Endpoint(
        "POST",
        "/api/job-groups/{group}/rewind",
        rewind_group,
        errors=(409,),
        accepts_key=True,
        response_example=_EXAMPLE,
    ),
]
