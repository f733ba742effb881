"""Manual retry over HTTP (DEC-007)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import WAITING_JOB
from rota.api.once import carry_out
from rota.command.retry import Retried, checked, retry
from rota.engine.work import Work
from rota.ids import show_job
from rota.view import job as view
from rota.wire.retry import RetryForm


async def retry_run(call: Call[Nothing, None]) -> Reply[RetryForm]:
    """Retry a chain that has failed, as a new job. The id is a run's, or a job's: one that never ran has no run."""
    act = partial(retry, what=call.place("run_or_job", checked), actor=call.context.actor)
    return (await carry_out(call, act, partial(_see, call.context), _tell)).reply


def _see(context: Context, work: Work, results: Sequence[Retried]) -> list[RetryForm]:
    return [
        RetryForm(
            job=view.show(work.session, told.job, context.sight()),
            text=told.text,
            blocked=[show_job(job) for job in told.blocked],
            dropped=[show_job(job) for job in told.dropped],
            warning=told.advice,
        )
        for told in results
    ]


def _tell(form: RetryForm) -> Reply[RetryForm]:
    return Reply(form, 201)


_RETRIED: dict[str, Any] = {
    "job": WAITING_JOB,
    "text": "job-24 is retry 1 of job-23",
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
        refuses=(409,),
        is_keyed=True,
        shows=_RETRIED,
    ),
]
