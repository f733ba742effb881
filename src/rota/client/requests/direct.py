"""Requests for direct executions and their reservations."""

from __future__ import annotations

from collections.abc import Mapping

from rota.client.requests import Request, build_query, quote, timeout_for
from rota.client.requests.arguments import as_command, as_idempotency_key, as_seconds
from rota.client.requests.jobs import job_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.requests import Json
    from rota.client.requests.options import Command, DirectOptions, Seconds


def run_direct(command: Command = (), *, key: str | None = None, **options: Unpack[DirectOptions]) -> Request:
    """Run a command as a direct execution, and return its result when it has ended."""
    return Request(
        "POST", "/api/direct", body=_direct_body(command, options), key=as_idempotency_key(key), timeout=None
    )


def add_reservation(command: Command = (), *, key: str | None = None, **options: Unpack[DirectOptions]) -> Request:
    """Reserve a place ahead of the queue, for a command or for work of the caller.

    The holder shows that it is still there by `wait` requests or by renewals.
    """
    return Request("POST", "/api/reservations", body=_direct_body(command, options), key=as_idempotency_key(key))


def stream_new_reservation(body: Json) -> Request:
    """Reserve a place that is tied to this connection. The response is its stream."""
    return Request("POST", "/api/reservations?stream=1", body=body, timeout=None)


def _direct_body(command: Command, options: DirectOptions) -> Json:
    return job_body({"command": as_command(command), **options} if command else options)


def stream_reservation(reservation: str, offsets: Mapping[str, int], *, wait: str | None = None) -> Request:
    """Reconnect to the stream of a reservation. `offsets` are the numbers of bytes already received."""
    query = build_query(*offsets.items(), ("attach", 1), ("wait", wait))
    return Request("GET", f"/api/reservations/{quote(reservation)}/stream{query}", timeout=None)


def list_reservations(*, limit: int | None = None, cursor: str | None = None) -> Request:
    """List waiting and running direct executions in order of arrival."""
    return Request("GET", f"/api/reservations{build_query(('limit', limit), ('cursor', cursor))}")


def get_reservation(reservation: str, *, wait: Seconds | None = None, last_seen: str | None = None) -> Request:
    """Return a direct execution.

    With `wait`, return when it has ended, when its status differs from `last_seen`, or when the time is over.
    """
    wait = as_seconds("wait", wait)
    target = f"/api/reservations/{quote(reservation)}{build_query(('wait', wait), ('last_seen', last_seen))}"
    return Request("GET", target, timeout=timeout_for(wait))


def renew_reservation(reservation: str) -> Request:
    """Renew the lease of a reservation."""
    return Request("POST", f"/api/reservations/{quote(reservation)}/renew")


def release_reservation(reservation: str) -> Request:
    """Release a reservation: its work is done."""
    return Request("POST", f"/api/reservations/{quote(reservation)}/release")


def cancel_reservation(reservation: str, *, wait: Seconds | None = None) -> Request:
    """Cancel a direct execution. Return when it has ended, or after `wait`."""
    query = build_query(("wait", as_seconds("wait", wait)))
    return Request("POST", f"/api/reservations/{quote(reservation)}/cancel{query}", timeout=None)


def signal_reservation(reservation: str, signal: str) -> Request:
    """Send a signal, such as HUP, to the command of a direct execution."""
    return Request("POST", f"/api/reservations/{quote(reservation)}/signal", body={"signal": signal})
