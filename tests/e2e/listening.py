"""Somebody who listens to a stream of the scheduler's, message by message."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.rig import Rota
from rota.client.message import Message, Messages

STREAM = {"Accept": "text/event-stream"}


class Listening:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.response = connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"].startswith("text/event-stream")
        assert self.response.headers["Cache-Control"] == "no-store"
        self._messages = Messages()
        self._heard: list[Message] = []

    def hear(self, count: int = 1) -> list[Message]:
        """The next so many; fewer where the stream ends in good order."""
        while len(self._heard) < count and (data := self.response.read1(65_536)):
            self._heard += self._messages.feed(data)
        heard, self._heard = self._heard[:count], self._heard[count:]
        return heard

    def rest(self) -> list[Message]:
        """All there is, to the end."""
        return self.hear(10**9)


@contextmanager
def listening(rota: Rota, target: str, last: str | None = None) -> Iterator[Listening]:
    connection = rota.connection()
    try:
        connection.request("GET", target, headers=STREAM if last is None else {**STREAM, "Last-Event-ID": last})
        yield Listening(connection)
    finally:
        connection.close()
