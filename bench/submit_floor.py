"""The floor for submits: the minimum cost of a durable submit over HTTP.

One process receives a request, stores it as a row, and sends a response as long as Rota's. Requests that arrive
together share a FULL commit. There is no validation, no queue and no scheduler behind it.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import sqlite3
from pathlib import Path
from typing import Any

from bench.live import Client, submit_by_connections, submit_by_processes, submit_in_batches

_PADDING = "." * 1000
"""The size of a job in a response of Rota."""


class SubmitFloor:
    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._home = home
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(home / "rota.sock"))
        listener.listen(128)
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, home), daemon=True)
        process.start()
        listener.close()
        self._process = process
        self._client = Client(home)

    def close(self) -> None:
        self._process.terminate()
        self._process.join()

    def batch_submits(self, count: int) -> float:
        return submit_in_batches(self._client, count)

    def single_submits(self, count: int, clients: int) -> float:
        return submit_by_processes(self._home, count, clients)

    def connected_submits(self, count: int, connections: int) -> float:
        return submit_by_connections(self._home, count, connections)


def _serve(listener: socket.socket, home: Path) -> None:
    async def serve() -> None:
        store = _Store(home / "floor.db")
        server = await asyncio.get_running_loop().create_unix_server(lambda: _Connection(store), sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


class _Store:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, text TEXT)")
        self._pending: list[tuple[_Connection, list[Any]]] = []
        self._last_id = 0

    def add(self, connection: _Connection, jobs: list[Any]) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._commit)
        self._pending.append((connection, jobs))

    def _commit(self) -> None:
        requests, self._pending = self._pending, []
        responses = []
        self._database.execute("BEGIN")
        for connection, jobs in requests:
            ids = range(self._last_id + 1, self._last_id + len(jobs) + 1)
            self._last_id += len(jobs)
            rows = [(number, json.dumps(job)) for number, job in zip(ids, jobs, strict=True)]
            self._database.executemany("INSERT INTO job VALUES (?, ?)", rows)
            responses.append((connection, list(ids)))
        self._database.execute("COMMIT")
        for connection, job_ids in responses:
            connection.respond(job_ids)


class _Connection(asyncio.Protocol):
    def __init__(self, store: _Store) -> None:
        self._store = store
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream has no other
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if not end or len(body) < length:
            return
        self._received.clear()
        request = json.loads(body)
        self._store.add(self, request.get("jobs") or [request])

    def respond(self, job_ids: list[int]) -> None:
        body = json.dumps({"jobs": job_ids, "padding": _PADDING}).encode()
        head = b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)
