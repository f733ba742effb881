"""A single request and its response over a connection.

A command opens a connection for each request: it makes one or two, and pooling would cost more. `sdk/pool.py` pools the
connections of `rota.Client`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping

from rota import __version__
from rota.client.decoder import ResponseDecoder
from rota.client.problem import (
    ConnectionBroken,
    InvalidResponse,
    NoResponse,
    ResponseTimeout,
    error_from_response,
    make_not_running,
)
from rota.client.requests import Request
from rota.client.requests.arguments import encode_fallback
from rota.errors import HomeError, InvalidInput, RotaError
from rota.home import Home, short_socket_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class SchedulerAddress(Protocol):
        """Address of a scheduler."""

        @property
        def headers(self) -> Mapping[str, str]: ...
        def connect(self, timeout: float | None) -> socket.socket: ...


NO_RESPONSE_TEXT = "the scheduler does not answer; see the end of `rota.log` in its home, and `rota doctor`"


class HttpResponse:
    """A complete response."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise InvalidResponse(
                "the scheduler's response is not JSON; check with `rota doctor` that `rota.sock` belongs to Rota"
            ) from None


class ResponseReader:
    """Decodes the received bytes of a response. A refusal is raised as an exception."""

    def __init__(self, no_response_hint: str | None = None) -> None:
        """Initialize the reader. `no_response_hint` is the message for a connection that ends without any response."""
        self._no_response_hint = no_response_hint
        self._decoder = ResponseDecoder()
        self._error_body = bytearray()

    @property
    def status(self) -> int:
        """HTTP status; 0 until the head is complete."""
        return self._decoder.status

    @property
    def headers(self) -> dict[str, str]:
        return self._decoder.headers

    @property
    def is_finished(self) -> bool:
        return self._decoder.is_finished

    @property
    def is_connection_reusable(self) -> bool:
        """Whether the connection can be used for another request."""
        return self._decoder.is_connection_reusable

    def feed(self, data: bytes) -> bytes:
        """Decode received bytes, and return the bytes of the body among them. Empty data is the end of the
        connection."""
        body = self._decoder.feed(data)
        if not data and not self.is_finished:
            if self._no_response_hint is not None and not self.status:
                raise NoResponse(self._no_response_hint)
            raise ConnectionBroken(
                "the connection to the scheduler broke before the response was complete; run `rota doctor`, then retry"
            )
        if self.status < 400:
            return body
        self._error_body += body
        if self.is_finished:
            raise error_from_response(self.status, bytes(self._error_body), self.headers)
        return b""


class ResponseStream:
    """A response that is being received. `fileno` lets a selector watch several responses."""

    def __init__(self, connection: socket.socket, no_response_hint: str | None = None) -> None:
        self._connection = connection
        self._reader = ResponseReader(no_response_hint)

    @property
    def status(self) -> int:
        return self._reader.status

    @property
    def headers(self) -> dict[str, str]:
        return self._reader.headers

    @property
    def is_finished(self) -> bool:
        return self._reader.is_finished

    @property
    def is_connection_reusable(self) -> bool:
        return self._reader.is_connection_reusable

    @property
    def peer_pid(self) -> int:
        """Pid of the process that listens on the home's socket."""
        return int.from_bytes(self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> bytes:
        """Wait for data, and return the bytes of the body among them, possibly empty. A refusal is raised."""
        try:
            data = self._connection.recv(65_536)
        except TimeoutError:
            raise ResponseTimeout(NO_RESPONSE_TEXT) from None
        except OSError:
            data = b""
        return self._reader.feed(data)

    def read(self) -> HttpResponse:
        """Return the rest of the response."""
        parts = []
        while not self.is_finished:
            parts.append(self.receive())
        return HttpResponse(self.status, self.headers, b"".join(parts))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HomeSocket:
    """The socket of a home. Its file mode authenticates the client."""

    headers: Mapping[str, str] = {"Host": "rota"}

    def __init__(self, home: Home) -> None:
        self.home = home

    def connect(self, timeout: float | None) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout)
        try:
            with short_socket_path(self.home.directory, "rota.sock") as address:
                connection.connect(address)
        except OSError as error:
            connection.close()
            raise self.connection_error(error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def connection_error(self, error: OSError) -> RotaError:
        """Return the error for a failed connection; NotRunning if there is no scheduler."""
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            return make_not_running(self.home, has_stale_socket=isinstance(error, ConnectionRefusedError))
        if isinstance(error, TimeoutError):
            return ResponseTimeout(NO_RESPONSE_TEXT)
        if isinstance(error, PermissionError):
            return HomeError(f"{self.home.socket} belongs to another user; set ROTA_HOME to a home of your own")
        return HomeError(f"cannot connect to {self.home.socket}: {error.strerror or error}; see `rota doctor`")


def encode_request(request: Request, headers: Mapping[str, str], *, keep_alive: bool = False) -> bytes:
    """Encode the request. `headers` are the headers of the address. With `keep_alive`, other requests follow over the
    same connection."""
    payload = b"" if request.body is None else _encode_body(request.body)
    lines = [f"{request.method} {request.target} HTTP/1.1", f"User-Agent: rota/{__version__}"]
    if not keep_alive:
        lines.append("Connection: close")
    if request.body is not None:
        lines.append("Content-Type: application/json")
    if payload or request.method != "GET":
        lines.append(f"Content-Length: {len(payload)}")
    for name, value in {**headers, **_trace_headers(), **request.headers}.items():
        if not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"the header {name} has invalid characters; use printable ASCII without line breaks")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + payload


def _encode_body(body: Any) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), default=encode_fallback).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the request cannot be sent as JSON: {error}") from None


def send(address: SchedulerAddress, request: Request) -> ResponseStream:
    """Send the request. The response is read from the returned stream."""
    data = encode_request(request, address.headers)
    connection = address.connect(request.timeout)
    transmit(connection, data)
    return ResponseStream(connection)


def transmit(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except TimeoutError:
        connection.close()
        raise ResponseTimeout(NO_RESPONSE_TEXT) from None
    except ConnectionError:
        # A server that refuses early may close before it has read everything. Its response can still be read.
        pass
    except BaseException:
        connection.close()
        raise


def _trace_headers() -> dict[str, str]:
    """Return the trace context of this process, for jobs that the request creates. The scheduler validates it."""
    headers = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    return {name: value for name, value in headers.items() if value and value.isascii() and value.isprintable()}
