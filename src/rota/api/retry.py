"""Manual retry over HTTP (DEC-007)."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer
from rota.command.retry import retry
from rota.ids import show_job
from rota.view import job as view


async def retry_run(request: Request) -> Response:
    """The id is a run's, or a job's: one that never ran has no run."""
    context = context_of(request)
    key = request.headers.get("idempotency-key")
    told = await context.perform(partial(retry, what=request.path_params["run"], actor=context.actor, key=key))
    form = await context.look(partial(view.show, job=told.job, sight=context.sight()))
    body = {
        "job": form,
        "text": told.text,
        "blocked": [show_job(job) for job in told.blocked],
        "dropped": [show_job(job) for job in told.dropped],
        "warning": told.advice,
    }
    return answer(body, 200 if told.is_repeat else 201)


ROUTES = [Route("/api/job-runs/{run}/retry", retry_run, methods=["POST"])]
