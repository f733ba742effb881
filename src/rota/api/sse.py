"""Server-sent events: messages, and the answer that they are sent in.

An answer ends cleanly when what it tells of does, or when the scheduler stops; a client that is to go on asks again,
with the `id` of the last message that it had. How many are open at once is bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rota.errors import Busy, RotaError
from rota.wire import encode

log = logging.getLogger("rota.api")

MEDIA = "text/event-stream"
BEAT = b":\n"
"""A comment: it says that the connection is there."""
RETRY = b"retry: 1000\n\n"
"""Milliseconds after which a client asks again when the connection broke."""
BEAT_EVERY = 15.0


def message(form: Any, *, event: str | None = None, number: object = None) -> bytes:
    """JSON has no line breaks, so the data is one line."""
    named = b"" if event is None else b"event: %b\n" % event.encode()
    numbered = b"" if number is None else b"id: %b\n" % str(number).encode()
    return b"%b%bdata: %b\n\n" % (numbered, named, encode(form))


class Streams:
    """How many answers are open that have no end of their own."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0

    @contextmanager
    def another(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def refuse_too_many(self) -> None:
        if self.open >= self.most:
            raise Busy(f"{self.open:,} streams are open, which is all there may be; close one, then ask again")


class EventStream(Response):
    """What the iterator gives, as it gives it. The iterator is closed when the client goes."""

    def __init__(self, messages: AsyncGenerator[bytes, None], streams: Streams) -> None:
        streams.refuse_too_many()
        super().__init__(media_type=MEDIA, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._messages = messages
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            with self._streams.another():
                await self._send_all(receive, send)
        await send({"type": "http.response.body", "body": b""})

    async def _send_all(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_each(send))
        leaving = asyncio.create_task(until_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_each(self, send: Send) -> None:
        async with aclosing(self._messages) as messages:
            await send({"type": "http.response.body", "body": RETRY, "more_body": True})
            try:
                async for each in messages:
                    await send({"type": "http.response.body", "body": each, "more_body": True})
            except RotaError as error:  # the client asks again, and is told then
                log.warning("a stream ends early: %s", error.message)


async def until_gone(receive: Receive) -> None:
    """Until the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
