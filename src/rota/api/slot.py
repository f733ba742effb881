"""Slots over HTTP: a place is reserved, its client learns of its turn, renews, releases; or streams what runs in it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from rota.api.attendance import MEDIA, attended, look, look_patiently, watched
from rota.api.context import Context
from rota.api.endpoint import Call, Endpoint, Nothing, Reply
from rota.api.once import carry_out
from rota.api.page import LONGEST_WAIT, PageSize, Seconds, begins_at, parsed
from rota.api.problem import NOBODY
from rota.api.reserve import SlotAsked, prepare
from rota.api.sse import until_gone
from rota.command import slot as command
from rota.command.slot import Reserved
from rota.core.slot import SlotState
from rota.duration import parse_duration
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput
from rota.ids import SlotId, parse_slot, show_slot
from rota.view import slot as view
from rota.wire.slot import ReservedForm, SlotForm, SlotsForm
from rota.wire.text import SlotText, Span

Offset = Annotated[int, Meta(ge=0, le=2**62)]
_SIGNAL = f"^(SIG)?({'|'.join(sorted(each.name.removeprefix('SIG') for each in command.PASSED_ON))})$"


class ReserveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: bool = False
    """Have the slot's stream as the answer: then it hangs on this connection from its first moment. Not with a key."""


async def reserve_slot(call: Call[ReserveQuery, SlotAsked]) -> Reply[ReservedForm] | Response:
    """Reserve a place, for a command that Rota runs or for work of your own. You have it while the slot is `ready`.
    Look at it with `wait`, or renew it, once in a while: after `[direct] lease` without a word it is withdrawn.

    With `stream=1` the answer is a stream of lines of JSON; one with a `size` is followed by that many bytes of output.
    The slot is withdrawn when the connection closes.
    """
    context, is_attended = call.context, call.query.stream
    if is_attended and call.key is not None:
        said = "a stream cannot be answered twice; leave out the Idempotency-Key, or `stream`"
        raise InvalidInput(said).under(".stream")
    prepared = await prepare(context, call.body, is_attended=is_attended)
    if is_attended:
        reserved = await context.perform(prepared.act)
        context.presence.expect(reserved.slot, prepared.wait)
        return attended(context, reserved.slot, warning="; ".join(reserved.warnings) or None)
    done = await carry_out(call, prepared.act, partial(_see, context), _tell)
    for form in done.seen:
        context.presence.expect(parse_slot(form.id), prepared.wait)
    if not done.seen:
        await _hear_again(context, done.reply)
    return done.reply


def _see(context: Context, work: Work, results: Sequence[Reserved]) -> list[ReservedForm]:
    forms = _see_slots(context, work, [told.slot for told in results])
    return [
        ReservedForm(**msgspec.structs.asdict(form), warning="; ".join(told.warnings) or None)
        for form, told in zip(forms, results, strict=True)
    ]


def _tell(form: ReservedForm) -> Reply[ReservedForm]:
    return Reply(form, 201)


class _Kept(msgspec.Struct):
    """All that is asked of an answer of before: another version may have given it."""

    id: str


async def _hear_again(context: Context, reply: Reply[Any]) -> None:
    """Who asks again for what he has is there."""
    slot = parse_slot(msgspec.json.decode(reply.form, type=_Kept).id)
    found = await context.look(lambda reader: reader.slot(slot))
    if found is not None and found.finished_at is None:
        context.presence.hear(slot)


class SlotsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: SlotText | None = None
    """The `next` of the page before."""


async def list_slots(call: Call[SlotsQuery, None]) -> Reply[SlotsForm]:
    """List the slots that wait or run, in order of arrival."""
    context, behind = call.context, begins_at(call.query.cursor, parse_slot, 0)
    look = partial(view.listing, sight=context.sight(), behind=behind, limit=call.query.limit)
    slots, following = await context.look(look)
    return Reply(SlotsForm(slots=slots, next=following))


class SlotQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: Seconds | None = None
    """Answer when it has ended, or when so many seconds are over. Meanwhile its client is there."""
    seen: str | None = None
    """With `wait`, answer as soon as the status is another than this."""


async def get_slot(call: Call[SlotQuery, None]) -> Reply[SlotForm] | Response:
    """Show a slot, with why it waits."""
    context, slot, query = call.context, call.place("slot", parse_slot), call.query
    form = await look(context, slot)
    if query.wait is None or form.finished_at is not None:
        return Reply(form)
    with nullcontext() if form.attended else context.presence.polling(slot):
        news = await while_there(call.request, until_ended(context, slot, query.wait, query.seen))
    return Response(status_code=NOBODY) if news is None else Reply(news)


async def until_ended(context: Context, slot: SlotId, seconds: float, seen: str | None = None) -> SlotForm:
    def is_enough(form: SlotForm) -> bool:
        return form.finished_at is not None or (seen is not None and form.status != seen)

    return await context.hub.until(("slot", slot), seconds, partial(look_patiently, context, slot), is_enough)


async def while_there(request: Request, answering: Coroutine[Any, Any, SlotForm]) -> SlotForm | None:
    """What is waited for; none when the client has gone meanwhile."""
    waited, left = asyncio.ensure_future(answering), asyncio.ensure_future(until_gone(request.receive))
    try:
        await asyncio.wait([waited, left], return_when=asyncio.FIRST_COMPLETED)
        return await waited if waited.done() else None
    finally:
        waited.cancel()
        left.cancel()


async def renew_slot(call: Call[Nothing, None]) -> Reply[SlotForm]:
    """Say that its client is still there. Who has lost his place is told so (409)."""
    context, slot = call.context, call.place("slot", parse_slot)

    def renew(work: Work) -> SlotId:
        found = work.session.slot(slot)
        if found is not None and found.finished_at is not None:
            why = f": {found.reason}" if found.reason else ""
            raise Conflict(f"{show_slot(slot)} has ended ({found.shown}{why}); reserve anew")
        return command.come_back(work, slot)

    form = await context.perform_and_see(renew, partial(_see_slots, context))
    context.presence.hear(slot)
    return Reply(form)


def _see_slots(context: Context, work: Work, slots: Sequence[SlotId]) -> list[SlotForm]:
    sight = context.sight()
    return [view.show(work.session, slot, sight) for slot in slots]


async def release_slot(call: Call[Nothing, None]) -> Reply[SlotForm]:
    """Give a place back: the work in it is done. One that runs a command is free when that has ended (409)."""
    return await _released(call)


async def delete_slot(call: Call[Nothing, None]) -> Reply[SlotForm]:
    """Give a place back, as `POST …/release` does."""
    return await _released(call)


async def _released(call: Call[Nothing, None]) -> Reply[SlotForm]:
    context, slot = call.context, call.place("slot", parse_slot)
    await context.perform(partial(command.release, slot=slot, actor=context.actor))
    context.presence.forget(slot)
    return Reply(await look(context, slot))


async def cancel_slot(call: Call[Nothing, None]) -> Reply[SlotForm]:
    """Cancel a direct execution. Answered when its processes are gone; a tree that needs SIGKILL takes a while."""
    context, slot = call.context, call.place("slot", parse_slot)

    def cancel(work: Work) -> SlotId:
        found = work.session.slot(slot)
        if found is not None and found.state is SlotState.ENDED and found.shown != "CANCELLED":
            raise Conflict(f"{show_slot(slot)} has already ended ({found.shown}); nothing was changed")
        return command.withdraw(work, slot, reason=f"cancelled by {context.actor}", actor=context.actor)

    await context.perform(cancel)
    return Reply(await until_ended(context, slot, LONGEST_WAIT))


class SignalWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signal to send."""

    signal: Annotated[str, Meta(extra_json_schema={"pattern": _SIGNAL})]
    """HUP, INT, QUIT, TERM, USR1, USR2, CONT or WINCH."""


async def signal_slot(call: Call[Nothing, SignalWanted]) -> Reply[SlotForm]:
    """Send the command that runs in it a signal."""
    context, slot = call.context, call.place("slot", parse_slot)
    named = call.body.signal.upper().removeprefix("SIG")
    try:
        which = signal.Signals[f"SIG{named}"]
    except KeyError:
        raise InvalidInput(f"there is no signal {named!r}; name one as HUP or SIGHUP").under(".signal") from None
    await context.perform(partial(command.pass_on, slot=slot, number=which))
    return Reply(await look(context, slot))


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stdout: Offset = 0
    """From this byte of stdout on."""
    stderr: Offset = 0
    """From this byte of stderr on."""
    attend: bool = False
    """Whether it is the client that comes back: then the slot hangs on this connection, if it hung on one before."""
    wait: Span | None = None
    """With `attend`, how long its turn is still waited for."""


async def stream_slot(call: Call[StreamQuery, None]) -> Response:
    """Stream what a slot comes to and what it writes, as it happens. Who comes back with the offsets he has misses
    nothing and gets nothing twice. Whoever looks on without `attend` keeps nothing alive, and ends nothing."""
    context, slot, query = call.context, call.place("slot", parse_slot), call.query
    offsets = {"stdout": query.stdout, "stderr": query.stderr}
    form = await look(context, slot)
    wait = parsed("wait", query.wait, parse_duration)
    if query.attend:
        await context.perform(partial(command.come_back, slot=slot))
    if query.attend and wait is not None and form.finished_at is None:
        context.presence.expect(slot, wait)
    if form.attended and query.attend:
        return attended(context, slot, offsets)
    return watched(context, slot, offsets, keeps=query.attend)


SLOT: dict[str, Any] = {
    "id": "slot-5",
    "status": "RUNNING",
    "ready": True,
    "name": "mine",
    "command": None,
    "type": "story",
    "flow": None,
    "target": None,
    "locks": [],
    "pools": {"global": 1},
    "attended": False,
    "actor": "rota",
    "created_at": "2026-11-16T08:20:04.101325Z",
    "started_at": "2026-11-16T08:20:04.103877Z",
    "finished_at": None,
    "exit_code": None,
    "reason": None,
    "pid": None,
    "worker": "local/1",
    "wait": None,
    "why": None,
    "log_paths": {},
}
_ENDED = {**SLOT, "ready": False, "finished_at": "2026-11-16T08:21:33.763984Z"}
_DONE = {**_ENDED, "status": "COMPLETED", "exit_code": 0}
_CANCELLED = {**_ENDED, "status": "CANCELLED", "exit_code": 143, "reason": "cancelled by rota"}

ENDPOINTS = [
    Endpoint(
        "POST", "/api/slots", reserve_slot, statuses=(201, 200), is_keyed=True, media=MEDIA, refuses=(404, 409),
        sends={"name": "mine", "type": "story"}, shows={**SLOT, "warning": None},
    ),
    Endpoint("GET", "/api/slots", list_slots, shows={"slots": [SLOT], "next": None}),
    Endpoint("GET", "/api/slots/{slot}", get_slot, shows=SLOT),
    Endpoint("DELETE", "/api/slots/{slot}", delete_slot, refuses=(409,), shows=_DONE),
    Endpoint("POST", "/api/slots/{slot}/renew", renew_slot, refuses=(409,), shows=SLOT),
    Endpoint("POST", "/api/slots/{slot}/release", release_slot, refuses=(409,), shows=_DONE),
    Endpoint("POST", "/api/slots/{slot}/cancel", cancel_slot, refuses=(409,), shows=_CANCELLED),
    Endpoint(
        "POST", "/api/slots/{slot}/signal", signal_slot, refuses=(409,), sends={"signal": "HUP"},
        shows={**SLOT, "command": ["./serve.sh"], "pid": 4711},
    ),
    Endpoint("GET", "/api/slots/{slot}/stream", stream_slot, media=MEDIA),
]  # fmt: skip
