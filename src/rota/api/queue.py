"""Queue over HTTP: list and reorder waiting jobs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Endpoint, Invocation, JsonReply, NoQuery
from rota.api.example import WAITING_JOB
from rota.api.page import PageSize, parse_cursor
from rota.command.move import MoveOutcome, MoveRequest, move, reorder
from rota.core.queue import Rank
from rota.engine.transaction import Transaction
from rota.ids import format_job_id, parse_job_id
from rota.view import queue as view
from rota.wire.queue import MoveResult, QueuePage, ReorderResult
from rota.wire.schema_types import JobIdText, QueueCursor

_RANK_FIELD_COUNT = 4


async def move_job(call: Invocation[NoQuery, MoveRequest]) -> JsonReply[MoveResult]:
    """Move a waiting job to another place among the jobs of its priority. Set exactly one field."""
    context, job = call.context, call.path_parameter("job", parse_job_id)
    operation = partial(move, job=job, request=call.body, actor=context.actor)
    return JsonReply(await context.run_and_render(operation, partial(_render_place, context)))


def _render_place(context: Context, tx: Transaction, results: Sequence[MoveOutcome]) -> list[MoveResult]:
    rendered = []
    for result in results:
        job, place = view.show_with_place(tx, result.jobs[0], context.view_context())
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


class QueueQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: QueueCursor | None = None
    """Cursor of the page: the `next` of the previous page."""


def _parse_rank(text: str) -> Rank:
    """Parse a cursor, which is the rank of the last job of the previous page. This job may have started or moved
    since."""
    numbers = text.split(".")
    if len(numbers) != _RANK_FIELD_COUNT or not all(map(_is_number, numbers)):
        raise ValueError(text)
    return Rank._make(map(int, numbers))


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 19


async def list_queue(call: Invocation[QueueQuery, None]) -> JsonReply[QueuePage]:
    """List waiting jobs in queue order."""
    context, after = call.context, parse_cursor(call.query.cursor, _parse_rank, view.FRONT_RANK)
    page = await context.read(
        partial(view.list_queue, context=context.view_context(), after=after, limit=call.query.limit)
    )
    next_cursor = None if page.last is None else ".".join(map(str, page.last))
    return JsonReply(QueuePage(jobs=page.jobs, next=next_cursor))


_EXAMPLE = {name: WAITING_JOB[name] for name in ("id", "name", "status", "priority", "position", "wait")}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/jobs/{job}/move",
        move_job,
        errors=(409,),
        request_example={"before": "job-24"},
        response_example={"job": WAITING_JOB, "place": 1, "moved": True},
    ),
    Endpoint("GET", "/api/queue", list_queue, response_example={"jobs": [{**_EXAMPLE, "place": 1}], "next": None}),
    Endpoint(
        "POST",
        "/api/queue/reorder",
        reorder_queue,
        errors=(404, 409),
        request_example={"order": ["job-25", "job-24"]},
        response_example=ReorderResult(order=["job-25", "job-24"], moved=True),
    ),
]
