"""Proxy between a store and its server that loses the connection at a chosen moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

Loss = Literal["not sent", "response lost", "not awaited"]
"""Way in which a commit is lost: it never reaches the server; the server commits but its response is lost; or the
connection ends while the server is still committing."""

_NAME = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\x00"
"""End of a query and its whole response. READ COMMITTED matches neither."""


class Proxy:
    def __init__(self, server: Path, directory: Path) -> None:
        self._server = str(server / _NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / _NAME))
        self._listener.listen()
        self._directory = directory
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.loss: Loss | None = None
        """Loss to apply to the next COMMIT."""
        self.wait: Callable[[], object] = lambda: None
        """Callback that returns when the server has received a commit that is not awaited."""
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        return url.replace(str(Path(self._server).parent), str(self._directory))

    def cut(self) -> None:
        """Cut all open connections, as a network failure does."""
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Refuse new connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.refuse()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                try:
                    server.connect(self._server)
                except OSError:
                    client.close()
                    server.close()
                    continue
                self._pairs.append((client, server))
                threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
                threading.Thread(target=self._downstream, args=(client, server), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                if self.loss is not None and _COMMIT in data:
                    if self.loss != "not sent":
                        server.sendall(data)
                    if self.loss != "response lost":
                        break
                else:
                    server.sendall(data)
        if self.loss == "not awaited":  # the server does not notice
            try:
                self.wait()
            finally:
                client.shutdown(socket.SHUT_RDWR)
                self.loss = None
            return
        _close(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self.loss == "response lost" and _COMMIT in data:
                    break
                client.sendall(data)
        self.loss = None
        _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for end in sockets:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def proxied(server: Path, directory: Path) -> Iterator[Proxy]:
    proxy = Proxy(server, directory)
    yield proxy
    proxy.close()
