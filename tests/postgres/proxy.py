"""Stands between a store and its server, to lose the connection at one chosen moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

Loss = Literal["not sent", "answer lost", "not awaited"]
"""The commit never reaches the server; the server has answered it; it has been sent, and nobody waits."""

_NAME = ".s.PGSQL.5432"
_COMMIT = b"COMMIT\x00"
"""Ends the query, and is the whole of its answer; READ COMMITTED is neither."""


class Proxy:
    def __init__(self, server: Path, here: Path) -> None:
        self._server = str(server / _NAME)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(here / _NAME))
        self._listening.listen()
        self._here = here
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.loss: Loss | None = None
        """What happens to the next COMMIT."""
        self.wait: Callable[[], object] = lambda: None
        """Before one is not awaited any more: until the server has come to it."""
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        return url.replace(str(Path(self._server).parent), str(self._here))

    def cut(self) -> None:
        """All connections there are, as a network does."""
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """No new connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def close(self) -> None:
        self.refuse()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
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
                    if self.loss != "answer lost":
                        break
                else:
                    server.sendall(data)
        if self.loss == "not awaited":  # the server does not learn of it
            try:
                self.wait()
            finally:
                client.shutdown(socket.SHUT_RDWR)
                self.loss = None
            return
        _end(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self.loss == "answer lost" and _COMMIT in data:
                    break
                client.sendall(data)
        self.loss = None
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def proxied(server: Path, here: Path) -> Iterator[Proxy]:
    proxy = Proxy(server, here)
    yield proxy
    proxy.close()
