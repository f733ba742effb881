"""A slot's stream is one of those that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api import attendance, log_follow
from rota.api.attendance import _Attended
from rota.api.context import Hub
from rota.api.presence import Hold
from rota.api.sse import Streams
from rota.core.event import Event
from rota.ids import SlotId


def test_it_is_counted_while_it_lasts() -> None:
    streams, seen = Streams(most=1), list[int]()

    async def frames() -> AsyncIterator[bytes]:
        seen.append(streams.open)
        yield b"x"

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(_message: Any) -> None: ...

    scope = {"type": "http", "method": "GET"}
    asyncio.run(_Attended(frames(), nullcontext(), streams)(scope, receive, send))
    assert seen == [1]
    assert streams.open == 0


@pytest.mark.parametrize(("command", "most"), [(None, 0), (["./serve.sh"], 4)])
def test_a_quiet_slot_is_looked_at_when_it_changes(
    command: list[str] | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output on a timer that gets slower, where it has any; where it stands by its events alone."""
    looks, asked, ended = list[str](), list[float](), False

    async def look(_context: Any, _slot: SlotId) -> Any:
        looks.append("form")
        return SimpleNamespace(ready=True, command=command, finished_at="now" if ended else None)

    async def wait_for(event: asyncio.Event, seconds: float) -> bool:
        asked.append(seconds)
        if len(asked) >= most:
            await event.wait()
        return event.is_set()

    monkeypatch.setattr(attendance, "look_patiently", look)
    monkeypatch.setattr(attendance, "_line", lambda **_: b"")
    monkeypatch.setattr(log_follow, "wait_for", wait_for)

    async def act() -> None:
        nonlocal ended
        hub = Hub(asyncio.get_running_loop())
        context: Any = SimpleNamespace(hub=hub, presence=SimpleNamespace(time_left=lambda _: None))
        output: Any = SimpleNamespace(has_more=lambda: False, read=lambda: b"", close=lambda: None)
        frames = attendance._frames(context, SlotId(1), {"stdout": output}, None, Hold())

        async def all_of_them() -> None:
            async for _ in frames:
                pass

        reading = asyncio.create_task(all_of_them())
        async with asyncio.timeout(20):
            while len(asked) < most or not looks:  # noqa: ASYNC110 - it is the looks that are counted
                await asyncio.sleep(0)
            assert looks == ["form"]
            ended = True
            hub.publish([Event(at=0, kind="slot.ended", cause="test", slot=SlotId(1))])
            await reading

    asyncio.run(act())
    assert looks == ["form", "form"]
    assert asked == [0.1, 0.2, 0.2, 0.2][:most]
