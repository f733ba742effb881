"""Server-sent events: an incremental decoder, and streams without end.

After a broken connection, `listen` requests the stream again from the last message. It is written once, in async form,
like `RetryingTransport`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota.client.problem import ConnectionBroken, InvalidResponse, ResponseTimeout
from rota.client.retrying import SchedulerOutage
from rota.errors import ServiceUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from typing import Any

    from rota.client.requests import Request
    from rota.client.retrying import IncomingResponse, RetryingTransport

_MAX_BUFFER_BYTES = 1 << 24
RECONNECT_DELAY = 1.0
"""Seconds before the stream is requested again, as the scheduler announces in `retry`."""


class SseMessage:
    """A message of a stream."""

    __slots__ = ("data", "event", "id")

    def __init__(self, event: str, data: str, id: str | None) -> None:  # noqa: A002 - name of the field in the format
        self.event = event
        """Name of the event; `message` if it has none."""
        self.data = data
        self.id = id
        """Id of this message, or of the last message that had one. A reconnection starts after it."""

    def json(self) -> Any:
        try:
            return json.loads(self.data)
        except ValueError:
            raise InvalidResponse(
                f"the scheduler's stream cannot be decoded: {self.data[:40]!r}; see `rota doctor`"
            ) from None


class SseDecoder:
    """An incremental decoder of messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fields: dict[str, list[str]] = {}
        self._last_id: str | None = None

    def feed(self, data: bytes) -> Iterator[SseMessage]:
        """Decode received bytes, and yield each complete message. Lines end with a line feed, as Rota writes them."""
        self._buffer += data
        if len(self._buffer) > _MAX_BUFFER_BYTES and b"\n" not in self._buffer:
            raise InvalidResponse(
                "the scheduler's stream has a line that is too long; it may be another version: see `rota doctor`"
            )
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if not line:
                yield from self._finish_message()
            elif not line.startswith(b":"):
                name, _, value = line.decode("utf-8", "replace").partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))

    def _finish_message(self) -> Iterator[SseMessage]:
        fields, self._fields = self._fields, {}
        self._last_id = fields.get("id", [self._last_id])[-1]
        if "data" in fields:
            yield SseMessage(fields.get("event", ["message"])[-1], "\n".join(fields["data"]), self._last_id)


async def listen(
    transport: RetryingTransport, build: Callable[[str | None], Request], last: str | None = None
) -> AsyncGenerator[SseMessage, None]:
    """Yield messages without end. `build` makes the request from the id of the last message."""
    outage = SchedulerOutage(transport)
    while True:
        incoming, messages = await _open_with_retries(transport, build(last), outage), SseDecoder()
        try:
            while not incoming.is_finished:
                data = await incoming.receive()
                transport.has_answered = True
                outage.end()
                for message in messages.feed(data):
                    last = message.id or last
                    yield message
        except (ConnectionBroken, ResponseTimeout):
            if not transport.has_answered:  # without an earlier response the failure is reported immediately
                raise
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)
        finally:
            incoming.close()
        await transport.sleep(RECONNECT_DELAY)


async def _open_with_retries(
    transport: RetryingTransport, request: Request, outage: SchedulerOutage
) -> IncomingResponse:
    while True:
        try:
            return await transport.open_stream(request)
        except ServiceUnavailable as error:
            await outage.wait_or_raise(error)
