"""Edits of waiting jobs over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rota.api.context import Context
from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.example import WAITING_JOB
from rota.command.edit import EditOutcome, EditRequest, edit, parse_edit
from rota.engine.transaction import Transaction
from rota.ids import JobId, parse_job_id
from rota.view import job as view
from rota.wire.edit import EditResult


async def edit_job(call: Invocation[NoQuery, EditRequest]) -> JsonReply[EditResult]:
    """Change a waiting job, completely or not at all. Command and params are fixed once the job is dispatched (409).
    Dependencies and artifacts are fixed at submit."""
    return JsonReply(await apply_edit(call.context, call.path_parameter("job", parse_job_id), call.body))


async def apply_edit(context: Context, job: JobId, changes: EditRequest) -> EditResult:
    context.control.check_config()  # the edit can name a retry policy that was just added to the file
    operation = partial(edit, job=job, request=changes, actor=context.actor)
    return await context.run_and_render(operation, partial(_render, context))


def _render(context: Context, tx: Transaction, results: Sequence[EditOutcome]) -> list[EditResult]:
    return [
        EditResult(
            job=view.show(tx, outcome.job, context.view_context()),
            fields=outcome.fields,
            warning="; ".join(outcome.warnings) or None,
        )
        for outcome in results
    ]


ENDPOINTS = [
    Endpoint(
        "PATCH",
        "/api/jobs/{job}",
        edit_job,
        errors=(409,),
        body_decoder=parse_edit,
        request_example={"set_params": {"chapter": 8}, "priority": 5, "delay": None},
        response_example={"job": WAITING_JOB, "fields": ["params", "priority"], "warning": None},
    )
]
