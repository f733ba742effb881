"""The HTTP server on the home's socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import Scope

from rota.api.entrance import Entrance
from rota.api.protocol import Protocol, busy, raw
from rota.errors import Unavailable
from rota.home import Home, short_address

_ANSWERS_LEFT = 1
"""Seconds for answers under way when the scheduler ends; a log that is followed breaks off then."""


class Server(uvicorn.Server):
    """Signals are the daemon's, not the HTTP server's; its end is told, not looked for ten times a second; and who
    connects comes through an entrance of ours."""

    def __init__(self, given: uvicorn.Config, *, highest: int) -> None:
        """`highest` is the last descriptor that a connection may have."""
        super().__init__(given)
        self.highest = highest
        self._ended = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._ended.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        word = raw(busy())
        found = [Entrance(each, self._protocol, highest=self.highest, word=word) for each in sockets or ()]
        self.servers = cast("list[asyncio.Server]", found)
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        return Protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """What is not answered in time breaks off: to the application as if its client had gone away, which is no
        defect, as it would be to end it in the middle of something."""
        breaking_off = asyncio.get_running_loop().call_later(_ANSWERS_LEFT, self.cut)
        await super().shutdown(sockets)
        breaking_off.cancel()

    def cut(self, scope: Scope | None = None) -> None:
        """Let all clients go, but the one of this request."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, Protocol) and (scope is None or connection.scope is not scope):
                connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def configuration(app: Any, protocol: type[Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_ANSWERS_LEFT + 1,
    )


def bind(listening: socket.socket, home: Home) -> None:
    before = os.umask(0o177)
    try:
        home.socket.unlink(missing_ok=True)
        with short_address(home.root, home.socket.name) as address:
            listening.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {home.socket}: {error.strerror}") from error
    finally:
        os.umask(before)
    listening.listen(1024)
