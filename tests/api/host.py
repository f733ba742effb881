"""A TCP server of Rota's in the test's own process, with a small application behind it and real sockets in front.

The event loop has a thread of its own, so that the test can talk to it as any client does.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from rota.api.app import ROUTER
from rota.api.limit import Limited
from rota.api.problem import Json, refusal
from rota.api.tcp import Tcp
from rota.config import Server
from rota.errors import RotaError
from rota.home import Home

T = TypeVar("T")
PATIENCE = 20.0


class Said(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Of a problem; empty where it is none."""
        return str(json.loads(self.body)["code"]) if self.status >= 400 else ""

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


def read(connection: socket.socket, method: str = "GET") -> Said:
    """One answer."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    return Said(response.status, {name.lower(): text for name, text in response.getheaders()}, response.read())


class Host:
    def __init__(self, root: Path, **settings: Any) -> None:
        self.home = Home(root)
        self.settings = Server(**{"port": 0, **settings})
        self.bodies: list[int] = []
        """Sizes of what came through."""
        self.streams = 0
        """How many are open."""
        self.most_connections = 100
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # The application.

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if scope["path"] == "/stream":
                await StreamingResponse(self._pieces())(scope, receive, send)
                return
            if scope["path"] == "/pieces":
                await StreamingResponse(_two_pieces())(scope, receive, send)
                return
            if scope["path"] == "/unread":
                await Json({"read": None})(scope, receive, send)
                return
            body = await request.body()
            self.bodies.append(len(body))
            await Json({"read": len(body)})(scope, receive, send)
        except RotaError as error:
            await refusal(error)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _pieces(self) -> Any:
        self.streams += 1
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            self.streams -= 1

    # Its life.

    def start(self) -> None:
        self._thread.start()
        self.tcp = self.on_loop(self._made)
        self._running = self.on_loop(lambda: self._loop.create_task(self.tcp.run()))
        asyncio.run_coroutine_threadsafe(self.tcp.begun(), self._loop).result(PATIENCE)

    def _made(self) -> Tcp:
        return Tcp(
            Limited(self._app), self.home, lambda: self.settings,
            is_public=ROUTER.is_public, most_connections=self.most_connections,
            highest=1 << 20,
        )  # fmt: skip

    def on_loop(self, act: Callable[[], T]) -> T:
        async def acted() -> T:
            return act()

        return asyncio.run_coroutine_threadsafe(acted(), self._loop).result(PATIENCE)

    def settled(self) -> dict[str, str | None]:
        """What it says of itself."""
        about: dict[str, str | None] = msgspec.structs.asdict(self.on_loop(self.tcp.about))
        return about

    def change(self, **settings: Any) -> None:
        """As an edit of the configuration does."""
        self.settings = Server(**{"port": 0, **settings})
        self.on_loop(self.tcp.wake)

    def stop(self) -> None:
        self.on_loop(self._running.cancel)
        asyncio.run_coroutine_threadsafe(self.tcp.close(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    # Its clients.

    @property
    def url(self) -> str:
        url = self.settled()["url"]
        assert url is not None, self.settled()
        return url

    @property
    def address(self) -> tuple[str, int]:
        return self.address_of(self.url)

    @staticmethod
    def address_of(url: str) -> tuple[str, int]:
        host, _, port = url.partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def token(self) -> str:
        return self.home.token.read_text().strip()

    def connect(self, trust: Path | None = None) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=PATIENCE)
        if trust is None:
            return connection
        return ssl.create_default_context(cafile=trust).wrap_socket(connection, server_hostname="localhost")

    def ask_at(self, address: tuple[str, int], token: str) -> Said:
        """Whatever it says of itself."""
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            head = f"GET / HTTP/1.1\r\nHost: localhost:{address[1]}\r\nAuthorization: Bearer {token}"
            connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
            return read(connection)

    def ask(
        self, method: str = "GET", path: str = "/", body: bytes | None = None, *, trust: Path | None = None,
        has_token: bool = True, **headers: str | None,
    ) -> Said:  # fmt: skip
        """With the right host, token and type, unless another is given or None takes it away; `_` is `-`."""
        given: dict[str, str | None] = {"host": self.url.partition("://")[2], "connection": "close"}
        if has_token:
            given["authorization"] = f"Bearer {self.token}"
        if body is not None:
            given |= {"content-length": str(len(body)), "content-type": "application/json"}
        given |= {name.replace("_", "-"): text for name, text in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items() if text is not None)]
        with self.connect(trust) as connection:
            connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1") + (body or b""))
            return read(connection, method)


async def _two_pieces() -> Any:
    yield b"first\n"
    yield b"second\n"


@contextmanager
def hosting(root: Path, *, most_connections: int = 100, **settings: Any) -> Iterator[Host]:
    host = Host(root, **settings)
    host.most_connections = most_connections
    host.start()
    try:
        yield host
    finally:
        host.stop()
