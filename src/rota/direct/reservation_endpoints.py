"""Reservations over HTTP. A client reserves a place, waits for the start, and renews or releases the reservation, or
streams the output of the command that runs in it."""

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

from rota.direct import commands, queries
from rota.direct.commands import DirectExecutionRequest, PreparedReservation, ReserveOutcome
from rota.direct.schemas import ReservationPage, ReservationView, ReserveResult
from rota.direct.stream import read_reservation, read_reservation_with_retry, stream_to_client, stream_to_observer
from rota.duration import parse_duration
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput
from rota.http.context import Context
from rota.http.endpoint import (
    RESERVATION_STREAM,
    Endpoint,
    Invocation,
    JsonReply,
    NoQuery,
    PageSize,
    WaitQuery,
    WaitSeconds,
    parse_cursor,
    parse_field,
)
from rota.http.idempotency import run_call
from rota.http.problem import CLIENT_CLOSED_REQUEST
from rota.http.sse import wait_for_disconnect
from rota.ids import ReservationId, format_reservation_id, parse_reservation_id
from rota.kernel.reservations import ReservationState
from rota.schema_types import DurationText, ReservationIdText

OutputOffset = Annotated[int, Meta(ge=0, le=2**62)]
_SIGNAL_NAMES = sorted(number.name.removeprefix("SIG") for number in commands.FORWARDED_SIGNALS)
_SIGNAL_PATTERN = f"^(SIG)?({'|'.join(_SIGNAL_NAMES)})$"


async def prepare_reservation(
    context: Context, request: DirectExecutionRequest, *, has_client: bool
) -> PreparedReservation:
    context.control.check_config()  # a change of the file applies to every later request
    await context.control.check_hold_file()
    return await commands.prepare_reservation(
        request,
        read=context.read,
        default_environment=context.default_environment,
        actor=context.actor,
        has_client=has_client,
    )


class ReserveQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: bool = False
    """Respond with a stream. The reservation then depends on this connection. Not allowed with an idempotency key."""


async def create_reservation(
    call: Invocation[ReserveQuery, DirectExecutionRequest],
) -> JsonReply[ReserveResult] | Response:
    """Reserve a place ahead of the queue. Rota runs a command there, or the client does its own work while the
    reservation is `ready`. The client of such a reservation reads it with `wait` or renews it regularly. If it is
    silent for the time `[direct] lease`, the reservation is withdrawn.

    With `stream=1`, the response is a stream of JSON lines. A line with a `size` is followed by that many bytes of
    output. The reservation is withdrawn when the connection closes.
    """
    context, is_stream = call.context, call.query.stream
    if is_stream and call.key is not None:
        message = "a stream cannot be replayed; leave out the Idempotency-Key, or `stream`"
        raise InvalidInput(message).at_path(".stream")
    prepared = await prepare_reservation(context, call.body, has_client=is_stream)
    if is_stream:
        reserved = await context.run_in_turn(prepared.operation)
        context.leases.start_wait(reserved.reservation, prepared.wait)
        return stream_to_client(context, reserved.reservation, warning="; ".join(reserved.warnings) or None)
    result = await run_call(call, prepared.operation, partial(_render_reserved, context), _created_reply)
    for reservation in result.rendered:
        context.leases.start_wait(parse_reservation_id(reservation.id), prepared.wait)
    if not result.rendered:
        await _renew_lease(context, result.reply)
    return result.reply


def _render_reserved(context: Context, tx: Transaction, results: Sequence[ReserveOutcome]) -> list[ReserveResult]:
    reservations = _render_reservations(context, tx, [outcome.reservation for outcome in results])
    return [
        ReserveResult(**msgspec.structs.asdict(reservation), warning="; ".join(outcome.warnings) or None)
        for reservation, outcome in zip(reservations, results, strict=True)
    ]


def _created_reply(reservation: ReserveResult) -> JsonReply[ReserveResult]:
    return JsonReply(reservation, 201)


class _StoredId(msgspec.Struct):
    """Part of a stored response that is read. Another version of Rota may have written it."""

    id: str


async def _renew_lease(context: Context, reply: JsonReply[Any]) -> None:
    """Renew the lease, because a client that repeats its request is present."""
    reservation = parse_reservation_id(msgspec.json.decode(reply.body, type=_StoredId).id)
    record = await context.read(lambda reader: reader.reservations.find(reservation))
    if record is not None and record.finished_at is None:
        context.leases.renew(reservation)


class ReservationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: PageSize = 100
    cursor: ReservationIdText | None = None
    """Cursor of the page: the `next` of the previous page."""


