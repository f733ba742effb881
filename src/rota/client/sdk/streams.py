"""Methods that make several requests: wait for an end, read a log, follow events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from rota.client.problem import InvalidResponse
from rota.client.requests import Request
from rota.client.requests.arguments import as_seconds
from rota.client.requests.control import follow_events
from rota.client.requests.direct import cancel_reservation, get_reservation
from rota.client.requests.jobs import (
    LOG_CHUNK_BYTES,
    TERMINAL_STATUSES,
    cancel_group,
    cancel_job,
    follow_log,
    get_group,
    get_job,
    get_log,
)
from rota.client.requests.options import Seconds
from rota.client.retrying import SchedulerOutage
from rota.client.sdk.calls import Channel
from rota.client.sse import SseMessage, listen
from rota.direct.schemas import ReservationView
from rota.errors import ServiceUnavailable
from rota.events.schemas import EventView, StreamReset
from rota.groups.schemas import GroupView
from rota.jobs.schemas import JobView

T = TypeVar("T")

_POLL_TIMEOUT = 30.0
"""Maximum wait of a single request, in seconds."""


class _Deadline:
    def __init__(self, timeout: Seconds | None, subject: str) -> None:
        seconds = as_seconds("timeout", timeout)
        self._expires_at = None if seconds is None else time.monotonic() + seconds
        self._subject = subject

    def next_poll(self) -> float:
        return (
            _POLL_TIMEOUT
            if self._expires_at is None
            else min(_POLL_TIMEOUT, max(0.0, self._expires_at - time.monotonic()))
        )

    def check(self) -> None:
        if self._expires_at is not None and time.monotonic() >= self._expires_at:
            raise TimeoutError(f"{self._subject} has not ended within the timeout; it continues")


async def _poll_until(
    channel: Channel,
    build: Callable[[float], Request],
    response_type: type[T],
    is_finished: Callable[[T], bool],
    deadline: _Deadline,
) -> T:
    """Return the first response that is finished. `build` makes a request from the number of seconds to wait."""
    outage = SchedulerOutage(channel.transport)
    while True:
        try:
            response = await channel.request(build(deadline.next_poll()), response_type)
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)
        else:
            outage.end()
            if is_finished(response):
                return response
        deadline.check()


async def wait(channel: Channel, job: str, *, timeout: Seconds | None = None) -> JobView:  # noqa: ASYNC109 - shared by both clients
    """Wait for a job to end, and return it, or the last job of its chain if it was retried.

    The wait continues across a restart of the scheduler. After `timeout`, raise TimeoutError; the job continues.
    """
    deadline = _Deadline(timeout, job)
    return await _poll_until(
        channel, lambda poll: get_job(job, wait=poll), JobView, lambda view: view.status in TERMINAL_STATUSES, deadline
    )


async def wait_group(channel: Channel, group: str, *, timeout: Seconds | None = None) -> GroupView:  # noqa: ASYNC109
    """Wait for a group to finish, and return it. See `wait` for `timeout`."""
    deadline = _Deadline(timeout, group)
    return await _poll_until(
        channel, lambda poll: get_group(group, wait=poll), GroupView, lambda view: view.is_finished, deadline
    )


async def cancel(channel: Channel, job: str) -> JobView:
    """Cancel the chain of a job. Return when its processes have ended."""
    view = await channel.request(cancel_job(job), JobView)
    return view if view.status in TERMINAL_STATUSES else await wait(channel, view.id)


async def cancel_group_and_wait(channel: Channel, group: str) -> GroupView:
    """Cancel a group. Return when its members have ended."""
    view = await channel.request(cancel_group(group), GroupView)
    return view if view.is_finished else await wait_group(channel, view.id)


async def cancel_reservation_and_wait(channel: Channel, reservation: str) -> ReservationView:
    """Cancel a direct execution. Return when it has ended."""
    view = await channel.request(cancel_reservation(reservation), ReservationView)
    if view.finished_at is not None:
        return view
    deadline = _Deadline(None, reservation)
    return await _poll_until(
        channel,
        lambda poll: get_reservation(reservation, wait=poll),
        ReservationView,
        lambda view: view.finished_at is not None,
        deadline,
    )


async def logs(
    channel: Channel, job: str, stream: str = "stdout", *, follow: bool = False, offset: int = 0, run: str | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the log of a job from `offset`, as bytes.

    With `follow`, continue until the job ends, also across a restart of the scheduler. With `run`, read the log of an
    earlier run.
    """
    chunks = (
        _follow_log(channel, job, stream, offset)
        if follow and run is None
        else _read_log(channel, job, stream, offset, run)
    )
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        await chunks.aclose()


async def _read_log(
    channel: Channel, job: str, stream: str, offset: int, run: str | None
) -> AsyncGenerator[bytes, None]:
    while True:
        chunk = (
            await channel.transport.request(get_log(job, stream, offset=offset, limit=LOG_CHUNK_BYTES, run=run))
        ).body
        if chunk:
            yield chunk
        offset += len(chunk)
        if len(chunk) < LOG_CHUNK_BYTES:
            return


async def _follow_log(channel: Channel, job: str, stream: str, offset: int) -> AsyncGenerator[bytes, None]:
    """Follow a log, and reconnect at the current offset after an outage."""
    outage = SchedulerOutage(channel.transport)
    while True:
        try:
            incoming = await channel.transport.open_stream(follow_log(job, stream, offset=offset))
            try:
                while not incoming.is_finished:
                    chunk = await incoming.receive()
                    channel.transport.has_answered = True
                    outage.end()
                    offset += len(chunk)
                    if chunk:
                        yield chunk
                return
            finally:
                incoming.close()
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)


async def events(
    channel: Channel,
    *,
    since: int | None = None,
    job: Sequence[str] = (),
    group: str | None = None,
    kind: Sequence[str] = (),
    type: str | None = None,  # noqa: A002
    flow: str | None = None,
    on_reset: Callable[[StreamReset], None] | None = None,
) -> AsyncGenerator[EventView, None]:
    """Yield events without end: from now on, or after the event with the number `since` (0 for all stored events).

    After an outage the stream continues where it was, also across a restart of the scheduler. `on_reset` is called if
    events after `since` are no longer stored.
    """
    parameters: Any = {"job": job, "group": group, "kind": kind, "type": type, "flow": flow}
    last = None if since is None else str(since)
    messages = listen(channel.transport, lambda last: follow_events(**parameters, last_event_id=last), last)
    try:
        async for message in messages:
            if message.event == "reset" and on_reset is not None:
                on_reset(_decode_data(message, StreamReset))
            if _is_event(message):
                yield _decode_data(message, EventView)
    finally:
        await messages.aclose()


def _is_event(message: SseMessage) -> bool:
    """Return whether the message is an event: kinds of events contain a dot, other messages do not."""
    return "." in message.event


def _decode_data(message: SseMessage, response_type: type[T]) -> T:
    try:
        return msgspec.json.decode(message.data, type=response_type)
    except msgspec.DecodeError as error:
        raise InvalidResponse(f"the scheduler's stream cannot be decoded: {error}") from None
