"""A scheduler's stand-in: a real unix socket, answers in bytes as each test writes them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

from rota.home import Home, short_address


class Request:
    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def json(self) -> Any:
        return json.loads(self.body)


Reply = bytes | Callable[[Request], bytes]


def answer(value: Any, status: int = 200) -> bytes:
    body = json.dumps(value).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def problem(status: int, code: str, detail: str) -> bytes:
    return answer({"type": "about:blank", "title": code, "status": status, "detail": detail, "code": code}, status)


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


class Server:
    """Answers by target, else in the order in which replies were given; an empty reply breaks the connection."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.routes: dict[str, Reply] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        with short_address(home.directory, "rota.sock") as address:
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
                request = Request(raw)
                self.requests.append(request)
                reply = self.routes.get(f"{request.method} {request.target}")
                if reply is None and request.target == "/api/display":
                    reply = answer({})  # nothing is configured, unless a test says so
                if reply is None:
                    reply = self.replies.pop(0) if self.replies else problem(404, "not-found", f"no {request.target}")
                connection.sendall(reply if isinstance(reply, bytes) else reply(request))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX) as last, short_address(self.home.directory, "rota.sock") as address:
            last.connect(address)
        self._thread.join()
        self._socket.close()


def read_request(connection: socket.socket) -> bytes | None:
    """One request; None when the connection ends without any: that is how the server is told to end."""
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
