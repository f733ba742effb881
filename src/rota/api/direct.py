"""`POST /api/direct`: one request that waits for its turn, runs, and has the result as its answer (DEC-004).

With an `Idempotency-Key` it runs once, however often it is sent. The key is noted with the slot when that is reserved:

    it comes again while the first is open    409 in flight, by who keeps the connections
    … after the scheduler was started anew    it is the client that comes back: it waits for the same slot
    … after it has run                        the answer of then; where nobody could be told, what the slot came to
    … after its turn did not come             nothing of it ran: its turn is waited for anew

A client that goes away withdraws it all the same. Sent again, it says what became of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import Response

from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Key, Nothing, Reply
from rota.api.once import as_it_is
from rota.api.presence import GONE, Hold
from rota.api.problem import NOBODY, problem
from rota.api.reserve import Prepared, SlotAsked, prepare
from rota.api.router import Found
from rota.api.slot import SLOT, until_ended, while_there
from rota.command.slot import Reserved, come_back
from rota.config.section import is_route
from rota.engine.act import settle
from rota.engine.once import Note, Once, Told, note, noted_before
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, Unavailable, WaitOver, within
from rota.ids import SlotId, show_slot
from rota.view.log import STREAMS, path_in, pieces, size_of
from rota.wire.slot import CutForm, DirectForm, SlotForm

log = logging.getLogger("rota.api")

MOST = 64 * 1024
"""Bytes of each stream in an answer: its end, which says what came of it."""
RETRY_AFTER = 10
"""Seconds after which it may be worth another try."""

Answer = Reply[DirectForm] | Response


async def direct(call: Call[Nothing, SlotAsked]) -> Reply[DirectForm] | Response:
    """Run a command at the next free place. Or what a template says; the answer is the result.

    Answered when it has ended, with 200 however it ended, and with the end of what it wrote. When the connection closes
    it is cancelled. 503 `wait-over` says that its turn did not come in time, and that nothing of it ran.
    """
    if call.body.command is None and call.body.template is None:
        raise InvalidInput(
            "a direct execution needs a command or a template; to do the work yourself reserve with POST /api/slots"
        ).under(".command")
    return await _run(call, call.body)


async def run_by_route(call: Call[Nothing, dict[str, Any] | None]) -> Reply[DirectForm] | Response:
    """Run what `[direct.routes]` says: the body has the params of the template that the path stands for."""
    path, name = f"/{call.path['route']}", call.path["template"]
    try:
        with within("", instead_of=".params"):  # they are the body; all else is the template's
            return await _run(call, SlotAsked(template=name, params=call.body or {}))
    except (NotFound, Conflict) as refused:
        refused.args = (f"{path} runs the template {name}: {refused.message}",)
        raise


class _ByRoute(Endpoint):
    """Its template is that of the moment when the path was found: what is configured may change while a body comes."""

    def path_of(self, values: Sequence[str]) -> dict[str, str]:
        route, template = values
        return {"route": route, "template": template}

    @property
    def names(self) -> None:
        """What its path stands for is not the request's to say, but the configuration's."""


_BY_ROUTE = {"POST": _ByRoute("POST", "/{route:path}", run_by_route, is_keyed=True)}


def find_route(context: Context, path: str) -> Found | None:
    """The paths of `[direct.routes]`, as they are at this moment."""
    if not is_route(path):
        return None
    context.control.look_at_config()
    template = context.control.config.routes.get(path)
    return None if template is None else Found(_BY_ROUTE, (path.removeprefix("/"), template))


async def _run(call: Call[Any, Any], asked: SlotAsked) -> Answer:
    context = call.context
    while True:
        begun = await _begin(call, asked)
        if isinstance(begun, Told):
            return Reply.repeated(begun)
        form = await _ended(call, begun.slot)
        if form is None:
            return Response(status_code=NOBODY)
        if form.reason != GONE or form.started_at is not None:
            break
        # It was about to be withdrawn, for its client of before had gone; this one is there, and nothing of it ran.
    if form.finished_at is None:
        with_key = "send this again with its key" if call.key else f"POST /api/slots/{form.id}/renew"
        raise Unavailable(
            f"the scheduler is stopping; {form.id} goes on when it is back, if you say within 30 s of that that you are"
            f" there: {with_key}"
        )
    if form.exit_code == WaitOver.exit_code and form.started_at is None:
        return _wait_over(form)
    directory = context.home.slots / str(begun.slot)
    return await _told(call, await asyncio.to_thread(_result, form, directory, begun.warnings))


async def _begin(call: Call[Any, Any], asked: SlotAsked) -> Reserved | Told:
    context, key = call.context, call.key
    if key is None:
        prepared = await prepare(context, asked, is_attended=True)
        reserved = await context.perform(prepared.act)
        context.presence.expect(reserved.slot, prepared.wait)
        return reserved
    prepared = await _prepare_if_possible(context, asked)
    once = Once(key=key.key, digest=key.digest, tell=_note)
    begun = await context.perform_once(once, partial(_reserve_once, key=key, reserve=prepared.act), as_it_is)
    if isinstance(begun, Told):
        return begun
    reserved, is_new = begun
    if is_new:
        context.presence.expect(reserved.slot, prepared.wait)
    return reserved


async def _prepare_if_possible(context: Context, asked: SlotAsked) -> Prepared:
    """What could not be reserved now may have been before: then it is not refused."""

    def refuse(_work: Work, error: RotaError) -> Reserved:
        raise error

    try:
        return await prepare(context, asked, is_attended=True)
    except RotaError as error:
        return Prepared(partial(refuse, error=error), None)


def _reserve_once(work: Work, key: Key, reserve: Callable[[Work], Reserved]) -> tuple[Reserved, bool]:
    """A place, and whether it is a new one. One that ended before its turn came is nobody's: nothing of it ran."""
    noted = noted_before(work.session, *key)
    if noted is None:
        return reserve(work), True
    before = Reserved(slot=noted.slot, warnings=noted.warnings)
    found = work.session.slot(before.slot)
    if found is None:
        raise Conflict(
            f"this came with its Idempotency-Key before, as {show_slot(before.slot)}, of which nothing is stored any"
            " more: it may have run; if it is to run again, send it with a new key"
        )
    if found.finished_at is not None and found.started_at is None:
        work.session.remove_answers([key.key])
        return reserve(work), True
    come_back(work, before.slot)
    return before, False


