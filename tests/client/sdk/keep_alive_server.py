"""A fake scheduler that keeps its connections open, as the real one does, and records their requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rota.home import Home, short_socket_path
from tests.cli.fake_scheduler import RecordedRequest, json_response, read_request

Reply = Callable[[RecordedRequest], bytes]
"""Function that makes the response. Empty bytes break the connection."""


def respond_healthy(_: RecordedRequest) -> bytes:
    return json_response({"status": "ok", "pid": 1})


class KeepAliveServer:
    """A server on the socket of a home that numbers its connections."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.requests: list[tuple[int, RecordedRequest]] = []
        """Requests, each with the number of its connection."""
        self.reply: Reply = respond_healthy
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.socket(socket.AF_UNIX)
        with short_socket_path(home.directory, "rota.sock") as address:
            self._socket.bind(address)
        self._socket.listen(64)
        self._start_thread(self._accept)

    @property
    def connection_numbers(self) -> list[int]:
        """Number of the connection of each request."""
        return [number for number, _ in self.requests]

    def _start_thread(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listening socket was closed
            while True:
                connection, _ = self._socket.accept()
                number = len(self._connections)
                self._connections.append(connection)
                self._start_thread(partial(self._serve, number, connection))

    def _serve(self, number: int, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while (raw := read_request(connection)) is not None:
                request = RecordedRequest(raw)
                self.requests.append((number, request))
                reply = self.reply(request)
                if not reply:
                    return
                connection.sendall(reply)

    def disconnect_all(self) -> None:
        """Shut down all connections. Clients can detect it when this returns."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.disconnect_all()
        for thread in self._threads:
            thread.join()
