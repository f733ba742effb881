"""A scheduler's stand-in that keeps its connections open, as the real one does, and says over which a request came."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from cli.stand_in import Request, answer, read_request
from rota.home import Home, short_address

Reply = Callable[[Request], bytes]
"""No bytes break the connection."""


def healthy(_: Request) -> bytes:
    return answer({"status": "ok", "pid": 1})


class Lasting:
    def __init__(self, home: Home) -> None:
        self.home = home
        self.came: list[tuple[int, Request]] = []
        """Each request, with the number of the connection that it came over."""
        self.reply: Reply = healthy
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._socket = socket.socket(socket.AF_UNIX)
        with short_address(home.directory, "rota.sock") as address:
            self._socket.bind(address)
        self._socket.listen(64)
        self._begin(self._accept)

    @property
    def over(self) -> list[int]:
        return [number for number, _ in self.came]

    def _begin(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                connection, _ = self._socket.accept()
                number = len(self._connections)
                self._connections.append(connection)
                self._begin(partial(self._serve, number, connection))

    def _serve(self, number: int, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while (raw := read_request(connection)) is not None:
                request = Request(raw)
                self.came.append((number, request))
                reply = self.reply(request)
                if not reply:
                    return
                connection.sendall(reply)

    def hang_up(self) -> None:
        """On all who are connected. When this is over they can know it."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.hang_up()
        for thread in self._threads:
            thread.join()
