"""What takes more than one request: to wait for an end, to read a log, to listen."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from rota.client.absence import Absence
from rota.client.ask import Ask
from rota.client.ask.event import follow_events
from rota.client.ask.given import seconds
from rota.client.ask.group import cancel_group, get_group
from rota.client.ask.job import TERMINAL, cancel_job, get_job
from rota.client.ask.log import PIECE, follow_log, get_log
from rota.client.ask.slot import cancel_slot, get_slot
from rota.client.ask.wanted import Seconds
from rota.client.listen import listen
from rota.client.message import Message
from rota.client.problem import BadAnswer
from rota.errors import Unavailable
from rota.sdk.verb import Line
from rota.wire.event import EventForm, ResetForm
from rota.wire.group import GroupForm
from rota.wire.job import JobForm
from rota.wire.slot import SlotForm

T = TypeVar("T")

_POLL = 30.0
"""Seconds for which one request waits for an end."""


class _Deadline:
    def __init__(self, timeout: Seconds | None, what: str) -> None:
        left = seconds("timeout", timeout)
        self._at = None if left is None else time.monotonic() + left
        self._what = what

    def next_poll(self) -> float:
        return _POLL if self._at is None else min(_POLL, max(0.0, self._at - time.monotonic()))

    def check(self) -> None:
        if self._at is not None and time.monotonic() >= self._at:
            raise TimeoutError(f"{self._what} has not ended in time; it goes on")


async def _until(
    line: Line, build: Callable[[float], Ask], form: type[T], is_over: Callable[[T], bool], deadline: _Deadline
) -> T:
    """What is asked for when it is over. `build` makes the request from the seconds for which it waits."""
    absence = Absence(line.carrier)
    while True:
        try:
            found = await line.ask(build(deadline.next_poll()), form)
        except Unavailable as error:
            await absence.bear(error)
        else:
            absence.over()
            if is_over(found):
                return found
        deadline.check()


async def wait(line: Line, job: str, *, timeout: Seconds | None = None) -> JobForm:  # noqa: ASYNC109 - of both clients
    """The job when it has ended, or the last of its chain if it was retried; also over a restart of the scheduler.
    After `timeout` seconds TimeoutError; the job goes on."""
    deadline = _Deadline(timeout, job)
    return await _until(
        line, lambda poll: get_job(job, wait=poll), JobForm, lambda form: form.status in TERMINAL, deadline
    )


async def wait_group(line: Line, group: str, *, timeout: Seconds | None = None) -> GroupForm:  # noqa: ASYNC109
    """The group when it is over, as `wait` does."""
    deadline = _Deadline(timeout, group)
    return await _until(line, lambda poll: get_group(group, wait=poll), GroupForm, lambda form: form.is_over, deadline)


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
    if form.finished_at is not None:
        return form
    deadline = _Deadline(None, slot)
    return await _until(
        line, lambda poll: get_slot(slot, wait=poll), SlotForm, lambda form: form.finished_at is not None, deadline
    )


async def logs(
    line: Line, job: str, stream: str = "stdout", *, follow: bool = False, offset: int = 0, run: str | None = None
) -> AsyncGenerator[bytes, None]:
    """What a job has written to `stdout` or `stderr`, from `offset` on, byte for byte; with `follow` until it ends,
    also over a restart of the scheduler. Of an earlier run if one is named."""
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
    absence = Absence(line.carrier)
    while True:
        try:
            incoming = await line.carrier.open(follow_log(job, stream, offset=offset))
            try:
                while not incoming.finished:
                    piece = await incoming.receive()
                    line.carrier.answered = True
                    absence.over()
                    offset += len(piece)
                    if piece:
                        yield piece
                return
            finally:
                incoming.close()
        except Unavailable as error:
            await absence.bear(error)


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
    messages = listen(line.carrier, lambda last: follow_events(**asked, last=last), last)
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
