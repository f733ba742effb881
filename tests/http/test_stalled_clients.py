"""Clients that read nothing of their response are disconnected, and can resume."""

from __future__ import annotations

import asyncio
import logging
import random
import select
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from rota.client.sse import SseDecoder, SseMessage
from rota.client.transport import ResponseDecoder
from rota.direct.stream import _ReservationStreamResponse
from rota.errors import TooManyConnections
from rota.events.endpoints import _stream, parse_last_event_id
from rota.http import protocol as http_protocol
from rota.http.limits import LimitNotice
from rota.http.protocol import HttpProtocol
from rota.http.server import make_config
from rota.http.sse import EventStream, StreamLimit
from rota.kernel.events import EventFilter
from tests.events.test_feed import FeedHarness, run_async, until
from tests.harness import Scheduler

BUFFER_SIZE = 4096


class CountingProtocol(HttpProtocol):
    """Protocol that counts the checks of a stalled response, and records its maximum backlog."""

    check_count = 0
    max_backlog = 0

    def _disconnect_if_stalled(self, previous_backlog: int) -> None:
        self.check_count += 1
        self.max_backlog = max(self.max_backlog, self.transport.get_write_buffer_size())
        super()._disconnect_if_stalled(previous_backlog)


class Connection:
    """Client that reads its socket only when the test requests it."""

    def __init__(self, client: socket.socket, protocol: CountingProtocol) -> None:
        self.client = client
        self.protocol = protocol

    @classmethod
    async def open(cls, app: ASGIApp, **headers: str) -> Connection:
        client, server = socket.socketpair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_SIZE)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_SIZE)
        client.setblocking(False)
        config = make_config(app, CountingProtocol)
        config.load()

        def make_protocol() -> CountingProtocol:
            return CountingProtocol(config=config, server_state=ServerState(), app_state={})

        _, protocol = await asyncio.get_running_loop().connect_accepted_socket(make_protocol, server)
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        client.sendall("\r\n".join(("GET / HTTP/1.1", "Host: rota", *lines, "", "")).encode())
        return cls(client, protocol)

    @property
    def is_disconnected(self) -> bool:
        poll = select.poll()
        poll.register(self.client, select.POLLRDHUP)
        return bool(poll.poll(0))

    @property
    def backlog(self) -> int:
        return int(self.protocol.transport.get_write_buffer_size())

    async def receive(self, size: int = 1 << 16) -> bytes:
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.client, size), 20)

    async def wait_disconnected(self) -> None:
        await until(lambda: self.is_disconnected, "the disconnect of the client")

    async def read_until_backlog_below(self, size: int) -> None:
        """Read until the backlog shrinks. The kernel accepts more only when much of its buffer was read."""
        while self.backlog >= size:
            assert await self.receive(BUFFER_SIZE), "the client was disconnected"
            await asyncio.sleep(0)

    async def wait_for_checks(self, count: int) -> None:
        await until(lambda: self.protocol.check_count >= count, f"{count} checks of the stalled response")

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
        self.protocol.transport.abort()
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "SEND_TIMEOUT", 0.05)
    monkeypatch.setattr(http_protocol, "_stall_notice", LimitNotice(http_protocol.log))


def test_client_that_never_reads_is_disconnected_and_resumes(
    scheduler: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """Two such clients resume after their last event, and the log has one message."""
    scheduler.submit_group(*[{}] * 600)

    async def act() -> None:
        harness, streams = FeedHarness(scheduler, random.Random(0)), StreamLimit(max_streams=10)
        context: Any = SimpleNamespace(feed=harness.feed, read=harness.read)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            since = parse_last_event_id(Request(scope)) or 0
            await EventStream(_stream(context, EventFilter(), since), streams)(scope, receive, send)

        async with await Connection.open(app) as first, await Connection.open(app) as second:
            for connection in (first, second):
                await connection.wait_disconnected()
                assert 64 << 10 < connection.protocol.max_backlog < 96 << 10
            await until(lambda: streams.open_count == 0, "the end of both streams")
            expected = harness.numbers_in_table(EventFilter())
            for connection in (first, second):
                messages = await _read_messages(connection, None)
                assert 0 < len(messages) < len(expected)
                async with await Connection.open(app, Last_Event_ID=str(messages[-1].id)) as resumed:
                    messages += await _read_messages(resumed, len(expected) - len(messages))
                assert [int(message.id or 0) for message in messages] == expected
        harness.feed.close()

    run_async(act)
    notices = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert notices == ["a client read nothing of its response for 0.05 s and was disconnected"]


async def _read_messages(connection: Connection, count: int | None) -> list[SseMessage]:
    """Read `count` messages, or all messages until the connection ends."""
    decoder, sse_decoder, messages = ResponseDecoder(), SseDecoder(), list[SseMessage]()
    while count is None or len(messages) < count:
        try:
            data = await connection.receive()
        except ConnectionResetError:
            data = b""
        if not data:
            break
        messages += sse_decoder.feed(decoder.feed(data))
    return messages


def _frames(count: int) -> AsyncIterator[bytes]:
    async def frames() -> AsyncIterator[bytes]:
        for number in range(count):
            yield number.to_bytes(2) * (4 << 10)

    return frames()


def _reservation_stream(*, holds_lease: bool) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        stream = _ReservationStreamResponse(
            _frames(40), nullcontext(), StreamLimit(max_streams=1), holds_lease=holds_lease
        )
        await stream(scope, receive, send)

    return app


def test_client_that_a_direct_execution_depends_on_is_kept() -> None:
    async def act() -> None:
        async with await Connection.open(_reservation_stream(holds_lease=True)) as connection:
            await connection.wait_for_checks(3)
            assert not connection.is_disconnected
            decoder, size = ResponseDecoder(), 0
            while not decoder.is_finished:
                size += len(decoder.feed(await connection.receive()))
            assert size == 40 * (8 << 10)

    run_async(act)


def test_client_that_watches_a_direct_execution_is_disconnected() -> None:
    async def act() -> None:
        async with await Connection.open(_reservation_stream(holds_lease=False)) as connection:
            await connection.wait_disconnected()

    run_async(act)


def test_slow_client_is_kept_while_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "SEND_TIMEOUT", 3600.0)

    async def act() -> None:
        async with await Connection.open(_reservation_stream(holds_lease=False)) as connection:
            await until(lambda: connection.backlog > 64 << 10, "a paused response")
            for _ in range(3):
                previous_backlog = connection.backlog
                await connection.read_until_backlog_below(previous_backlog)
                connection.protocol._disconnect_if_stalled(previous_backlog)
                assert not connection.is_disconnected
            connection.protocol._disconnect_if_stalled(connection.backlog)
            await connection.wait_disconnected()

    run_async(act)


def test_refused_streams_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    streams = StreamLimit(max_streams=1)
    with streams.track():
        for _ in range(3):
            with pytest.raises(TooManyConnections):
                streams.refuse_too_many()
    assert [record.getMessage() for record in caplog.records] == [
        "1 streams are open, the maximum; more are refused until some close"
    ]
