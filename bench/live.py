"""A real Rota in a home of its own, spoken to over its socket as any program would."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import datetime
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, cast

_PATIENCE = 300.0
"""Seconds until a client that does not come makes the others give up."""
COMMAND = {"command": ["/bin/true"], "cwd": "/", "env": {"PATH": "/usr/bin:/bin"}, "inherit_env": False}


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class Client:
    def __init__(self, home: Path) -> None:
        self._connection = _Connection(home / "rota.sock")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data)
            answer = self._connection.getresponse()
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            # Idle for longer than the server keeps a connection: nothing of this request was heard.
            self._connection.close()
            self._connection.request(method, path, data)
            answer = self._connection.getresponse()
        content = json.loads(answer.read() or b"null")
        if answer.status >= 400:
            raise RuntimeError(content)
        return content


class Rota:
    def __init__(self, home: Path, config: str = "") -> None:
        self.home = home
        home.mkdir(mode=0o700)
        (home / "rota.toml").write_text(config)
        self._environment = {**os.environ, "ROTA_HOME": str(home)}
        self.start()

    def _rota(self, *words: str) -> None:
        command = [sys.executable, "-m", "rota", *words]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> float:
        """Seconds from nothing until it answers."""
        begun = time.perf_counter()
        self._rota("up")
        taken = time.perf_counter() - begun
        self.client = Client(self.home)
        return taken

    def stop(self) -> None:
        self._rota("down", "--grace", "0s")

    def limit(self, size: int) -> None:
        self.client.ask("PUT", "/api/pools/global", {"size": size})

    def queue(self, count: int) -> list[str]:
        return _queue(self.client, count)

    def commands(self, count: int, concurrency: int) -> float:
        """Commands a second, from the claim of the first in a full queue, by its own record, until somebody who waits
        is told of the last end: to change the limit that lets them go takes time too, and is another matter."""
        self.limit(0)
        ids = self.queue(count)
        self.limit(concurrency)
        for job in ids[-concurrency:]:
            self.ended(job)
        over = time.time()
        return count / (over - _moment(self.client.ask("GET", f"/api/jobs/{ids[0]}")["started_at"]))

    def ended(self, job: str) -> Any:
        while (shown := self.client.ask("GET", f"/api/jobs/{job}?wait=30"))["finished_at"] is None:
            pass
        return shown

    def batch_submits(self, count: int) -> float:
        self.limit(0)
        return in_batches(self.client, count)

    def single_submits(self, count: int, clients: int) -> float:
        self.limit(0)
        return one_by_one(self.home, count, clients)

    def connected_submits(self, count: int, connections: int) -> float:
        self.limit(0)
        return by_connections(self.home, count, connections)

    def clear(self) -> None:
        """Let what is queued run out of the way."""
        self.limit(8)
        jobs = self.client.ask("GET", "/api/jobs?status=QUEUED&limit=1")["jobs"]
        while jobs:
            self.ended(jobs[0]["id"])
            jobs = self.client.ask("GET", "/api/jobs?status=QUEUED&limit=1")["jobs"]

    def latencies(self, count: int, fifo: Path) -> list[float]:
        """Milliseconds from the request to the child's first system call of its own, on an idle scheduler."""
        self.limit(1)
        taken = []
        command = {**COMMAND, "command": ["/bin/sh", "-c", f": > '{fifo}'"]}
        for _ in range(count):
            begun = time.perf_counter()
            job = self.client.ask("POST", "/api/jobs", command)["job"]["id"]
            with fifo.open("rb") as reading:
                reading.read()
            taken.append((time.perf_counter() - begun) * 1000)
            self.ended(job)
        return taken

    def processes(self) -> list[int]:
        status = self.client.ask("GET", "/api/scheduler")
        return [status["pid"], status["supervisor_pid"]]


def _queue(client: Client, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        jobs = [COMMAND] * min(10_000, count - len(ids))
        ids += client.ask("POST", "/api/jobs/batch", {"jobs": jobs})["jobs"]
    return ids


def in_batches(client: Client, count: int) -> float:
    """Submits a second."""
    begun = time.perf_counter()
    _queue(client, count)
    return count / (time.perf_counter() - begun)


def one_by_one(home: Path, count: int, clients: int) -> float:
    """Submits a second, one request each, from so many processes at once, all of them there before the clock starts."""
    context = multiprocessing.get_context("spawn")
    start, spans = context.Barrier(clients), context.Queue()
    asked = (home, count // clients, start, spans)
    processes = [context.Process(target=_submit_some, args=asked, daemon=True) for _ in range(clients)]
    for process in processes:
        process.start()
    taken: list[tuple[float, float]] = [spans.get(timeout=_PATIENCE) for _ in processes]
    for process in processes:
        process.join()
    return count / (max(end for _, end in taken) - min(begun for begun, _ in taken))


def by_connections(home: Path, count: int, connections: int) -> float:
    """The same from one process that keeps so many connections busy, as load generators do: what many processes cost
    is not the scheduler's doing."""
    request = _request()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        socks = [stack.enter_context(_connected(home)) for _ in range(connections)]
        for sock in socks:
            sock.sendall(request)
            _read_answer(sock)
            selector.register(sock, selectors.EVENT_READ)
        begun = time.perf_counter()
        for sock in socks:
            sock.sendall(request)
        sent, answered = connections, 0
        while answered < count:
            for key, _ in selector.select():
                sock = cast("socket.socket", key.fileobj)
                _read_answer(sock)
                answered += 1
                if sent < count:
                    sock.sendall(request)
                    sent += 1
        return count / (time.perf_counter() - begun)


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _request() -> bytes:
    body = json.dumps(COMMAND).encode()
    return b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _connected(home: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(home / "rota.sock"))
    return sock


def _submit_some(home: Path, count: int, start: Barrier, spans: Queue[tuple[float, float]]) -> None:
    """With as little of its own to do as a client can have: what is measured is the scheduler."""
    request = _request()
    with _connected(home) as sock:
        sock.sendall(request)
        _read_answer(sock)
        start.wait(_PATIENCE)
        begun = time.perf_counter()
        for _ in range(count):
            sock.sendall(request)
            _read_answer(sock)
        spans.put((begun, time.perf_counter()))


def _read_answer(sock: socket.socket) -> None:
    data = sock.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 201"):
        raise RuntimeError(data.decode(errors="replace"))
    left = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
    while left > 0:
        if not (more := sock.recv(65536)):
            raise RuntimeError("the connection was closed in the middle of an answer")
        left -= len(more)
