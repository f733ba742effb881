"""A real Rota in its own home, used over its socket as any client would."""

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

_CLIENT_TIMEOUT = 300.0
"""Seconds that client processes wait for each other."""
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

    def request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data)
            response = self._connection.getresponse()
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            # The server had closed the idle connection: it received nothing of this request.
            self._connection.close()
            self._connection.request(method, path, data)
            response = self._connection.getresponse()
        content = json.loads(response.read() or b"null")
        if response.status >= 400:
            raise RuntimeError(content)
        return content


class Rota:
    def __init__(self, home: Path, config: str = "") -> None:
        self.home = home
        home.mkdir(mode=0o700)
        (home / "rota.toml").write_text(config)
        self._environment = {**os.environ, "ROTA_HOME": str(home)}
        self.start()

    def _run(self, *words: str) -> None:
        command = [sys.executable, "-m", "rota", *words]
        subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> float:
        """Return the seconds until the scheduler responds."""
        started = time.perf_counter()
        self._run("up")
        seconds = time.perf_counter() - started
        self.client = Client(self.home)
        return seconds

    def stop(self) -> None:
        self._run("down", "--grace", "0s")

    def set_concurrency(self, size: int) -> None:
        self.client.request("PUT", "/api/pools/global", {"size": size})

    def enqueue(self, count: int) -> list[str]:
        return _enqueue(self.client, count)

    def measure_commands(self, count: int, concurrency: int) -> float:
        """Return commands per second with a full queue, from the recorded start of the first job until a waiting client
        knows the last end. The time of the request that raises the limit is not included."""
        self.set_concurrency(0)
        ids = self.enqueue(count)
        self.set_concurrency(concurrency)
        for job in ids[-concurrency:]:
            self.wait_for_end(job)
        ended = time.time()
        return count / (ended - _timestamp(self.client.request("GET", f"/api/jobs/{ids[0]}")["started_at"]))

    def wait_for_end(self, job: str) -> Any:
        while (record := self.client.request("GET", f"/api/jobs/{job}?wait=30"))["finished_at"] is None:
            pass
        return record

    def batch_submits(self, count: int) -> float:
        self.set_concurrency(0)
        return submit_in_batches(self.client, count)

    def single_submits(self, count: int, clients: int) -> float:
        self.set_concurrency(0)
        return submit_by_processes(self.home, count, clients)

    def connected_submits(self, count: int, connections: int) -> float:
        self.set_concurrency(0)
        return submit_by_connections(self.home, count, connections)

    def drain(self) -> None:
        """Run all queued jobs."""
        self.set_concurrency(8)
        jobs = self.client.request("GET", "/api/jobs?status=QUEUED&limit=1")["jobs"]
        while jobs:
            self.wait_for_end(jobs[0]["id"])
            jobs = self.client.request("GET", "/api/jobs?status=QUEUED&limit=1")["jobs"]

    def measure_latencies(self, count: int, fifo: Path) -> list[float]:
        """Return milliseconds from the request to the first system call of the child's own, on an idle scheduler."""
        self.set_concurrency(1)
        milliseconds = []
        command = {**COMMAND, "command": ["/bin/sh", "-c", f": > '{fifo}'"]}
        for _ in range(count):
            started = time.perf_counter()
            job = self.client.request("POST", "/api/jobs", command)["job"]["id"]
            with fifo.open("rb") as stream:
                stream.read()
            milliseconds.append((time.perf_counter() - started) * 1000)
            self.wait_for_end(job)
        return milliseconds

    def process_ids(self) -> list[int]:
        status = self.client.request("GET", "/api/scheduler")
        return [status["pid"], status["supervisor_pid"]]


def _enqueue(client: Client, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        jobs = [COMMAND] * min(10_000, count - len(ids))
        ids += client.request("POST", "/api/jobs/batch", {"jobs": jobs})["jobs"]
    return ids


def submit_in_batches(client: Client, count: int) -> float:
    """Return submits per second."""
    started = time.perf_counter()
    _enqueue(client, count)
    return count / (time.perf_counter() - started)


def submit_by_processes(home: Path, count: int, clients: int) -> float:
    """Return submits per second, one per request, from this many processes, after all have connected."""
    context = multiprocessing.get_context("spawn")
    start, spans = context.Barrier(clients), context.Queue()
    arguments = (home, count // clients, start, spans)
    processes = [context.Process(target=_submit_sequentially, args=arguments, daemon=True) for _ in range(clients)]
    for process in processes:
        process.start()
    results: list[tuple[float, float]] = [spans.get(timeout=_CLIENT_TIMEOUT) for _ in processes]
    for process in processes:
        process.join()
    return count / (max(end for _, end in results) - min(begin for begin, _ in results))


def submit_by_connections(home: Path, count: int, connections: int) -> float:
    """Return submits per second from one process with this many busy connections, like a load generator. It leaves the
    cores to the scheduler."""
    request = _build_request()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        socks = [stack.enter_context(_connect(home)) for _ in range(connections)]
        for sock in socks:
            sock.sendall(request)
            _read_response(sock)
            selector.register(sock, selectors.EVENT_READ)
        started = time.perf_counter()
        for sock in socks:
            sock.sendall(request)
        sent, received = connections, 0
        while received < count:
            for key, _ in selector.select():
                sock = cast("socket.socket", key.fileobj)
                _read_response(sock)
                received += 1
                if sent < count:
                    sock.sendall(request)
                    sent += 1
        return count / (time.perf_counter() - started)


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _build_request() -> bytes:
    body = json.dumps(COMMAND).encode()
    return b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _connect(home: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(home / "rota.sock"))
    return sock


def _submit_sequentially(home: Path, count: int, start: Barrier, spans: Queue[tuple[float, float]]) -> None:
    """Submit with minimal work in the client, so that the scheduler is measured."""
    request = _build_request()
    with _connect(home) as sock:
        sock.sendall(request)
        _read_response(sock)
        start.wait(_CLIENT_TIMEOUT)
        started = time.perf_counter()
        for _ in range(count):
            sock.sendall(request)
            _read_response(sock)
        spans.put((started, time.perf_counter()))


def _read_response(sock: socket.socket) -> None:
    data = sock.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 201"):
        raise RuntimeError(data.decode(errors="replace"))
    remaining = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
    while remaining > 0:
        if not (more := sock.recv(65536)):
            raise RuntimeError("the connection was closed in the middle of a response")
        remaining -= len(more)
