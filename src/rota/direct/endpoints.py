"""`POST /api/direct`: one request that waits to start, runs a command and responds with the result (DEC-004).

With an `Idempotency-Key`, the command runs once, however often the request is sent. The key is stored together with the
reservation. A repeated request gets:

    while the first one is open            409, request in progress
    after a restart of the scheduler       the reservation: the client has reconnected and waits for it
    after the command has run              the stored response, or the outcome of the reservation if there is none
    after it did not start in time         a new reservation, because nothing of the first one ran

A client that disconnects withdraws its reservation even if the request has a key. A repeated request then returns the
outcome.
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

from rota.config.section import is_route
from rota.direct.commands import DirectExecutionRequest, PreparedReservation, ReserveOutcome, reattach_client
from rota.direct.leases import CLIENT_GONE, ClientLease
from rota.direct.reservation_endpoints import RESERVATION, prepare_reservation, wait_until_ended, wait_while_connected
from rota.direct.schemas import DirectResult, ReservationView, Truncation
from rota.engine.idempotency import IdempotentRequest, PendingResponse, StoredResponse, encode_pending, find_pending
from rota.engine.requests import store_response
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, ReservationTimeout, RotaError, ServiceUnavailable, error_path
from rota.http.context import Context
from rota.http.endpoint import Endpoint, Invocation, JsonReply, NoQuery, RequestKey
from rota.http.idempotency import render_unchanged
from rota.http.problem import CLIENT_CLOSED_REQUEST, problem_response
from rota.http.router import RouteMatch
from rota.ids import ReservationId, format_reservation_id
from rota.jobs.logs import STREAMS, log_path_in, log_size, read_chunks

log = logging.getLogger("rota.http")

MAX_STREAM_BYTES = 64 * 1024
"""Maximum bytes of each stream in a response. They are the end of the stream, which shows the result."""
RETRY_AFTER_SECONDS = 10
"""Seconds after which a request that did not start may be repeated."""

DirectReply = JsonReply[DirectResult] | Response


async def run_direct(call: Invocation[NoQuery, DirectExecutionRequest]) -> JsonReply[DirectResult] | Response:
    """Run a command ahead of the queue, and return its result. The request has the command, or a template with it.

    The response is sent when the command has ended: 200 with any exit code, and with the end of its output. The command
    is cancelled when the connection closes. 503 `reservation-timeout` means that it did not start in time, and
    that nothing of it ran.
    """
    if call.body.command is None and call.body.template is None:
        raise InvalidInput(
            "a direct execution needs a command or a template;"
            " for work of the client itself, reserve with POST /api/reservations"
        ).at_path(".command")
    return await _run(call, call.body)


async def run_route(call: Invocation[NoQuery, dict[str, Any] | None]) -> JsonReply[DirectResult] | Response:
    """Run the template of a path in `[direct.routes]`. The body has the params of the template."""
    path, name = f"/{call.path_values['route']}", call.path_values["template"]
    try:
        with error_path("", replaced_prefix=".params"):  # the body has the params only
            return await _run(call, DirectExecutionRequest(template=name, params=call.body or {}))
    except (NotFound, Conflict) as error:
        error.args = (f"{path} runs the template {name}: {error.message}",)
        raise


class _RouteEndpoint(Endpoint):
    """Endpoint of a route. Its template is the one at the moment when the path was matched, because the configuration
    can change while the body arrives."""

    def path_values(self, values: Sequence[str]) -> dict[str, str]:
        route, template = values
        return {"route": route, "template": template}

    @property
    def subject_parameter(self) -> None:
        """None, because the configuration selects the template, not the request."""


_ROUTE_ENDPOINTS = {"POST": _RouteEndpoint("POST", "/{route:path}", run_route, accepts_key=True)}


def find_route(context: Context, path: str) -> RouteMatch | None:
    """Return the endpoint of a path in the current `[direct.routes]`."""
    if not is_route(path):
        return None
    context.control.check_config()
    template = context.control.config.routes.get(path)
    return None if template is None else RouteMatch(_ROUTE_ENDPOINTS, (path.removeprefix("/"), template))


async def _run(call: Invocation[Any, Any], request: DirectExecutionRequest) -> DirectReply:
    context = call.context
    while True:
        started = await _reserve(call, request)
        if isinstance(started, StoredResponse):
            return JsonReply.replay(started)
        reservation = await _wait_until_ended(call, started.reservation)
        if reservation is None:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if reservation.reason != CLIENT_GONE or reservation.started_at is not None:
            break
        # It was withdrawn because its previous client had disconnected. Nothing ran, so this client reserves again.
    if reservation.finished_at is None:
        advice = (
            "repeat this request with its key" if call.key else f"send POST /api/reservations/{reservation.id}/renew"
        )
        raise ServiceUnavailable(
            f"the scheduler is stopping; to continue {reservation.id} after its restart, {advice} within 30 s"
        )
    if reservation.exit_code == ReservationTimeout.exit_code and reservation.started_at is None:
        return _reservation_timeout_response(reservation)
    directory = context.home.reservations / str(started.reservation)
    return await _store_reply(call, await asyncio.to_thread(_build_result, reservation, directory, started.warnings))


async def _reserve(call: Invocation[Any, Any], request: DirectExecutionRequest) -> ReserveOutcome | StoredResponse:
    context, key = call.context, call.key
    if key is None:
        prepared = await prepare_reservation(context, request, has_client=True)
        reserved = await context.run_in_turn(prepared.operation)
        context.leases.start_wait(reserved.reservation, prepared.wait)
        return reserved
    prepared = await _prepare_if_possible(context, request)
    idempotency = IdempotentRequest(key=key.key, digest=key.digest, render=_pending_response)
    reserve = partial(_reserve_once, key=key, reserve=prepared.operation)
    started = await context.run_once(idempotency, reserve, render_unchanged)
    if isinstance(started, StoredResponse):
        return started
    reserved, is_new = started
    if is_new:
        context.leases.start_wait(reserved.reservation, prepared.wait)
    return reserved


async def _prepare_if_possible(context: Context, request: DirectExecutionRequest) -> PreparedReservation:
    """Prepare a reservation. The refusal of a request that cannot be reserved now is postponed, because an earlier
    request with its key may have been reserved."""

    def refuse(_tx: Transaction, error: RotaError) -> ReserveOutcome:
        raise error

    try:
        return await prepare_reservation(context, request, has_client=True)
    except RotaError as error:
        return PreparedReservation(partial(refuse, error=error), None)


def _reserve_once(
    tx: Transaction, key: RequestKey, reserve: Callable[[Transaction], ReserveOutcome]
) -> tuple[ReserveOutcome, bool]:
    """Return the reservation of the key, and whether it is new. One that ended before its start is replaced, because
    nothing of it ran."""
    pending = find_pending(tx, *key)
    if pending is None:
        return reserve(tx), True
    earlier = ReserveOutcome(reservation=pending.reservation, warnings=pending.warnings)
    record = tx.reservations.find(earlier.reservation)
    if record is None:
        raise Conflict(
            f"this Idempotency-Key belongs to {format_reservation_id(earlier.reservation)}, whose record is lost:"
            " the command may have run; to run it again, use a new key"
        )
    if record.finished_at is not None and record.started_at is None:
        tx.responses.remove([key.key])
        return reserve(tx), True
    reattach_client(tx, earlier.reservation)
    return earlier, False


def _pending_response(result: tuple[ReserveOutcome, bool]) -> StoredResponse | None:
    reserved, is_new = result
    return (
        encode_pending(PendingResponse(reservation=reserved.reservation, warnings=reserved.warnings))
        if is_new
        else None
    )


async def _wait_until_ended(call: Invocation[Any, Any], reservation: ReservationId) -> ReservationView | None:
    """Return the reservation when it has ended or the scheduler stops; None if the client disconnected."""
    context, lease = call.context, ClientLease()
    with context.leases.hold_connection(reservation, lease):
        current = await wait_while_connected(call.request, wait_until_ended(context, reservation, math.inf))
        lease.has_ended = current is not None and current.finished_at is not None
    return current


def _reservation_timeout_response(reservation: ReservationView) -> Response:
    return problem_response(
        ReservationTimeout.code,
        ReservationTimeout.http_status,
        f"{reservation.id}: {reservation.reason}; nothing of it ran",
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
    )


async def _store_reply(call: Invocation[Any, Any], result: DirectResult) -> JsonReply[Any]:
    """Store the reply for the key. If this fails, a repeated request gets the outcome of the reservation."""
    response = JsonReply(result).to_stored()
    if call.key is not None:
        try:
            await call.context.run_in_turn(
                partial(store_response, key=call.key.key, digest=call.key.digest, response=response)
            )
        except RotaError as error:
            log.warning("cannot store the response for %s: %s", result.reservation.id, error.message)
    return JsonReply(msgspec.Raw(response.body))


def _build_result(reservation: ReservationView, directory: Path, warnings: list[str]) -> DirectResult:
    """Build the result. Bytes that are not UTF-8 are replaced here, but not in the log files."""
    sizes = {name: log_size(log_path_in(directory, name)) for name in STREAMS}
    ends = {
        name: b"".join(
            read_chunks(log_path_in(directory, name), max(0, size - MAX_STREAM_BYTES), MAX_STREAM_BYTES)
        ).decode("utf-8", "replace")
        for name, size in sizes.items()
    }
    return DirectResult(
        reservation=reservation,
        stdout=ends["stdout"],
        stderr=ends["stderr"],
        truncated=Truncation(stdout=sizes["stdout"] > MAX_STREAM_BYTES, stderr=sizes["stderr"] > MAX_STREAM_BYTES),
        warning="; ".join(warnings) or None,
    )


_EXAMPLE = {
    "reservation": {
        **RESERVATION,
        "status": "COMPLETED",
        "ready": False,
        "command": ["echo", "hi"],
        "has_client": True,
        "exit_code": 0,
        "finished_at": "2026-11-16T08:20:04.110325Z",
        "pid": 4711,
        "log_paths": {
            "stdout": "/srv/web/.rota/reservations/5/stdout.log",
            "stderr": "/srv/web/.rota/reservations/5/stderr.log",
        },
    },
    "stdout": "hi\n",
    "stderr": "",
    "truncated": {"stdout": False, "stderr": False},
    "warning": None,
}

ENDPOINTS = [
    Endpoint(
        "POST",
        "/api/direct",
        run_direct,
        accepts_key=True,
        errors=(404, 409, ReservationTimeout),
        request_example={"command": ["echo", "hi"]},
        response_example=_EXAMPLE,
    )
]
