"""Reader of a server-sent event stream of the scheduler, message by message."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from rota.client.sse import SseDecoder, SseMessage
from tests.e2e.rig import Rota

EVENT_STREAM_HEADERS = {"Accept": "text/event-stream"}


class EventStream:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.response = connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"].startswith("text/event-stream")
        assert self.response.headers["Cache-Control"] == "no-store"
        self._decoder = SseDecoder()
        self._unread: list[SseMessage] = []

    def read(self, count: int = 1) -> list[SseMessage]:
        """Return the next `count` messages, or fewer if the stream ends properly."""
        while len(self._unread) < count and (data := self.response.read1(65_536)):
            self._unread += self._decoder.feed(data)
        received, self._unread = self._unread[:count], self._unread[count:]
        return received

    def read_to_end(self) -> list[SseMessage]:
        """Return all messages to the end of the stream."""
        return self.read(10**9)


@contextmanager
def open_event_stream(rota: Rota, target: str, last: str | None = None) -> Iterator[EventStream]:
    connection = rota.connection()
    try:
        connection.request(
            "GET",
            target,
            headers=EVENT_STREAM_HEADERS if last is None else {**EVENT_STREAM_HEADERS, "Last-Event-ID": last},
        )
        yield EventStream(connection)
    finally:
        connection.close()
