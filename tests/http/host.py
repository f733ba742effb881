"""TCP server of Rota in the test's own process, with a small application and real sockets.

The event loop runs in a thread of its own, so that a test can act like any client.
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

from rota.config import ServerConfig
from rota.errors import RotaError
from rota.home import Home
from rota.http.limits import BodyLimit
from rota.http.problem import JsonResponse, refusal_response
from rota.http.tcp import TcpServer
from rota.routes import ROUTER

T = TypeVar("T")
TIMEOUT = 20.0


class ServerResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Code of a problem; empty for any other response."""
        return str(json.loads(self.body)["code"]) if self.status >= 400 else ""

    @property
    def detail(self) -> str:
        return str(json.loads(self.body)["detail"])


def read_response(connection: socket.socket, method: str = "GET") -> ServerResponse:
    """Read one response."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return ServerResponse(response.status, headers, response.read())


class LocalServer:
    """TCP server with an application that records what reaches it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.home = Home(root)
        self.settings = ServerConfig(**{"port": 0, **settings})
        self.body_sizes: list[int] = []
        """Sizes of the bodies that reached the application."""
        self.open_streams = 0
        """Number of open streams."""
        self.max_connections = 100
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # Application.

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            if scope["path"] == "/stream":
                await StreamingResponse(self._endless_chunks())(scope, receive, send)
                return
            if scope["path"] == "/chunks":
                await StreamingResponse(_two_chunks())(scope, receive, send)
                return
            if scope["path"] == "/unread":
                await JsonResponse({"read": None})(scope, receive, send)
                return
            body = await request.body()
            self.body_sizes.append(len(body))
            await JsonResponse({"read": len(body)})(scope, receive, send)
        except RotaError as error:
            await refusal_response(error)(scope, receive, send)
        except ClientDisconnect:
            return

    async def _endless_chunks(self) -> Any:
        self.open_streams += 1
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            self.open_streams -= 1

    # Start, configuration and stop.

    def start(self) -> None:
        self._thread.start()
        self.tcp = self.run_on_loop(self._make_tcp_server)
        self._running = self.run_on_loop(lambda: self._loop.create_task(self.tcp.run()))
        asyncio.run_coroutine_threadsafe(self.tcp.wait_for_start(), self._loop).result(TIMEOUT)

    def _make_tcp_server(self) -> TcpServer:
        return TcpServer(
            BodyLimit(self._app),
            self.home,
            lambda: self.settings,
            is_public=ROUTER.is_public,
            max_connections=self.max_connections,
            max_descriptor=1 << 20,
        )

    def run_on_loop(self, function: Callable[[], T]) -> T:
        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(TIMEOUT)

    def tcp_status(self) -> dict[str, str | None]:
        """Return the status that the server reports."""
        status: dict[str, str | None] = msgspec.structs.asdict(self.run_on_loop(self.tcp.status))
        return status

    def change_config(self, **settings: Any) -> None:
        """Replace the settings, as an edit of the configuration does."""
        self.settings = ServerConfig(**{"port": 0, **settings})
        self.run_on_loop(self.tcp.wake)

    def stop(self) -> None:
        self.run_on_loop(self._running.cancel)
        asyncio.run_coroutine_threadsafe(self.tcp.close(), self._loop).result(TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    # Clients.

    @property
    def url(self) -> str:
        url = self.tcp_status()["url"]
        assert url is not None, self.tcp_status()
        return url

    @property
    def address(self) -> tuple[str, int]:
        return self.parse_address(self.url)

    @staticmethod
    def parse_address(url: str) -> tuple[str, int]:
        host, _, port = url.partition("://")[2].rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def token(self) -> str:
        return self.home.token.read_text().strip()

    def connect(self, cafile: Path | None = None) -> socket.socket:
        connection = socket.create_connection(self.address, timeout=TIMEOUT)
        if cafile is None:
            return connection
        return ssl.create_default_context(cafile=cafile).wrap_socket(connection, server_hostname="localhost")

    def request_at(self, address: tuple[str, int], token: str) -> ServerResponse:
        """Send a request to this address, whatever the status reports."""
        with socket.create_connection(address, timeout=TIMEOUT) as connection:
            head = f"GET / HTTP/1.1\r\nHost: localhost:{address[1]}\r\nAuthorization: Bearer {token}"
            connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
            return read_response(connection)

    def request(
        self,
        method: str = "GET",
        path: str = "/",
        body: bytes | None = None,
        *,
        cafile: Path | None = None,
        has_token: bool = True,
        **headers: str | None,
    ) -> ServerResponse:
        """Send a request with the right host, token and content type. `headers` replace them, or remove them if None;
        `_` stands for `-`."""
        all_headers: dict[str, str | None] = {"host": self.url.partition("://")[2], "connection": "close"}
        if has_token:
            all_headers["authorization"] = f"Bearer {self.token}"
        if body is not None:
            all_headers |= {"content-length": str(len(body)), "content-type": "application/json"}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        header_lines = [f"{name}: {value}" for name, value in all_headers.items() if value is not None]
        lines = [f"{method} {path} HTTP/1.1", *header_lines]
        with self.connect(cafile) as connection:
            connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1") + (body or b""))
            return read_response(connection, method)


async def _two_chunks() -> Any:
    yield b"first\n"
    yield b"second\n"


@contextmanager
def run_server(root: Path, *, max_connections: int = 100, **settings: Any) -> Iterator[LocalServer]:
    server = LocalServer(root, **settings)
    server.max_connections = max_connections
    server.start()
    try:
        yield server
    finally:
        server.stop()
