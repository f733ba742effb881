"""Server-sent events: messages, and the response that streams them.

A response ends cleanly when its subject ends or the scheduler stops. A client that wants to continue reconnects with
the `id` of the last message. The number of open streams is limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.errors import RotaError, TooManyConnections
from rota.http.limits import LimitNotice
from rota.schema_types import encode

log = logging.getLogger("rota.http")

MEDIA = "text/event-stream"
KEEPALIVE = b":\n"
"""Comment that shows that the connection is open."""
RETRY_FIELD = b"retry: 1000\n\n"
"""Milliseconds after which a client reconnects when the connection broke."""
KEEPALIVE_INTERVAL = 15.0
_MAX_WRITE_BYTES = 16 << 10
"""Maximum bytes of one write. A client that does not read adds at most this much to the write buffer."""


def format_message(data: Any, *, event: str | None = None, event_id: object = None) -> bytes:
    """Format a message. JSON has no line breaks, so the data is one line."""
    event_field = b"" if event is None else b"event: %b\n" % event.encode()
    id_field = b"" if event_id is None else b"id: %b\n" % str(event_id).encode()
    return b"%b%bdata: %b\n\n" % (id_field, event_field, encode(data))


class StreamLimit:
    """Limit on the number of open responses that have no end of their own."""

    def __init__(self, max_streams: int) -> None:
        self.max_streams = max_streams
        self.open_count = 0
        self._notice = LimitNotice(log)

    @contextmanager
    def track(self) -> Iterator[None]:
        self.open_count += 1
        try:
            yield
        finally:
            self.open_count -= 1

    def refuse_too_many(self) -> None:
        if self.open_count >= self.max_streams:
            self._notice.log(f"{self.open_count:,} streams are open, the maximum; more are refused until some close")
            raise TooManyConnections(
                f"{self.open_count:,} streams are open, the maximum; close one, then send the request again"
            )


class EventStream(Response):
    """Response that sends messages as the iterator yields them. The iterator is closed when the client disconnects."""

    def __init__(self, messages: AsyncGenerator[bytes, None], stream_limit: StreamLimit) -> None:
        stream_limit.refuse_too_many()
        super().__init__(media_type=MEDIA, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._messages = messages
        self._stream_limit = stream_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            with self._stream_limit.track():
                await self._send_all(receive, send)
        await send({"type": "http.response.body", "body": b""})

    async def _send_all(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_each(send))
        disconnecting = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, disconnecting), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
        finally:
            for task in (sending, disconnecting):
                task.cancel()
            await asyncio.gather(sending, disconnecting, return_exceptions=True)

    async def _send_each(self, send: Send) -> None:
        async with aclosing(self._messages) as messages:
            await send({"type": "http.response.body", "body": RETRY_FIELD, "more_body": True})
            try:
                async for message in messages:
                    for begin in range(0, len(message), _MAX_WRITE_BYTES):
                        part = message[begin : begin + _MAX_WRITE_BYTES]
                        await send({"type": "http.response.body", "body": part, "more_body": True})
            except RotaError as error:  # the client reconnects, and then gets the error
                log.warning("a stream ended early: %s", error.message)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
