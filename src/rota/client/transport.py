"""A single request and its response over a connection.

A command opens a connection for each request: it makes one or two, and pooling would cost more. The connections of
`rota.Client` are pooled in `client/sdk/transports.py`.

`ResponseDecoder` is fed with the received bytes and returns the bytes of the body. So the same code serves a short
response, a long poll that a selector watches together with others, and a log that is followed for hours.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping

from rota import __version__
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


_MAX_LINE_BYTES = 65_536
_STATUSES_WITHOUT_BODY = (204, 304)
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


class ResponseDecoder:
    """An incremental decoder of one HTTP/1.1 response."""

    def __init__(self) -> None:
        self.status = 0
        """HTTP status; 0 until the head is complete."""
        self.headers: dict[str, str] = {}
        self.is_finished = False
        self._closes_connection = False
        self._buffer = bytearray()
        self._body = bytearray()
        self._remaining = 0
        self._step: Callable[[], bool] = self._parse_status_line

    @property
    def is_connection_reusable(self) -> bool:
        """Whether the connection can be used for another request: this response is complete, no data follows it, and
        neither side announced to close the connection."""
        return self.is_finished and not self._closes_connection and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """Decode received bytes, and return the bytes of the body among them. Empty data is the end of the
        connection."""
        if not data and self._step == self._parse_until_close:
            self.is_finished = self._closes_connection = True
        self._buffer += data
        # Each step returns whether it made progress; without progress it needs more bytes.
        while not self.is_finished and self._step():
            pass
        body, self._body = bytes(self._body), bytearray()
        return body

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise InvalidResponse(
                    "the response on the socket is not HTTP; `rota doctor` shows which process listens"
                )
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _parse_status_line(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        parts = line.split(b" ", 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
            raise InvalidResponse(
                f"the response on the socket is not HTTP ({line[:40]!r}); `rota doctor` shows which process listens"
            )
        self.status = int(parts[1])
        self._closes_connection = parts[0] == b"HTTP/1.0"
        self._step = self._parse_header
        return True

    def _parse_header(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        if line:
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()
        else:
            self._choose_body_parser()
        return True

    def _choose_body_parser(self) -> None:
        length = self.headers.get("content-length")
        self._closes_connection |= self.headers.get("connection", "").lower() == "close"
        if self.status < 200:  # An interim response, such as 100 Continue: the final one follows.
            self.headers.clear()
            self._step = self._parse_status_line
        elif self.status in _STATUSES_WITHOUT_BODY or length == "0":
            self.is_finished = True
        elif self.headers.get("transfer-encoding", "").lower() == "chunked":
            self._step = self._parse_chunk_size
        elif length is None:
            self._step = self._parse_until_close
        elif length.isdigit():
            self._remaining = int(length)
            self._step = self._parse_sized_body
        else:
            raise InvalidResponse(f"the scheduler sent an invalid Content-Length: {length!r}")

    def _take_body(self) -> bool:
        part = self._buffer[: self._remaining]
        del self._buffer[: len(part)]
        self._remaining -= len(part)
        self._body += part
        return bool(part)

    def _parse_sized_body(self) -> bool:
        progress = self._take_body()
        self.is_finished = self._remaining == 0
        return progress

    def _parse_chunk_size(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        try:
            self._remaining = int(line.split(b";", 1)[0], 16)
        except ValueError:
            raise InvalidResponse(f"the scheduler sent an invalid chunk size: {line[:40]!r}") from None
        self._step = self._parse_chunk if self._remaining else self._parse_trailer
        return True

    def _parse_chunk(self) -> bool:
        progress = self._take_body()
        if self._remaining == 0:
            self._step = self._parse_chunk_end
        return progress

    def _parse_chunk_end(self) -> bool:
        if self._take_line() is None:
            return False
        self._step = self._parse_chunk_size
        return True

    def _parse_trailer(self) -> bool:
        line = self._take_line()
        self.is_finished = line == b""
        return line is not None

    def _parse_until_close(self) -> bool:
        self._body += self._buffer
        self._buffer.clear()
        return False


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