async def list_reservations(call: Invocation[ReservationsQuery, None]) -> JsonReply[ReservationPage]:
    """List waiting and running reservations, in order of arrival."""
    context, after = call.context, parse_cursor(call.query.cursor, parse_reservation_id, 0)
    read_page = partial(queries.list_reservations, context=context.view_context(), after=after, limit=call.query.limit)
    reservations, next_cursor = await context.read(read_page)
    return JsonReply(ReservationPage(reservations=reservations, next=next_cursor))


class ReservationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds | None = None
    """Maximum seconds to wait until the reservation has ended. The wait counts as a sign of the client."""
    last_seen: str | None = None
    """With `wait`, the last known status. A different status ends the wait."""


async def get_reservation(call: Invocation[ReservationQuery, None]) -> JsonReply[ReservationView] | Response:
    """Show a reservation, and why it waits."""
    context, reservation, query = call.context, call.path_parameter("reservation", parse_reservation_id), call.query
    current = await read_reservation(context, reservation)
    if query.wait is None or current.finished_at is not None:
        return JsonReply(current)
    with nullcontext() if current.has_client else context.leases.hold_poll(reservation):
        changed = await wait_while_connected(
            call.request, wait_until_ended(context, reservation, query.wait, query.last_seen)
        )
    return Response(status_code=CLIENT_CLOSED_REQUEST) if changed is None else JsonReply(changed)


async def wait_until_ended(
    context: Context, reservation: ReservationId, seconds: float, last_seen: str | None = None
) -> ReservationView:
    def is_done(current: ReservationView) -> bool:
        return current.finished_at is not None or (last_seen is not None and current.status != last_seen)

    return await context.hub.wait_until(
        ("reservation", reservation), seconds, partial(read_reservation_with_retry, context, reservation), is_done
    )


