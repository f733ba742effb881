"""Commands while somebody listens to events: what a thousand who hear nothing cost, and one who hears everything."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

from bench.live import Rota

CASES = {
    "nobody": (0, ""),
    "1,000, of a job that waits": (1000, "?job={job}"),
    "1,000, of breakers": (1000, "?kind=breaker.*"),
    "1, of everything": (1, ""),
    "10, of everything": (10, ""),
}
_DESCRIPTORS = 4096


def commands(rota: Rota, count: int, case: str) -> float:
    """A second, four at a time, with those listeners."""
    most, query = CASES[case]
    rota.limit(0)
    waiting = rota.client.ask("POST", "/api/jobs", {"command": ["/bin/true"], "delay": "1h"})["job"]["id"]
    with _listening(rota, most, f"/api/events{query.format(job=waiting)}"):
        done = rota.commands(count, 4)
    rota.client.ask("POST", f"/api/jobs/{waiting}/cancel")
    return done


@contextmanager
def _listening(rota: Rota, count: int, target: str) -> Iterator[None]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _DESCRIPTORS), hard))
    with ExitStack() as opened:
        socks = [opened.enter_context(closing(_listener(rota, target))) for _ in range(count)]
        readers = [Thread(target=_read, args=(sock,), daemon=True) for sock in socks if len(socks) <= 10]
        for reader in readers:
            reader.start()
        yield
        for sock in socks:
            sock.shutdown(socket.SHUT_RDWR)
        for reader in readers:
            reader.join()


def _listener(rota: Rota, target: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(rota.home / "rota.sock"))
    sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    said = b""
    while b"event: begin" not in said:
        if not (piece := sock.recv(4096)):
            raise RuntimeError(said)
        said += piece
    return sock


def _read(sock: socket.socket) -> None:
    while sock.recv(65_536):
        pass
