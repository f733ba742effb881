"""One request, one connection: the socket is local, so a connection costs less than keeping count of it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping

from rota import __version__
from rota.client.decoder import Decoder
from rota.client.problem import BadAnswer, Broken, NoAnswer, NotRunning, from_answer
from rota.errors import HomeError
from rota.home import Home, short_address

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs a third of a bare interpreter's start, and a command is paid for at every call.
    from typing import Any

PATIENCE = 60.0
"""Seconds without a byte after which an answer is given up."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class Answer:
    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise BadAnswer("the scheduler's answer is not JSON; is `rota.sock` Rota's? see `rota doctor`") from None


class Stream:
    """One answer as it comes in; `fileno` lets a selector watch several."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = Decoder()
        self._refusal = bytearray()

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> bytes:
        """Wait for some bytes and return what of the body they bring, perhaps nothing. A refusal is raised."""
        try:
            data = self._connection.recv(65_536)
        except TimeoutError:
            raise NoAnswer(_SILENT) from None
        except ConnectionError:
            data = b""
        body = self._decoder.feed(data)
        if not data and not self.finished:
            raise Broken("the scheduler went away before its answer was complete; see `rota doctor`, then ask again")
        if self._decoder.status < 400:
            return body
        self._refusal += body
        if self.finished:
            raise from_answer(self._decoder.status, bytes(self._refusal))
        return b""

    def read(self) -> Answer:
        """The rest of it, as one."""
        parts = []
        while not self.finished:
            parts.append(self.receive())
        return Answer(self._decoder.status, self._decoder.headers, b"".join(parts))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_SILENT = "the scheduler does not answer; see the end of `rota.log` in its home, and `rota doctor`"


def connect(home: Home, timeout: float | None) -> socket.socket:
    """A connection to the home's scheduler; NotRunning when there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    connection.settimeout(timeout)
    try:
        with short_address(home.directory, "rota.sock") as address:
            connection.connect(address)
    except BaseException as error:
        connection.close()
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            left = isinstance(error, ConnectionRefusedError)
            message = f"no scheduler runs in {home.directory}; `rota up` starts it"
            raise NotRunning(message, left_socket=left) from None
        if isinstance(error, TimeoutError):
            raise NoAnswer(_SILENT) from None
        if isinstance(error, PermissionError):
            raise HomeError(f"{home.socket} belongs to another user; set ROTA_HOME to a home of your own") from None
        if isinstance(error, OSError):
            raise HomeError(f"cannot connect to {home.socket}: {error.strerror or error}; see `rota doctor`") from None
        raise
    return connection


def send(
    home: Home,
    method: str,
    target: str,
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = PATIENCE,
) -> Stream:
    """Send one request; its answer is read from the stream. `target` is already percent-encoded."""
    payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode("ascii")
    lines = [f"{method} {target} HTTP/1.1", "Host: rota", f"User-Agent: rota/{__version__}", "Connection: close"]
    if body is not None:
        lines.append("Content-Type: application/json")
    if payload or method != "GET":
        lines.append(f"Content-Length: {len(payload)}")
    lines += [f"{name}: {value}" for name, value in {**_trace(), **(headers or {})}.items()]
    connection = connect(home, timeout)
    try:
        connection.sendall("\r\n".join((*lines, "", "")).encode("latin-1") + payload)
    except TimeoutError:
        connection.close()
        raise NoAnswer(_SILENT) from None
    except ConnectionError:
        # A server that refuses early may close before it has read everything: its answer is still there to read.
        pass
    except BaseException:
        connection.close()
        raise
    return Stream(connection)


def _trace() -> dict[str, str]:
    """The trace that this process belongs to, for what it asks to be made; whether it is one, the scheduler judges."""
    given = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    return {name: value for name, value in given.items() if value and value.isascii() and value.isprintable()}


def quote(text: str, *, keep: str = "") -> str:
    """Percent-encode for a path segment or a query value; characters in `keep` stay."""
    kept = _UNRESERVED.union(keep.encode())
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))
