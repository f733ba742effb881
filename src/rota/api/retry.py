"""Manual retry over HTTP (DEC-007)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rota.api.context import Context
from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.example import WAITING_JOB
from rota.api.idempotent_call import run_call
from rota.command.retry import RetryOutcome, check_reference, find_retry_facts, retry, warn_of_ended_retry
from rota.command.rewind import StartFacts
from rota.engine.transaction import Transaction
from rota.errors import ServiceUnavailable
from rota.ids import format_job_id
from rota.view import job as view
from rota.wire.retry import RetryResult

_PROBE_TIMEOUT = 20.0
"""Seconds to probe artifacts and pinned heads."""


async def retry_run(call: Invocation[NoQuery, None]) -> JsonReply[RetryResult]:
    """Retry a failed chain as a new job. The id is that of a run or of a job, because a job that never ran has no
    run."""
    reference = call.path_parameter("run_or_job", check_reference)
    facts = await _probe_facts(call.context, reference)
    operation = partial(retry, reference=reference, actor=call.context.actor, facts=facts)
    return (await run_call(call, operation, partial(_render, call.context), _created_reply)).reply


async def _probe_facts(context: Context, reference: str) -> StartFacts:
    paths = context.control.settings.artifact_paths
    facts = await context.read(partial(find_retry_facts, reference=reference, paths=paths))
    if not facts:
        return StartFacts()
    probe_number = context.fact_cache.begin_probe()
    try:
        keys = {("retry", fact) for fact in facts}
        probe = partial(context.probe.observe, set(facts))
        observed = await context.blocking_calls.run(keys, _PROBE_TIMEOUT, probe)
    except TimeoutError:
        raise ServiceUnavailable("the file system does not answer; nothing was retried, so try again later") from None
    return StartFacts(observed=observed, probe_number=probe_number)


def _render(context: Context, tx: Transaction, results: Sequence[RetryOutcome]) -> list[RetryResult]:
    return [
        RetryResult(
            job=view.show(tx, outcome.job, context.view_context()),
            message=outcome.message,
            blocked=[format_job_id(job) for job in outcome.blocked],
            dropped=[format_job_id(job) for job in outcome.dropped],
            warning=outcome.advice,
        )
        for outcome in (warn_of_ended_retry(tx, result) for result in results)
    ]


def _created_reply(result: RetryResult) -> JsonReply[RetryResult]:
    return JsonReply(result, 201)


_EXAMPLE: dict[str, Any] = {
    "job": WAITING_JOB,
    "message": "job-24 is retry 1 of job-23",
    "blocked": [],
    "dropped": [],
    "warning": None,
}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/job-runs/{run_or_job}/retry",
        retry_run,
        statuses=(201,),
        errors=(409,),
        accepts_key=True,
        response_example=_EXAMPLE,
    )
]
