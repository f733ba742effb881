"""Stream of a reservation: every change of its state, and its output.

    {"id": "reservation-3", "wait": 300.0, "warning": null}     first: seconds that it may wait to start
    {"reservation": {… "status": "WAITING", "wait": {"detail": "waiting on pool global (1/1)", …} …}}
    {"reservation": {… "status": "RUNNING" …}}
    {"stream": "stdout", "size": 6}                             this line, then this number of bytes of output
    hello
    {"reservation": {… "status": "COMPLETED", "exit_code": 0 …}}     last: it has ended, and all output was sent

A stream that ends earlier was interrupted: a client that reconnects with its offsets resumes without a gap. Events
announce the changes of the state. A file does not report that it has grown, so while a command runs, its output is
polled like that of a job. A reservation without a command has no output.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.direct import queries
from rota.direct.leases import ClientLease
from rota.direct.schemas import ReservationView
from rota.errors import StorageFull, StoreError
from rota.events.hub import wait_for
from rota.http.context import Context
from rota.http.endpoint import RESERVATION_STREAM
from rota.http.protocol import KEEP_WHEN_STALLED
from rota.http.sse import StreamLimit
from rota.ids import ReservationId, format_reservation_id
from rota.jobs.log_endpoints import PollBackoff
from rota.jobs.logs import STREAMS, LogReader, log_path_in

_MAX_CHUNKS_PER_TURN = 16
"""Maximum chunks of one stream before the other stream and the state are read."""
_MIN_UPDATE_INTERVAL = 0.25
"""Minimum seconds between updates while it waits: any event can change what it waits for."""
_MAX_OUTPUT_POLL_INTERVAL = 0.2
"""Maximum seconds between two reads of the output, because a user watches it."""
_RECHECK_INTERVAL = 2.0
"""Seconds between reads while it waits, because a file or the configuration has no events."""
_STORE_RETRY_DELAY = 0.5


class _ReservationStreamResponse(StreamingResponse):
    """Response during which the client of the reservation is present."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        lease: AbstractContextManager[None],
        stream_limit: StreamLimit,
        *,
        holds_lease: bool,
    ) -> None:
        """Create a response. `holds_lease`: the execution is cancelled when the connection closes, so the connection is
        kept even if the client reads nothing: `rota run … | less` does not end the command."""
        super().__init__(content, media_type=RESERVATION_STREAM)
        self._lease = lease
        self._stream_limit = stream_limit
        self._holds_lease = holds_lease

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[KEEP_WHEN_STALLED] = self._holds_lease
        with self._stream_limit.track(), self._lease:
            await super().__call__(scope, receive, send)


def stream_to_client(
    context: Context,
    reservation: ReservationId,
    offsets: Mapping[str, int] | None = None,
    *,
    warning: str | None = None,
) -> StreamingResponse:
    """Return a stream that the reservation depends on. It is withdrawn if the stream closes before its end."""
    lease = ClientLease()
    frames = _frames(context, reservation, _open_outputs(context, reservation, offsets), warning, lease)
    return _ReservationStreamResponse(
        frames, context.leases.hold_connection(reservation, lease), context.stream_limit, holds_lease=True
    )


def stream_to_observer(
    context: Context, reservation: ReservationId, offsets: Mapping[str, int], *, renews_lease: bool
) -> StreamingResponse:
    """Return a stream that the reservation does not depend on. `renews_lease`: it belongs to the client of a
    reservation that never depended on a connection."""
    frames = _frames(context, reservation, _open_outputs(context, reservation, offsets), None, ClientLease())
    lease = context.leases.hold_poll(reservation) if renews_lease else nullcontext()
    return _ReservationStreamResponse(frames, lease, context.stream_limit, holds_lease=False)


def _open_outputs(
    context: Context, reservation: ReservationId, offsets: Mapping[str, int] | None
) -> Mapping[str, LogReader]:
    directory = context.home.reservations / str(reservation)
    start_offsets = offsets or dict.fromkeys(STREAMS, 0)
    return {name: LogReader(log_path_in(directory, name), offset) for name, offset in start_offsets.items()}


async def read_reservation(context: Context, reservation: ReservationId) -> ReservationView:
    return await context.read(partial(queries.show, reservation=reservation, context=context.view_context()))


async def read_reservation_with_retry(context: Context, reservation: ReservationId) -> ReservationView:
    """Return the reservation. A store that is temporarily unavailable does not end a stream."""
    while True:
        try:
            return await read_reservation(context, reservation)
        except (StorageFull, StoreError):
            if context.hub.is_closed:
                raise
            await asyncio.sleep(_STORE_RETRY_DELAY)


async def _frames(
    context: Context,
    reservation: ReservationId,
    outputs: Mapping[str, LogReader],
    warning: str | None,
    lease: ClientLease,
) -> AsyncIterator[bytes]:
    yield _format_line(
        id=format_reservation_id(reservation), wait=context.leases.remaining_wait(reservation), warning=warning
    )
    last_sent: ReservationView | None = None
    backoff = PollBackoff(_MAX_OUTPUT_POLL_INTERVAL)
    try:
        with context.hub.subscribe(("reservation", reservation)) as changed, context.hub.subscribe(None) as any_change:
            while True:
                is_last = context.hub.is_closed  # one more pass shows an end that came with the scheduler's own
                changed.clear()
                any_change.clear()
                # The state is read before the output, so that the last bytes are not missed.
                current = await read_reservation_with_retry(context, reservation)
                lease.has_ended = current.finished_at is not None
                if current != last_sent and not lease.has_ended:
                    last_sent = current
                    yield _format_line(reservation=current)
                async for frame in _read_output(outputs, None if lease.has_ended else _MAX_CHUNKS_PER_TURN):
                    yield frame
                if lease.has_ended:
                    yield _format_line(reservation=current)
                if lease.has_ended or is_last:
                    return
                if not current.ready:
                    await _wait_for_change(changed, any_change)
                elif current.command is None:
                    await changed.wait()
                else:
                    await backoff.wait_for_change(
                        changed, lambda: any(output.has_more() for output in outputs.values())
                    )
    finally:
        for output in outputs.values():
            output.close()


async def _read_output(outputs: Mapping[str, LogReader], max_chunks: int | None) -> AsyncIterator[bytes]:
    for name, output in outputs.items():
        count = 0
        while count != max_chunks and (chunk := await asyncio.to_thread(output.read)):
            count += 1
            yield _format_line(stream=name, size=len(chunk)) + chunk


async def _wait_for_change(changed: asyncio.Event, any_change: asyncio.Event) -> None:
    """Wait for an event of the reservation. Any other event ends the wait after a moment."""
    waits = [asyncio.ensure_future(event.wait()) for event in (changed, any_change)]
    try:
        await asyncio.wait(waits, timeout=_RECHECK_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if any_change.is_set():
        await wait_for(changed, _MIN_UPDATE_INTERVAL)


def _format_line(**fields: Any) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
