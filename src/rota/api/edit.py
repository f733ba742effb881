"""Edits over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import WAITING_JOB
from rota.command.edit import Edit, Edited, edit, parse
from rota.engine.work import Work
from rota.ids import JobId, parse_job
from rota.view import job as view
from rota.wire.edit import EditForm


async def edit_job(call: Call[Nothing, Edit]) -> Reply[EditForm]:
    """Change what a job that waits was asked for, whole or not at all. Command and params are fixed once it has been
    dispatched (409); what it waits for and what it makes are fixed at submit."""
    return Reply(await edited(call.context, call.place("job", parse_job), call.body))


async def edited(context: Context, job: JobId, wanted: Edit) -> EditForm:
    context.control.look_at_config()  # a retry policy that was just written can be chosen
    act = partial(edit, job=job, wanted=wanted, actor=context.actor)
    return await context.perform_and_see(act, partial(_see, context))


def _see(context: Context, work: Work, results: Sequence[Edited]) -> list[EditForm]:
    return [
        EditForm(
            job=view.show(work.session, told.job, context.sight()),
            fields=told.fields,
            warning="; ".join(told.warnings) or None,
        )
        for told in results
    ]


ENDPOINTS = [
    Endpoint(
        "PATCH", "/api/jobs/{job}", edit_job, refuses=(409,), reads=parse,
        sends={"set_params": {"chapter": 8}, "priority": 5, "delay": None},
        shows={"job": WAITING_JOB, "fields": ["params", "priority"], "warning": None},
    ),
]  # fmt: skip
