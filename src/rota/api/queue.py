"""The queue over HTTP: what waits, and other places for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.example import WAITING_JOB
from rota.api.page import PageSize, begins_at
from rota.command.move import Move, Moved, move, reorder
from rota.core.queue import Rank
from rota.engine.work import Work
from rota.ids import parse_job, show_job
from rota.view import queue as view
from rota.wire.queue import OrderForm, PlaceForm, QueuePageForm
from rota.wire.text import JobText, QueueCursor

_NUMBERS = 4


async def move_job(call: Call[Nothing, Move]) -> Reply[PlaceForm]:
    """Move a job that waits to another place among those of its priority. Say where in one way."""
    context, job = call.context, call.place("job", parse_job)
    act = partial(move, job=job, wanted=call.body, actor=context.actor)
    return Reply(await context.perform_and_see(act, partial(_placed, context)))


def _placed(context: Context, work: Work, results: Sequence[Moved]) -> list[PlaceForm]:
    forms = []
    for told in results:
        job, place = view.placed(work.session, told.jobs[0], context.sight())
        forms.append(PlaceForm(job=job, place=place, moved=told.has_moved))
    return forms


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The order that jobs are to have."""

    order: Annotated[list[JobText], msgspec.Meta(min_length=1, max_length=10_000)]
    """Jobs of one priority that wait, each once."""


async def reorder_queue(call: Call[Nothing, Order]) -> Reply[OrderForm]:
    """Give jobs that wait another order. They share out the places they have among them; all others stay where they
    are."""
    context = call.context
    told = await context.perform(partial(reorder, order=call.body.order, actor=context.actor))
    return Reply(OrderForm(order=[show_job(job) for job in told.jobs], moved=told.has_moved))


class QueueQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: QueueCursor | None = None
    """The `next` of the page before."""


def _parse_rank(text: str) -> Rank:
    """Where the page before ended: that job may have started or moved since."""
    numbers = text.split(".")
    if len(numbers) != _NUMBERS or not all(_is_number(each) for each in numbers):
        raise ValueError(text)
    return Rank._make(int(each) for each in numbers)


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 19


async def list_queue(call: Call[QueueQuery, None]) -> Reply[QueuePageForm]:
    """List what waits, in the order in which it would go."""
    context, behind = call.context, begins_at(call.query.cursor, _parse_rank, view.FRONT)
    page = await context.look(partial(view.queue, sight=context.sight(), behind=behind, limit=call.query.limit))
    mark = None if page.last is None else ".".join(str(each) for each in page.last)
    return Reply(QueuePageForm(jobs=page.jobs, next=mark))


_SHOWN = {name: WAITING_JOB[name] for name in ("id", "name", "status", "priority", "position", "wait")}

ENDPOINTS = [
    Endpoint(
        "POST", "/api/jobs/{job}/move", move_job, refuses=(409,), sends={"before": "job-24"},
        shows={"job": WAITING_JOB, "place": 1, "moved": True},
    ),
    Endpoint("GET", "/api/queue", list_queue, shows={"jobs": [{**_SHOWN, "place": 1}], "next": None}),
    Endpoint(
        "POST", "/api/queue/reorder", reorder_queue, refuses=(404, 409), sends={"order": ["job-25", "job-24"]},
        shows=OrderForm(order=["job-25", "job-24"], moved=True),
    ),
]  # fmt: skip
