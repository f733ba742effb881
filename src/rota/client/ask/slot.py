"""Direct executions, and the places that they are given."""

from __future__ import annotations

from collections.abc import Mapping

from rota.client.ask import Ask, patience_for, query, quote
from rota.client.ask.given import key_of, seconds, words
from rota.client.ask.job import job_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.ask import Json
    from rota.client.ask.wanted import Command, Direct, Seconds


def run_direct(command: Command = (), *, key: str | None = None, **options: Unpack[Direct]) -> Ask:
    """Wait for its turn, run it, and have the result as the answer, however long that takes."""
    return Ask("POST", "/api/direct", body=_body(command, options), key=key_of(key), patience=None)


def reserve_slot(command: Command = (), *, key: str | None = None, **options: Unpack[Direct]) -> Ask:
    """Reserve a place, for a command or for work that the caller does itself. Who has it says now and then, by looking
    with `wait` or by renewing it, that he is still there."""
    return Ask("POST", "/api/slots", body=_body(command, options), key=key_of(key))


def attend_new_slot(request: Json) -> Ask:
    """Reserve a place that hangs on this connection; its stream is the answer."""
    return Ask("POST", "/api/slots?stream=1", body=request, patience=None)


def _body(command: Command, options: Direct) -> Json:
    return job_body({"command": words(command), **options} if command else options)


def attend_slot(slot: str, offsets: Mapping[str, int], *, wait: str | None = None) -> Ask:
    """Come back to it, with what of its output is here already."""
    asked = query(*offsets.items(), ("attend", 1), ("wait", wait))
    return Ask("GET", f"/api/slots/{quote(slot)}/stream{asked}", patience=None)


def list_slots(*, limit: int | None = None, cursor: str | None = None) -> Ask:
    """Those that wait or run, in order of arrival."""
    return Ask("GET", f"/api/slots{query(('limit', limit), ('cursor', cursor))}")


def get_slot(slot: str, *, wait: Seconds | None = None, seen: str | None = None) -> Ask:
    """One; with `wait`, when it has ended (or its status is no longer `seen`) or the seconds are over."""
    wait = seconds("wait", wait)
    target = f"/api/slots/{quote(slot)}{query(('wait', wait), ('seen', seen))}"
    return Ask("GET", target, patience=patience_for(wait))


def renew_slot(slot: str) -> Ask:
    """Say that its client is still there."""
    return Ask("POST", f"/api/slots/{quote(slot)}/renew")


def release_slot(slot: str) -> Ask:
    """Give it back: the work in it is done."""
    return Ask("POST", f"/api/slots/{quote(slot)}/release")


def cancel_slot(slot: str) -> Ask:
    """Answered when it is gone."""
    return Ask("POST", f"/api/slots/{quote(slot)}/cancel", patience=None)


def signal_slot(slot: str, signal: str) -> Ask:
    """Send its command a signal, as HUP."""
    return Ask("POST", f"/api/slots/{quote(slot)}/signal", body={"signal": signal})
