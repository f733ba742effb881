"""Edits over HTTP."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.context import context_of
from rota.api.problem import answer
from rota.command.edit import edit, parse
from rota.ids import parse_job
from rota.view import job as view


async def edit_job(request: Request) -> Response:
    context, job = context_of(request), parse_job(request.path_params["job"])
    wanted = parse(await request.body())
    context.control.look_at_config()  # a retry policy that was just written can be chosen
    told = await context.perform(partial(edit, job=job, wanted=wanted, actor=context.actor))
    form = await context.look(partial(view.show, job=job, sight=context.sight()))
    return answer({"job": form, "fields": told.fields, "warning": "; ".join(told.warnings) or None})


ROUTES = [Route("/api/jobs/{job}", edit_job, methods=["PATCH"])]