def _note(begun: tuple[Reserved, bool]) -> Told | None:
    reserved, is_new = begun
    return note(Note(slot=reserved.slot, warnings=reserved.warnings)) if is_new else None


async def _ended(call: Call[Any, Any], slot: SlotId) -> SlotForm | None:
    """The slot when it has ended or the scheduler ends; none when the client has gone."""
    context, hold = call.context, Hold()
    with context.presence.attending(slot, hold):
        form = await while_there(call.request, until_ended(context, slot, math.inf))
        hold.is_over = form is not None and form.finished_at is not None
    return form


def _wait_over(form: SlotForm) -> Response:
    text = f"{form.id}: {form.reason}; nothing of it ran"
    return problem(WaitOver.code, WaitOver.http_status, text, headers={"Retry-After": str(RETRY_AFTER)})


async def _told(call: Call[Any, Any], form: DirectForm) -> Reply[Any]:
    """What is told is kept for the key. Where that cannot be, who asks again is told what the slot came to."""
    told = Reply(form).told()
    if call.key is not None:
        try:
            await call.context.perform(partial(settle, key=call.key.key, digest=call.key.digest, told=told))
        except RotaError as error:
            log.warning("the answer to %s could not be kept: %s", form.slot.id, error.message)
    return Reply(msgspec.Raw(told.body))


def _result(form: SlotForm, directory: Path, warnings: list[str]) -> DirectForm:
    """What is not UTF-8 is replaced here; the files have it as it was written."""
    sizes = {name: size_of(path_in(directory, name)) for name in STREAMS}
    ends = {
        name: b"".join(pieces(path_in(directory, name), max(0, size - MOST), MOST)).decode("utf-8", "replace")
        for name, size in sizes.items()
    }
    return DirectForm(
        slot=form,
        stdout=ends["stdout"],
        stderr=ends["stderr"],
        truncated=CutForm(stdout=sizes["stdout"] > MOST, stderr=sizes["stderr"] > MOST),
        warning="; ".join(warnings) or None,
    )


_SHOWN = {
    "slot": {
        **SLOT, "status": "COMPLETED", "ready": False, "command": ["echo", "hi"], "attended": True, "exit_code": 0,
        "finished_at": "2026-11-16T08:20:04.110325Z", "pid": 4711,
        "log_paths": {"stdout": "/srv/web/.rota/slots/5/stdout.log", "stderr": "/srv/web/.rota/slots/5/stderr.log"},
    },
    "stdout": "hi\n",
    "stderr": "",
    "truncated": {"stdout": False, "stderr": False},
    "warning": None,
}  # fmt: skip

ENDPOINTS = [
    Endpoint(
        "POST", "/api/direct", direct, is_keyed=True, refuses=(404, 409, WaitOver), sends={"command": ["echo", "hi"]},
        shows=_SHOWN,
    ),
]  # fmt: skip
