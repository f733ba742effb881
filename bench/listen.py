"""Command throughput with event subscribers: a thousand that receive nothing, and a few that receive every event."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

from bench.live import Rota

NO_SUBSCRIBERS = "none"
CASES = {
    NO_SUBSCRIBERS: (0, ""),
    "1,000, of a waiting job": (1000, "?job={job}"),
    "1,000, of breakers": (1000, "?kind=breaker.*"),
    "1, of everything": (1, ""),
    "10, of everything": (10, ""),
}
_MAX_DESCRIPTORS = 4096
_MAX_READERS = 10
"""Subscribers that may receive data, and therefore need a thread that reads it."""


def measure_commands(rota: Rota, count: int, case: str) -> float:
    """Return commands per second, four at a time, with the subscribers of this case."""
    subscribers, query = CASES[case]
    rota.set_concurrency(0)
    waiting = rota.client.request("POST", "/api/jobs", {"command": ["/bin/true"], "delay": "1h"})["job"]["id"]
    with _subscribed(rota, subscribers, f"/api/events{query.format(job=waiting)}"):
        rate = rota.measure_commands(count, 4)
    rota.client.request("POST", f"/api/jobs/{waiting}/cancel")
    return rate


@contextmanager
def _subscribed(rota: Rota, count: int, target: str) -> Iterator[None]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MAX_DESCRIPTORS), hard))
    with ExitStack() as stack:
        socks = [stack.enter_context(closing(_subscribe(rota, target))) for _ in range(count)]
        readers = [Thread(target=_read, args=(sock,), daemon=True) for sock in socks if len(socks) <= _MAX_READERS]
        for reader in readers:
            reader.start()
        yield
        for sock in socks:
            sock.shutdown(socket.SHUT_RDWR)
        for reader in readers:
            reader.join()


def _subscribe(rota: Rota, target: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(rota.home / "rota.sock"))
    sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
    received = b""
    while b"event: begin" not in received:
        if not (piece := sock.recv(4096)):
            raise RuntimeError(received)
        received += piece
    return sock


def _read(sock: socket.socket) -> None:
    while sock.recv(65_536):
        pass
