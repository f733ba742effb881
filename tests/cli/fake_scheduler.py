"""Stand-in for a scheduler: a real Unix socket with responses that each test defines byte by byte."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from rota.home import Home, short_socket_path


class RecordedRequest:
    """Request that the stand-in has received."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def json(self) -> Any:
        return json.loads(self.body)


Reply = bytes | Callable[[RecordedRequest], bytes]


def json_response(value: Any, status: int = 200) -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def problem(status: int, code: str, detail: str) -> bytes:
    return json_response(
        {"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code}, status
    )


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


class Server:
    """Server that replies by route, else with the next of `replies`. An empty reply breaks the connection."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.requests: list[RecordedRequest] = []
        self.replies: list[Reply] = []
        self.routes: dict[str, Reply] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        with short_socket_path(home.directory, "rota.sock") as address:
            self._socket.bind(address)
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                raw = read_request(connection)
                if raw is None:
                    return
                request = RecordedRequest(raw)
                self.requests.append(request)
                reply = self.routes.get(f"{request.method} {request.target}")
                if reply is None and request.target == "/api/display":
                    reply = json_response({})  # nothing is configured unless a test defines this route
                if reply is None:
                    reply = self.replies.pop(0) if self.replies else problem(404, "not-found", f"no {request.target}")
                connection.sendall(reply if isinstance(reply, bytes) else reply(request))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as final, short_socket_path(self.home.directory, "rota.sock") as address:
            final.connect(address)
        self._thread.join()
        self._socket.close()


def read_request(connection: socket.socket) -> bytes | None:
    """Read a request, or return None if the connection ends without one, which tells the server to stop."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        data = connection.recv(65536)
        if not data:
            return None
        raw += data
    head, _, body = raw.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
