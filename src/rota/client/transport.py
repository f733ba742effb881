"""One request and its answer over a connection. A command has a new one for each: it asks once or twice, and keeping
count of them would cost it more. What `rota.Client` keeps, `sdk/pool.py` says."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping

from rota import __version__
from rota.client.ask import Ask
from rota.client.ask.given import plain
from rota.client.decoder import Decoder
from rota.client.problem import BadAnswer, Broken, NoAnswer, NotRunning, Unheard, from_answer
from rota.errors import HomeError, InvalidInput, RotaError
from rota.home import Home, short_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Place(Protocol):
        """Where a scheduler is asked."""

        @property
        def headers(self) -> Mapping[str, str]: ...
        def connect(self, timeout: float | None) -> socket.socket: ...


SILENT = "the scheduler does not answer; see the end of `rota.log` in its home, and `rota doctor`"


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


class Reading:
    """What the bytes of an answer come to, whoever receives them. A refusal is raised."""

    def __init__(self, unheard: str | None = None) -> None:
        """`unheard` is what it may mean that the connection ends and nothing has come."""
        self._unheard = unheard
        self._decoder = Decoder()
        self._refusal = bytearray()

    @property
    def status(self) -> int:
        """0 until the head is here."""
        return self._decoder.status

    @property
    def headers(self) -> dict[str, str]:
        return self._decoder.headers

    @property
    def finished(self) -> bool:
        return self._decoder.finished

    @property
    def can_go_on(self) -> bool:
        """Whether its connection is good for another request."""
        return self._decoder.can_go_on

    def take(self, data: bytes) -> bytes:
        """What of the body is in it, perhaps nothing. No data is the end of the connection."""
        body = self._decoder.feed(data)
        if not data and not self.finished:
            if self._unheard is not None and not self.status:
                raise Unheard(self._unheard)
            raise Broken("the scheduler went away before its answer was complete; see `rota doctor`, then ask again")
        if self.status < 400:
            return body
        self._refusal += body
        if self.finished:
            raise from_answer(self.status, bytes(self._refusal), self.headers)
        return b""


class Stream:
    """One answer as it comes in; `fileno` lets a selector watch several."""

    def __init__(self, connection: socket.socket, unheard: str | None = None) -> None:
        self._connection = connection
        self._reading = Reading(unheard)

    @property
    def status(self) -> int:
        return self._reading.status

    @property
    def headers(self) -> dict[str, str]:
        return self._reading.headers

    @property
    def finished(self) -> bool:
        return self._reading.finished

    @property
    def can_go_on(self) -> bool:
        return self._reading.can_go_on

    @property
    def peer(self) -> int:
        """The pid of who listens at the other end of a home's socket."""
        return int.from_bytes(self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)

    def fileno(self) -> int:
        return self._connection.fileno()

    def receive(self) -> bytes:
        """Wait for some bytes and return what of the body they bring, perhaps nothing. A refusal is raised."""
        try:
            data = self._connection.recv(65_536)
        except TimeoutError:
            raise NoAnswer(SILENT) from None
        except OSError:
            data = b""
        return self._reading.take(data)

    def read(self) -> Answer:
        """The rest of it, as one."""
        parts = []
        while not self.finished:
            parts.append(self.receive())
        return Answer(self.status, self.headers, b"".join(parts))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HomeSocket:
    """The socket of a home: trusted by its file mode, so that nobody has to say who he is."""

    headers: Mapping[str, str] = {"Host": "rota"}

    def __init__(self, home: Home) -> None:
        self.home = home

    def connect(self, timeout: float | None) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout)
        try:
            with short_address(self.home.directory, "rota.sock") as address:
                connection.connect(address)
        except OSError as error:
            connection.close()
            raise self.explain(error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def explain(self, error: OSError) -> RotaError:
        """What it means that there is no connection; NotRunning where there is no scheduler."""
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            left = isinstance(error, ConnectionRefusedError)
            return NotRunning(f"no scheduler runs in {self.home.directory}; `rota up` starts it", left_socket=left)
        if isinstance(error, TimeoutError):
            return NoAnswer(SILENT)
        if isinstance(error, PermissionError):
            return HomeError(f"{self.home.socket} belongs to another user; set ROTA_HOME to a home of your own")
        return HomeError(f"cannot connect to {self.home.socket}: {error.strerror or error}; see `rota doctor`")


def request_bytes(ask: Ask, headers: Mapping[str, str], *, keeps: bool = False) -> bytes:
    """The request as it goes over a connection; `headers` are the place's. `keeps`: others follow over the same."""
    payload = b"" if ask.body is None else _payload(ask.body)
    lines = [f"{ask.method} {ask.target} HTTP/1.1", f"User-Agent: rota/{__version__}"]
    if not keeps:
        lines.append("Connection: close")
    if ask.body is not None:
        lines.append("Content-Type: application/json")
    if payload or ask.method != "GET":
        lines.append(f"Content-Length: {len(payload)}")
    for name, value in {**headers, **_trace(), **ask.headers}.items():
        if not (value.isascii() and value.isprintable()):
            raise InvalidInput(f"the header {name} has characters that none can have: ASCII only, no line breaks")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + payload


def _payload(body: Any) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), default=plain).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the request cannot be sent as JSON: {error}") from None


def send(place: Place, ask: Ask) -> Stream:
    """Its answer is read from the stream."""
    request = request_bytes(ask, place.headers)
    connection = place.connect(ask.patience)
    transmit(connection, request)
    return Stream(connection)


def transmit(connection: socket.socket, request: bytes) -> None:
    try:
        connection.sendall(request)
    except TimeoutError:
        connection.close()
        raise NoAnswer(SILENT) from None
    except ConnectionError:
        # A server that refuses early may close before it has read everything: its answer is still there to read.
        pass
    except BaseException:
        connection.close()
        raise


def _trace() -> dict[str, str]:
    """The trace that this process belongs to, for what it asks to be made; whether it is one, the scheduler judges."""
    given = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    return {name: value for name, value in given.items() if value and value.isascii() and value.isprintable()}
