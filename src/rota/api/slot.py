"""Slots over HTTP: a place is reserved, its client learns of its turn, renews, releases; or streams what runs in it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import nullcontext
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.api.attendance import attended, look, look_patiently, watched
from rota.api.context import Context, context_of
from rota.api.problem import answer, number, read
from rota.command import slot as command
from rota.command.slot import SlotWanted
from rota.core.slot import SlotState
from rota.duration import parse_duration
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput
from rota.ids import SlotId, parse_slot, show_slot
from rota.view import slot as view
from rota.wire.slot import SlotForm

LONGEST_POLL = 60.0
NOBODY = 499
"""For an answer that nobody is there to read."""
_MOST = 2**62


class SlotAsked(SlotWanted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted, and how long its turn is waited for."""

    wait: str | None = None

    @property
    def wanted(self) -> SlotWanted:
        return SlotWanted(**{name: getattr(self, name) for name in SlotWanted.__struct_fields__})


class SignalWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    signal: str


async def reserve(context: Context, asked: SlotAsked, *, is_attended: bool) -> command.Reserved:
    """From here on somebody has to be there for it."""
    wait = None if asked.wait is None else parse_duration(asked.wait)
    context.control.look_at_config()  # what was just written holds for what is asked after it
    await context.control.look_at_hold_file()
    wanted = asked.wanted
    if wanted.template is not None:
        wanted = await context.look(partial(command.expand_slot, wanted=wanted))
    act = partial(command.reserve, wanted=wanted, around=context.around, actor=context.actor, is_attended=is_attended)
    reserved = await context.perform(act)
    context.presence.expect(reserved.slot, wait)
    return reserved


async def reserve_slot(request: Request) -> Response:
    """With `stream=1` the answer is the stream, and the slot hangs on this connection from the first moment."""
    context = context_of(request)
    asked = await read(request, SlotAsked)
    is_attended = request.query_params.get("stream") == "1"
    reserved = await reserve(context, asked, is_attended=is_attended)
    warning = "; ".join(reserved.warnings) or None
    if is_attended:
        return attended(context, reserved.slot, warning=warning)
    form = await look(context, reserved.slot)
    return answer({**msgspec.to_builtins(form), "warning": warning}, 201)


async def list_slots(request: Request) -> Response:
    context = context_of(request)
    return answer({"slots": await context.look(partial(view.listing, sight=context.sight()))})


async def get_slot(request: Request) -> Response:
    """With `wait`, when it has ended or (with `seen`) when its status is another; meanwhile its client is there."""
    context, slot = context_of(request), parse_slot(request.path_params["slot"])
    form = await look(context, slot)
    if "wait" not in request.query_params or form.finished_at is not None:
        return answer(form)
    seconds = number(request, "wait", 0, least=0, most=LONGEST_POLL)
    with nullcontext() if form.attended else context.presence.polling(slot):
        news = await while_there(request, until_ended(context, slot, seconds, request.query_params.get("seen")))
    return Response(status_code=NOBODY) if news is None else answer(news)


async def until_ended(context: Context, slot: SlotId, seconds: float, seen: str | None = None) -> SlotForm:
    def is_enough(form: SlotForm) -> bool:
        return form.finished_at is not None or (seen is not None and form.status != seen)

    return await context.hub.until(("slot", slot), seconds, partial(look_patiently, context, slot), is_enough)


async def while_there(request: Request, answering: Coroutine[Any, Any, SlotForm]) -> SlotForm | None:
    """What is waited for; none when the client has gone meanwhile."""
    waited, left = asyncio.ensure_future(answering), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([waited, left], return_when=asyncio.FIRST_COMPLETED)
        return await waited if waited.done() else None
    finally:
        waited.cancel()
        left.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def renew_slot(request: Request) -> Response:
    """A word of a client that has no connection open. Who has lost his place is told so."""
    context, slot = context_of(request), parse_slot(request.path_params["slot"])
    form = await look(context, slot)
    if form.finished_at is not None:
        raise Conflict(f"{form.id} has ended ({form.status}{': ' + form.reason if form.reason else ''}); reserve anew")
    await context.perform(partial(command.come_back, slot=slot))
    context.presence.hear(slot)
    return answer(form)


async def release_slot(request: Request) -> Response:
    context, slot = context_of(request), parse_slot(request.path_params["slot"])
    await context.perform(partial(command.release, slot=slot, actor=context.actor))
    context.presence.forget(slot)
    return answer(await look(context, slot))


async def cancel_slot(request: Request) -> Response:
    """Answers when it is gone; a tree that needs SIGKILL takes a while."""
    context, slot = context_of(request), parse_slot(request.path_params["slot"])

    def cancel(work: Work) -> SlotId:
        found = work.session.slot(slot)
        if found is not None and found.state is SlotState.ENDED and found.shown != "CANCELLED":
            raise Conflict(f"{show_slot(slot)} has already ended ({found.shown}); nothing was changed")
        return command.withdraw(work, slot, reason=f"cancelled by {context.actor}", actor=context.actor)

    await context.perform(cancel)
    return answer(await until_ended(context, slot, LONGEST_POLL))


async def signal_slot(request: Request) -> Response:
    context, slot = context_of(request), parse_slot(request.path_params["slot"])
    named = (await read(request, SignalWanted)).signal.upper().removeprefix("SIG")
    try:
        which = signal.Signals[f"SIG{named}"]
    except KeyError:
        raise InvalidInput(f"there is no signal {named!r}; name one as HUP or SIGHUP") from None
    if not context.control.passes_signals:
        raise Conflict(
            f"SIG{named} is not passed on: the running supervisor is of an older version of Rota, which does not know "
            "how; it leaves when nothing runs and the scheduler is stopped"
        )
    await context.perform(partial(command.pass_on, slot=slot, number=which))
    return answer(await look(context, slot))


async def stream_slot(request: Request) -> Response:
    """From these offsets on: who comes back has no gap and no repeat. With `attend=1` it is the client, and the slot
    hangs on this connection if it hung on one before; whoever else looks keeps nothing alive, and ends nothing."""
    context, slot = context_of(request), parse_slot(request.path_params["slot"])
    offsets = {name: int(number(request, name, 0, least=0, most=_MOST)) for name in ("stdout", "stderr")}
    form = await look(context, slot)
    is_client = request.query_params.get("attend") == "1"
    if is_client:
        await context.perform(partial(command.come_back, slot=slot))
    if is_client and "wait" in request.query_params and form.finished_at is None:
        context.presence.expect(slot, parse_duration(request.query_params["wait"]))
    if form.attended and is_client:
        return attended(context, slot, offsets)
    return watched(context, slot, offsets, keeps=is_client)


ROUTES = [
    Route("/api/slots", reserve_slot, methods=["POST"]),
    Route("/api/slots", list_slots, methods=["GET"]),
    Route("/api/slots/{slot}", get_slot, methods=["GET"]),
    Route("/api/slots/{slot}", release_slot, methods=["DELETE"]),
    Route("/api/slots/{slot}/renew", renew_slot, methods=["POST"]),
    Route("/api/slots/{slot}/release", release_slot, methods=["POST"]),
    Route("/api/slots/{slot}/cancel", cancel_slot, methods=["POST"]),
    Route("/api/slots/{slot}/signal", signal_slot, methods=["POST"]),
    Route("/api/slots/{slot}/stream", stream_slot, methods=["GET"]),
]
