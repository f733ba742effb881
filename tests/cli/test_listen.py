"""Endless listening: an ended or broken stream is requested again after a delay, from the last message on."""

from __future__ import annotations

from contextlib import suppress

import pytest

from rota.client.problem import ConnectionBroken, ResponseTimeout
from rota.client.requests.control import follow_events
from rota.client.session import BlockingStream, BlockingTransport, SchedulerSession
from rota.client.sse import RECONNECT_DELAY
from rota.errors import NotFound
from tests.cli.fake_scheduler import Server, chunked, problem

END = b"0\r\n\r\n"
FIRST = b"retry: 1000\n\nid: 7\nevent: job.failed\ndata: {}\n\n"
SECOND = b"id: 9\nevent: job.failed\ndata: {}\n\n"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the delays instead of sleeping."""
    delays: list[float] = []

    async def sleep(_self: BlockingTransport, seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr(BlockingTransport, "sleep", sleep)
    return delays


def received_ids(server: Server) -> list[str | None]:
    ids: list[str | None] = []
    with suppress(NotFound):
        for message in SchedulerSession(server.home).listen(lambda last: follow_events(last_event_id=last)):
            ids.append(message.id)  # noqa: PERF401 - keeps the messages before the error
    return ids


def test_listen_reconnects_after_a_delay(server: Server, pauses: list[float]) -> None:
    server.replies = [
        chunked(FIRST) + END,
        chunked(b"retry: 1000\n\n") + END,  # ends immediately
        chunked(b"retry: 1000\n\n"),  # breaks immediately
        chunked(SECOND),
        problem(404, "not-found", "enough"),
    ]
    assert received_ids(server) == ["7", "9"]
    assert [request.headers.get("last-event-id") for request in server.requests] == [None, "7", "7", "7", "9"]
    assert pauses == [RECONNECT_DELAY] * 4


def test_listen_reconnects_after_silence(server: Server, pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    server.replies = [chunked(FIRST), b"", chunked(SECOND), problem(404, "not-found", "enough")]
    receive, is_silent = BlockingStream.receive, [True]

    async def receive_or_time_out(self: BlockingStream) -> bytes:
        data = await receive(self)
        if is_silent and SECOND in data:
            is_silent.clear()
            server.replies.insert(0, chunked(SECOND))
            raise ResponseTimeout("silent")
        return data

    monkeypatch.setattr(BlockingStream, "receive", receive_or_time_out)
    assert received_ids(server) == ["7", "9"]
    assert pauses == [RECONNECT_DELAY] * 4


def test_listen_raises_if_the_first_connection_fails(server: Server, pauses: list[float]) -> None:
    server.replies = [b""]
    with pytest.raises(ConnectionBroken):
        next(SchedulerSession(server.home).listen(lambda last: follow_events(last_event_id=last)))
    assert pauses == []
