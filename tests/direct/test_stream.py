"""Streams of reservations: their count, and how often they read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from rota.direct import stream
from rota.direct.leases import ClientLease
from rota.direct.stream import _ReservationStreamResponse
from rota.events.hub import Hub
from rota.http.sse import StreamLimit
from rota.ids import ReservationId
from rota.jobs import log_endpoints
from rota.kernel.events import Event


def test_open_stream_counts_against_the_limit() -> None:
    streams, open_counts = StreamLimit(max_streams=1), list[int]()

    async def frames() -> AsyncIterator[bytes]:
        open_counts.append(streams.open_count)
        yield b"x"

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(_message: Any) -> None: ...

    scope = {"type": "http", "method": "GET"}
    asyncio.run(_ReservationStreamResponse(frames(), nullcontext(), streams, holds_lease=False)(scope, receive, send))
    assert open_counts == [1]
    assert streams.open_count == 0


@pytest.mark.parametrize(("command", "limit"), [(None, 0), (["./serve.sh"], 4)])
def test_quiet_reservation_is_read_only_after_a_change(
    command: list[str] | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of a command is polled with a growing delay; the state is read after an event only."""
    reads, delays, ended = list[str](), list[float](), False

    async def read_reservation(_context: Any, _reservation: ReservationId) -> Any:
        reads.append("state")
        return SimpleNamespace(ready=True, command=command, finished_at="now" if ended else None)

    async def wait_for(event: asyncio.Event, seconds: float) -> bool:
        delays.append(seconds)
        if len(delays) >= limit:
            await event.wait()
        return event.is_set()

    monkeypatch.setattr(stream, "read_reservation_with_retry", read_reservation)
    monkeypatch.setattr(stream, "_format_line", lambda **_: b"")
    monkeypatch.setattr(log_endpoints, "wait_for", wait_for)

    async def act() -> None:
        nonlocal ended
        hub = Hub(asyncio.get_running_loop())
        context: Any = SimpleNamespace(hub=hub, leases=SimpleNamespace(remaining_wait=lambda _: None))
        output: Any = SimpleNamespace(has_more=lambda: False, read=lambda: b"", close=lambda: None)
        frames = stream._frames(context, ReservationId(1), {"stdout": output}, None, ClientLease())

        async def read_all() -> None:
            async for _ in frames:
                pass

        reading = asyncio.create_task(read_all())
        async with asyncio.timeout(20):
            while len(delays) < limit or not reads:  # noqa: ASYNC110 - the calls have no event
                await asyncio.sleep(0)
            assert reads == ["state"]
            ended = True
            hub.publish([Event(at=0, kind="reservation.ended", cause="test", reservation=ReservationId(1))])
            await reading

    asyncio.run(act())
    assert reads == ["state", "state"]
    assert delays == [0.1, 0.2, 0.2, 0.2][:limit]