async def wait_while_connected(
    request: Request, waiting: Coroutine[Any, Any, ReservationView]
) -> ReservationView | None:
    """Return the result of `waiting`, or None if the client disconnects first."""
    wait_task = asyncio.ensure_future(waiting)
    disconnect_task = asyncio.ensure_future(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait([wait_task, disconnect_task], return_when=asyncio.FIRST_COMPLETED)
        return await wait_task if wait_task.done() else None
    finally:
        wait_task.cancel()
        disconnect_task.cancel()


async def renew_reservation(call: Invocation[NoQuery, None]) -> JsonReply[ReservationView]:
    """Renew the lease of a reservation. A reservation that has ended is refused (409)."""
    context, reservation = call.context, call.path_parameter("reservation", parse_reservation_id)

    def renew(tx: Transaction) -> ReservationId:
        record = tx.reservations.find(reservation)
        if record is not None and record.finished_at is not None:
            reason = f": {record.reason}" if record.reason else ""
            raise Conflict(
                f"{format_reservation_id(reservation)} has ended ({record.display_status}{reason}); reserve again"
            )
        return commands.reattach_client(tx, reservation)

    renewed = await context.run_and_render(renew, partial(_render_reservations, context))
    context.leases.renew(reservation)
    return JsonReply(renewed)


def _render_reservations(
    context: Context, tx: Transaction, reservations: Sequence[ReservationId]
) -> list[ReservationView]:
    view_context = context.view_context()
    return [queries.show(tx, reservation, view_context) for reservation in reservations]


async def release_reservation(call: Invocation[NoQuery, None]) -> JsonReply[ReservationView]:
    """Release a reservation because its work is done. A reservation that runs a command ends with the command (409)."""
    return await _release(call)


async def delete_reservation(call: Invocation[NoQuery, None]) -> JsonReply[ReservationView]:
    """Release a reservation, as `POST …/release` does."""
    return await _release(call)


async def _release(call: Invocation[NoQuery, None]) -> JsonReply[ReservationView]:
    context, reservation = call.context, call.path_parameter("reservation", parse_reservation_id)
    await context.run_in_turn(partial(commands.release, reservation=reservation, actor=context.actor))
    context.leases.forget(reservation)
    return JsonReply(await read_reservation(context, reservation))


async def cancel_reservation(call: Invocation[WaitQuery, None]) -> JsonReply[ReservationView]:
    """Cancel a direct execution. The response is sent when its processes are gone. A process tree that needs SIGKILL
    takes longer."""
    context, reservation = call.context, call.path_parameter("reservation", parse_reservation_id)

    def cancel(tx: Transaction) -> ReservationId:
        record = tx.reservations.find(reservation)
        if record is not None and record.state is ReservationState.ENDED and record.display_status != "CANCELLED":
            raise Conflict(
                f"{format_reservation_id(reservation)} has already ended ({record.display_status}); nothing was changed"
            )
        return commands.withdraw(tx, reservation, reason=f"cancelled by {context.actor}", actor=context.actor)

    await context.run_in_turn(cancel)
    return JsonReply(await wait_until_ended(context, reservation, call.query.wait))


class SignalRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signal to send."""

    signal: Annotated[str, Meta(extra_json_schema={"pattern": _SIGNAL_PATTERN})]
    """Name of the signal: HUP, INT, QUIT, TERM, USR1, USR2, CONT or WINCH."""


async def signal_reservation(call: Invocation[NoQuery, SignalRequest]) -> JsonReply[ReservationView]:
    """Send a signal to the command of a reservation."""
    context, reservation = call.context, call.path_parameter("reservation", parse_reservation_id)
    name = call.body.signal.upper().removeprefix("SIG")
    try:
        number = signal.Signals[f"SIG{name}"]
    except KeyError:
        message = f"unknown signal {name!r}; the signals are {', '.join(_SIGNAL_NAMES)}"
        raise InvalidInput(message).at_path(".signal") from None
    await context.run_in_turn(partial(commands.forward_signal, reservation=reservation, number=number))
    return JsonReply(await read_reservation(context, reservation))


class ReservationStreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stdout: OutputOffset = 0
    """Offset of the first byte of stdout."""
    stderr: OutputOffset = 0
    """Offset of the first byte of stderr."""
    attach: bool = False
    """Whether this is the client of the reservation. A reservation that depended on a connection before then depends on
    this one."""
    wait: DurationText | None = None
    """With `attach`, how long the reservation may still wait to start."""


async def stream_reservation(call: Invocation[ReservationStreamQuery, None]) -> Response:
    """Stream the state and the output of a reservation. A client that reconnects with its offsets misses nothing and
    gets nothing twice. Without `attach`, the stream neither keeps the reservation nor ends it."""
    context, reservation, query = call.context, call.path_parameter("reservation", parse_reservation_id), call.query
    offsets = {"stdout": query.stdout, "stderr": query.stderr}
    current = await read_reservation(context, reservation)
    wait = parse_field("wait", query.wait, parse_duration)
    if query.attach:
        await context.run_in_turn(partial(commands.reattach_client, reservation=reservation))
    if query.attach and wait is not None and current.finished_at is None:
        context.leases.start_wait(reservation, wait)
    if current.has_client and query.attach:
        return stream_to_client(context, reservation, offsets)
    return stream_to_observer(context, reservation, offsets, renews_lease=query.attach)


RESERVATION: dict[str, Any] = {
    "id": "reservation-5",
    "status": "RUNNING",
    "ready": True,
    "name": "mine",
    "command": None,
    "type": "story",
    "flow": None,
    "target": None,
    "locks": [],
    "pools": {"global": 1},
    "has_client": False,
    "actor": "rota",
    "created_at": "2026-11-16T08:20:04.101325Z",
    "started_at": "2026-11-16T08:20:04.103877Z",
    "finished_at": None,
    "exit_code": None,
    "reason": None,
    "pid": None,
    "worker": "local/1",
    "wait": None,
    "explanation": None,
    "log_paths": {},
}
_ENDED_EXAMPLE = {**RESERVATION, "ready": False, "finished_at": "2026-11-16T08:21:33.763984Z"}
_DONE_EXAMPLE = {**_ENDED_EXAMPLE, "status": "COMPLETED", "exit_code": 0}
_CANCELLED_EXAMPLE = {**_ENDED_EXAMPLE, "status": "CANCELLED", "exit_code": 143, "reason": "cancelled by rota"}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/reservations",
        create_reservation,
        statuses=(201, 200),
        accepts_key=True,
        media=RESERVATION_STREAM,
        errors=(404, 409),
        request_example={"name": "mine", "type": "story"},
        response_example={**RESERVATION, "warning": None},
    ),
    Endpoint(
        "GET", "/api/reservations", list_reservations, response_example={"reservations": [RESERVATION], "next": None}
    ),
    Endpoint("GET", "/api/reservations/{reservation}", get_reservation, response_example=RESERVATION),
    Endpoint(
        "DELETE", "/api/reservations/{reservation}", delete_reservation, errors=(409,), response_example=_DONE_EXAMPLE
    ),
    Endpoint(
        "POST", "/api/reservations/{reservation}/renew", renew_reservation, errors=(409,), response_example=RESERVATION
    ),
    Endpoint(
        "POST",
        "/api/reservations/{reservation}/release",
        release_reservation,
        errors=(409,),
        response_example=_DONE_EXAMPLE,
    ),
    Endpoint(
        "POST",
        "/api/reservations/{reservation}/cancel",
        cancel_reservation,
        errors=(409,),
        response_example=_CANCELLED_EXAMPLE,
    ),
    Endpoint(
        "POST",
        "/api/reservations/{reservation}/signal",
        signal_reservation,
        errors=(409,),
        request_example={"signal": "HUP"},
        response_example={**RESERVATION, "command": ["./serve.sh"], "pid": 4711},
    ),
    Endpoint("GET", "/api/reservations/{reservation}/stream", stream_reservation, media=RESERVATION_STREAM),
]
