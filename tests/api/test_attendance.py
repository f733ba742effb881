"""A slot's stream is one of those that are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

from rota.api.attendance import _Attended
from rota.api.sse import Streams


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
