"""What takes more than one request: to wait for an end, to read a log, to listen."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from rota.client.ask.event import follow_events
from rota.client.ask.group import cancel_group, get_group
from rota.client.ask.job import TERMINAL, cancel_job, get_job
from rota.client.ask.log import PIECE, follow_log, get_log
from rota.client.ask.slot import cancel_slot, get_slot
from rota.client.listen import listen
from rota.client.message import Message
from rota.client.problem import BadAnswer, Broken
from rota.sdk.verb import Line
from rota.wire.event import EventForm, ResetForm
from rota.wire.group import GroupForm
from rota.wire.job import JobForm
from rota.wire.slot import SlotForm

T = TypeVar("T")

_POLL = 30.0
"""Seconds for which one request waits for an end."""
_TRIES = 3


class _Deadline:
    def __init__(self, timeout: float | None, what: str) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout
        self._what = what

    def next_poll(self) -> float:
        return _POLL if self._at is None else min(_POLL, max(0.0, self._at - time.monotonic()))

    def check(self) -> None:
        if self._at is not None and time.monotonic() >= self._at:
            raise TimeoutError(f"{self._what} has not ended in time; it goes on")


async def wait(line: Line, job: str, *, timeout: float | None = None) -> JobForm:  # noqa: ASYNC109 - of both clients
    """The job when it has ended, or the last of its chain if it was retried. After `timeout` seconds TimeoutError; the
    job goes on."""
    deadline = _Deadline(timeout, job)
    while True:
        form = await line.ask(get_job(job, wait=deadline.next_poll()), JobForm)
        if form.status in TERMINAL:
            return form
        deadline.check()


async def wait_group(line: Line, group: str, *, timeout: float | None = None) -> GroupForm:  # noqa: ASYNC109
    """The group when it is over."""
    deadline = _Deadline(timeout, group)
    while True:
        form = await line.ask(get_group(group, wait=deadline.next_poll()), GroupForm)
        if form.is_over:
            return form
        deadline.check()


async def cancel(line: Line, job: str) -> JobForm:
    """End a job's chain; when this returns its processes are gone."""
    form = await line.ask(cancel_job(job), JobForm)
    return form if form.status in TERMINAL else await wait(line, form.id)


async def cancel_whole_group(line: Line, group: str) -> GroupForm:
    """End all of a group; when this returns its members are gone."""
    form = await line.ask(cancel_group(group), GroupForm)
    return form if form.is_over else await wait_group(line, form.id)


async def cancel_direct(line: Line, slot: str) -> SlotForm:
    """End a direct execution; when this returns it is gone."""
    form = await line.ask(cancel_slot(slot), SlotForm)
    while form.finished_at is None:
        form = await line.ask(get_slot(slot, wait=_POLL), SlotForm)
    return form


async def logs(
    line: Line, job: str, stream: str = "stdout", *, follow: bool = False, offset: int = 0, run: str | None = None
) -> AsyncGenerator[bytes, None]:
    """What a job has written to `stdout` or `stderr`, from `offset` on, byte for byte; with `follow` until it ends. Of
    an earlier run if one is named."""
    pieces = _followed(line, job, stream, offset) if follow and run is None else _read(line, job, stream, offset, run)
    try:
        async for piece in pieces:
            yield piece
    finally:
        await pieces.aclose()


async def _read(line: Line, job: str, stream: str, offset: int, run: str | None) -> AsyncGenerator[bytes, None]:
    while True:
        piece = (await line.carrier.ask(get_log(job, stream, offset=offset, limit=PIECE, run=run))).body
        if piece:
            yield piece
        offset += len(piece)
        if len(piece) < PIECE:
            return


async def _followed(line: Line, job: str, stream: str, offset: int) -> AsyncGenerator[bytes, None]:
    """Whoever comes back says how much he has."""
    tries = 0
    while tries < _TRIES:
        incoming = await line.carrier.open(follow_log(job, stream, offset=offset))
        try:
            while not incoming.finished:
                piece = await incoming.receive()
                line.carrier.answered, tries = True, 0
                if piece:
                    yield piece
                offset += len(piece)
        except Broken:
            tries += 1
            if tries == _TRIES:
                raise
        else:
            return
        finally:
            incoming.close()


async def events(
    line: Line, *, since: int | None = None, job: Sequence[str] = (), group: str | None = None,
    kind: Sequence[str] = (), type: str | None = None, flow: str | None = None,  # noqa: A002
    on_reset: Callable[[ResetForm], None] | None = None,
) -> AsyncGenerator[EventForm, None]:  # fmt: skip
    """What happens, without end: from now on, or after the event of the number `since` (0 for all there is). A
    connection that breaks is taken up where it was, also over a restart of the scheduler. `on_reset` is told when
    events after `since` are not there any more."""
    asked: Any = {"job": job, "group": group, "kind": kind, "type": type, "flow": flow}
    last = None if since is None else str(since)
    messages = listen(line.carrier, lambda last: follow_events(**asked, last=last), last, outlasts=True)
    try:
        async for message in messages:
            if message.event == "reset" and on_reset is not None:
                on_reset(_decoded(message, ResetForm))
            if _is_event(message):
                yield _decoded(message, EventForm)
    finally:
        await messages.aclose()


def _is_event(message: Message) -> bool:
    """Their kinds have a dot; the stream's own words have none."""
    return "." in message.event


def _decoded(message: Message, form: type[T]) -> T:
    try:
        return msgspec.json.decode(message.data, type=form)
    except msgspec.DecodeError as error:
        raise BadAnswer(f"the scheduler's stream cannot be read: {error}") from None
