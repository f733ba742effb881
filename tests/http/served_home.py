"""API on the socket of a home, in a thread of the test: endpoints without a scheduler behind them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from rota.blocking import BlockingCalls
from rota.engine.idempotency import IdempotentRequest, StoredResponse
from rota.home import Home
from rota.http.app import Application
from rota.http.endpoint import Endpoint
from rota.http.protocol import HttpProtocol
from rota.http.router import Router
from rota.http.server import HttpServer, SocketFile, make_config
from rota.http.sse import StreamLimit

TIMEOUT = 20.0


class StandInContext(SimpleNamespace):
    """Context of handlers without a store: readers and transactions are None."""

    def __init__(self, **parts: Any) -> None:
        self.metrics = SimpleNamespace(record_response=lambda *_: None)
        self.stream_limit = StreamLimit(10)
        self.blocking_calls = BlockingCalls()
        self.responses: dict[str, StoredResponse] = {}
        super().__init__(**parts)

    async def read(self, view: Callable[[Any], Any]) -> Any:
        reader = SimpleNamespace(responses=SimpleNamespace(find=lambda _key: None))
        return view(reader)

    async def run_and_render(self, operation: Callable[[Any], Any], render: Callable[[Any, Any], Any]) -> Any:
        return render(None, [operation(None)])[0]

    async def run_once(
        self, idempotency: IdempotentRequest, operation: Callable[[Any], Any], render: Callable[[Any, Any], Any]
    ) -> Any:
        if idempotency.key in self.responses:
            return self.responses[idempotency.key]
        result = await self.run_and_render(operation, render)
        stored = idempotency.render(result)
        assert stored is not None
        self.responses[idempotency.key] = stored
        return result


@contextmanager
def served_home(home: Home, endpoints: Sequence[Endpoint], context: Any) -> Iterator[None]:
    """Serve the endpoints on the socket of the home."""
    ready = threading.Event()
    servers: list[tuple[asyncio.AbstractEventLoop, HttpServer]] = []

    async def serve() -> None:
        app = Application(context, Router(endpoints), lambda _path: None)
        server = HttpServer(make_config(app, HttpProtocol), max_descriptor=1 << 20)
        servers.append((asyncio.get_running_loop(), server))
        listening = SocketFile(home).bind()
        ready.set()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(TIMEOUT)
    try:
        yield
    finally:
        [(loop, server)] = servers
        loop.call_soon_threadsafe(server.end)
        thread.join(TIMEOUT)
